"""ZooKeeper: kazoo's Lock, which the paper used and which is the best there is.

One ephemeral sequential node per acquire, and a watch on the one before it: who waits is woken in order, alone.
"""

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, LockTimeout, NoNodeError

from recipe import Failed, Recipe

LOCKS = "/locks"
RESOURCES = "/resources"


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
        """kazoo knows all nodes and connects again by itself; only a client that has ended is made anew."""
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
        path = f"{RESOURCES}/{key}"
        self.resource.ensure_path(path)
        self.resource.set(path, value.encode())

    def guarded_write(self, grant, key, value):
        """In one transaction: the node that is the lock is there still, and the write."""
        path = f"{RESOURCES}/{key}"
        self.resource.ensure_path(path)
        transaction = self.resource.transaction()
        transaction.check(f"{grant.path}/{grant.node}", 0)
        transaction.set_data(path, value.encode())
        results = transaction.commit()
        if any(isinstance(result, (NoNodeError, BadVersionError)) for result in results):
            return False
        for result in results:
            if isinstance(result, Exception):
                raise result
        return True
