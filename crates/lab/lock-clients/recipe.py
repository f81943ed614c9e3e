"""What every recipe for a lock is to the worker: one client with connections of its own.

A recipe is written as its library or its server's documentation says, and adds nothing: no retry, no renewal and no
check that a user of it would not get. `lock_nodes` and `resource_nodes` are addresses "host:port" of the same system;
they differ when a holder is to be cut off from the lock service and not from what the lock guards.
"""

import contextlib


class Failed(Exception):
    """The lock was not granted, or the recipe gave up. Nothing else is said about whether it might have been."""


class Recipe:
    """One contender."""

    #: The interval at which `renew` is called while the client lives; None where nothing is to be renewed.
    renew_every_s = None

    def __init__(self, lock_nodes, resource_nodes, ttl_ms):
        self.lock_nodes = lock_nodes
        self.resource_nodes = resource_nodes
        self.ttl_ms = ttl_ms
        self.connect()

    def connect(self):
        """Connects to the first of the nodes."""
        raise NotImplementedError

    def close(self):
        """Closes every connection."""

    def reconnect(self):
        """Connects again, to the next node first: what a user does whose library knows one address."""
        with contextlib.suppress(Exception):
            self.close()
        self.lock_nodes = self.lock_nodes[1:] + self.lock_nodes[:1]
        self.resource_nodes = self.resource_nodes[1:] + self.resource_nodes[:1]
        self.connect()

    def acquire(self, name, timeout_s):
        """Waits at most so long for the lock and returns the grant. Raises `Failed` when it is not granted."""
        raise NotImplementedError

    def release(self, grant):
        """Releases what was granted."""
        raise NotImplementedError

    def renew(self):
        """Keeps alive whatever must be kept alive between acquires."""

    def write(self, key, value):
        """Writes to a resource that knows nothing of the lock."""
        raise NotImplementedError

    def guarded_write(self, grant, key, value):
        """Writes to a resource that refuses a holder whose grant is over. Returns whether the write was accepted."""
        raise NotImplementedError


def split(address):
    """Host and port of "host:port"."""
    host, _, port = address.rpartition(":")
    return host, int(port)
