"""Redis: redlock-py, as the paper used it, and Redlock as its own page says it should be done.

redlock-py asks one node after the other, sleeps 0.2 s after a failed try, without chance, and gives up after three. The
page of Redlock asks all nodes at once, and lets chance decide when to try again.
"""

import random
import time
import uuid

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redlock import MultipleRedlockException, Redlock

from recipe import Failed, Recipe, split

# What Redlock's page takes off for drifting clocks: a hundredth, and 2 ms for the precision of expiry.
DRIFT_FACTOR = 0.01
DRIFT_MS = 2

# A node that does not answer within this is not waited for: Redlock's page asks for far less than the lease.
NODE_TIMEOUT_S = 0.25

# The time before another try is drawn from nothing to so much, twice as much with each try up to the last.
RETRY_MS_FIRST = 2.0
RETRY_MS_MOST = 50.0


class RedlockPy(Recipe):
    """The paper's: `Redlock(nodes).lock(name, ttl)` with its defaults."""

    def connect(self):
        # redis-py of today tries again by itself, for seconds; that of the paper's time did not.
        options = {"socket_timeout": NODE_TIMEOUT_S, "retry": Retry(NoBackoff(), 0)}
        nodes = [split(node) for node in self.redlock_nodes()]
        self.redlock = Redlock([{"host": host, "port": port, **options} for host, port in nodes])
        host, port = split(self.resource_nodes[0])
        self.resource = redis.Redis(host=host, port=port, **options)

    def redlock_nodes(self):
        """Those that it asks."""
        return self.lock_nodes

    def close(self):
        for server in (*self.redlock.servers, self.resource):
            server.close()

    def acquire(self, name, timeout_s):
        # It has a limit of its own: three tries.
        try:
            lock = self.redlock.lock(name, self.ttl_ms)
        except MultipleRedlockException as error:
            raise Failed(f"some nodes failed: {error}") from None
        if not lock:
            raise Failed("lock returned False")
        return lock

    def release(self, grant):
        self.redlock.unlock(grant)

    def write(self, key, value):
        self.resource.set(key, value)


class RedlockWithJitter(Recipe):
    """The best: all nodes at once, and a time that chance has chosen before another try."""

    def connect(self):
        self.nodes = []
        for node in self.lock_nodes:
            host, port = split(node)
            timeout = NODE_TIMEOUT_S
            self.nodes.append(redis.Connection(host=host, port=port, socket_timeout=timeout, socket_connect_timeout=timeout))
        self.majority = len(self.nodes) // 2 + 1
        host, port = split(self.resource_nodes[0])
        self.resource = redis.Redis(host=host, port=port, socket_timeout=NODE_TIMEOUT_S)

    def close(self):
        for node in self.nodes:
            node.disconnect()
        self.resource.close()

    def reconnect(self):
        """Each try connects to the nodes that are not connected."""

    def ask_all(self, *command):
        """Sends to all before it reads from any; gives back the replies of those that replied."""
        asked = []
        for node in self.nodes:
            try:
                node.send_command(*command)
                asked.append(node)
            except redis.RedisError:
                node.disconnect()
        replies = []
        for node in asked:
            try:
                replies.append(node.read_response())
            except redis.ResponseError:
                pass
            except redis.RedisError:
                node.disconnect()
        return replies

    def acquire(self, name, timeout_s):
        until = time.monotonic() + timeout_s
        most_ms = RETRY_MS_FIRST
        value = uuid.uuid4().hex
        while True:
            asked_at = time.monotonic()
            replies = self.ask_all("SET", name, value, "NX", "PX", self.ttl_ms)
            granted = sum(reply in (b"OK", "OK") for reply in replies)
            took_ms = (time.monotonic() - asked_at) * 1000
            validity_ms = self.ttl_ms - took_ms - self.ttl_ms * DRIFT_FACTOR - DRIFT_MS
            if granted >= self.majority and validity_ms > 0:
                return name, value
            if granted:
                self.release((name, value))
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise Failed("timed out")
            time.sleep(min(random.uniform(0, most_ms) / 1000, left_s))
            most_ms = min(2 * most_ms, RETRY_MS_MOST)

    def release(self, grant):
        self.ask_all("EVAL", Redlock.unlock_script, 1, *grant)

    def write(self, key, value):
        self.resource.set(key, value)


class RedlockPyOneNode(RedlockPy):
    """The same against a cluster that looks like one server."""

    def redlock_nodes(self):
        return self.lock_nodes[:1]
