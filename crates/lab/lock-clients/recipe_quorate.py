"""Quorate: its LOCK command, over redis-py.

One entry of the log per acquire and one per release; who waits is pushed the grant, in order. Each grant is a number that
only grows, and a write can carry it.
"""

import uuid

import redis

from recipe import Failed, Recipe, split

# How much longer than the wait the reply may take.
REPLY_S = 5.0


class QuorateLock(Recipe):
    """`LOCK name owner PX ms WAIT ms`, `UNLOCK name token`, `SET key value FENCE name token`."""

    def __init__(self, lock_nodes, resource_nodes, ttl_ms):
        # It outlives connections: an owner that asks again for what it holds has the same token again.
        self.owner = uuid.uuid4().hex
        super().__init__(lock_nodes, resource_nodes, ttl_ms)

    def connect(self):
        self.client = self.open(self.lock_nodes[0])
        same = self.lock_nodes[0] == self.resource_nodes[0]
        self.resource = self.client if same else self.open(self.resource_nodes[0])

    @staticmethod
    def open(address):
        host, port = split(address)
        connection = redis.Connection(host=host, port=port, socket_timeout=10)
        connection.connect()
        return connection

    def close(self):
        self.client.disconnect()
        self.resource.disconnect()

    def acquire(self, name, timeout_s):
        wait_ms = max(1, int(timeout_s * 1000))
        self.client.send_command("LOCK", name, self.owner, "PX", self.ttl_ms, "WAIT", wait_ms)
        token = self.client.read_response(timeout=timeout_s + REPLY_S)
        if token is None:
            raise Failed("the wait is over")
        return name, token

    def release(self, grant):
        self.client.send_command("UNLOCK", *grant)
        self.client.read_response()

    def write(self, key, value):
        self.resource.send_command("SET", key, value)
        self.resource.read_response()

    def guarded_write(self, grant, key, value):
        """The write carries the lock's name and the token, and is refused once a newer one was granted. The lock's name as
        the key's hash tag puts both into one slot, where one record can look at both."""
        tagged = f"{{{grant[0]}}}{key}"
        try:
            self.resource.send_command("SET", tagged, value, "FENCE", *grant)
            self.resource.read_response()
        except redis.ResponseError as error:
            if str(error).startswith("FENCED"):
                return False
            raise
        return True
