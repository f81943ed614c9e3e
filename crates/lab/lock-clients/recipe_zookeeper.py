"""ZooKeeper: kazoo's Lock, which the paper used and which is the best there is.

One ephemeral sequential node per acquire, and a watch on the one before it: who waits is woken in order, alone.
"""

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, LockTimeout, NoNodeError
from kazoo.retry import KazooRetry

from recipe import Failed, Recipe

LOCKS = "/locks"
RESOURCES = "/resources"

# How long a write may take while a new session is made.
WRITE_S = 10


class Kazoo(Recipe):
    """`client.Lock(path)`; the session is kept alive by kazoo."""

    def connect(self):
        def client(nodes):
            client = KazooClient(hosts=",".join(nodes), timeout=self.ttl_ms / 1000, randomize_hosts=False)
            client.start(timeout=10)
            return client

        self.client = client(self.lock_nodes)
        self.resource = self.client if self.lock_nodes == self.resource_nodes else client(self.resource_nodes)

    def close(self):
        for client in {self.client, self.resource}:
            client.stop()
            client.close()

    def reconnect(self):
        """kazoo knows all nodes and connects again by itself; only a client that has ended is created again."""
        if not self.client.handler.running:
            super().reconnect()

    def acquire(self, name, timeout_s):
        lock = self.client.Lock(f"{LOCKS}/{name}")
        try:
            if not lock.acquire(timeout=timeout_s):
                raise Failed("acquire returned False")
        except LockTimeout:
            raise Failed("timed out") from None
        return lock

    def release(self, grant):
        grant.release()

    def write(self, key, value):
        """The resource might be anywhere, so a session that has ended is no reason to refuse: kazoo makes a new one."""
        retry = KazooRetry(max_tries=-1, deadline=WRITE_S)
        path = f"{RESOURCES}/{key}"
        retry(self.resource.ensure_path, path)
        retry(self.resource.set, path, value.encode())

    def guarded_write(self, grant, key, value):
        """In one transaction: the node that is the lock is there still, and the write."""
        retry = KazooRetry(max_tries=-1, deadline=WRITE_S)
        path = f"{RESOURCES}/{key}"
        retry(self.resource.ensure_path, path)

        def commit():
            transaction = self.resource.transaction()
            transaction.check(f"{grant.path}/{grant.node}", 0)
            transaction.set_data(path, value.encode())
            return transaction.commit()

        results = retry(commit)
        if any(isinstance(result, (NoNodeError, BadVersionError)) for result in results):
            return False
        for result in results:
            if isinstance(result, Exception):
                raise result
        return True
