"""Consul: consul-lock, as the paper used it, and a session with blocking queries, as Consul's own client does it.

consul-lock makes and destroys a session for each acquire: three entries of Consul's log, and who waits sleeps 50 ms,
200 ms, 450 ms and so on. It was written for Python 2; its code runs unchanged once its folder is on the path.
"""

import base64
import importlib.util
import json
import sys
import time
from http.client import HTTPConnection

import consul

from recipe import Failed, Recipe, split


def consul_lock():
    """The module of consul-lock's locks, whose package imports it as Python 2 did."""
    folder = importlib.util.find_spec("consul_lock").submodule_search_locations[0]
    if folder not in sys.path:
        sys.path.append(folder)
    import lock_impl

    return lock_impl


def call(connection, method, path, body=None):
    """One request on a connection that is kept; gives back the status, the index and the parsed body."""
    connection.request(method, path, body=body)
    response = connection.getresponse()
    text = response.read()
    if response.status not in (200, 404, 409):
        raise OSError(f"{method} {path}: {response.status} {text[:200]!r}")
    parsed = json.loads(text) if response.status != 404 and text else None
    return response.status, int(response.headers.get("X-Consul-Index") or 0), parsed


class ConsulLock(Recipe):
    """The paper's: `EphemeralLock(name).acquire()`."""

    def connect(self):
        host, port = split(self.lock_nodes[0])
        self.client = consul.Consul(host=host, port=port, consistency="consistent")
        host, port = split(self.resource_nodes[0])
        self.resource = consul.Consul(host=host, port=port)
        self.locks = consul_lock()

    def close(self):
        for client in (self.client, self.resource):
            client.http.session.close()

    def acquire(self, name, timeout_s):
        lock = self.locks.EphemeralLock(
            name,
            acquire_timeout_ms=int(timeout_s * 1000),
            lock_timeout_seconds=max(10, self.ttl_ms // 1000),
            consul_client=self.client,
        )
        if not lock.acquire(fail_hard=False):
            # Who gives up would leave a session behind.
            lock.release()
            raise Failed("acquire returned False")
        return lock

    def release(self, grant):
        grant.release()

    def write(self, key, value):
        self.resource.kv.put(f"resources/{key}", value)


class ConsulSession(Recipe):
    """The best: one session that lasts, and a query that is answered when the lock changes."""

    def __init__(self, lock_nodes, resource_nodes, ttl_ms):
        # It outlives connections: what is held under it stays held, and is this client's also through another node.
        self.session = None
        super().__init__(lock_nodes, resource_nodes, ttl_ms)

    @property
    def renew_every_s(self):
        return self.ttl_ms / 3000

    def connect(self):
        # What renews has a connection of its own: it must not wait for a query that waits.
        self.connection, self.renewer = (HTTPConnection(*split(self.lock_nodes[0])) for _ in range(2))
        self.resource = HTTPConnection(*split(self.resource_nodes[0]), timeout=10)
        if self.session is None:
            ttl_s = max(10, self.ttl_ms // 1000)
            body = json.dumps({"TTL": f"{ttl_s}s", "LockDelay": "0s", "Behavior": "release"})
            _, _, session = call(self.connection, "PUT", "/v1/session/create", body)
            self.session = session["ID"]

    def close(self):
        for connection in (self.connection, self.renewer, self.resource):
            connection.close()

    def renew(self):
        call(self.renewer, "PUT", f"/v1/session/renew/{self.session}")

    def acquire(self, name, timeout_s):
        until = time.monotonic() + timeout_s
        path = f"/v1/kv/locks/{name}"
        while True:
            is_granted = self.ask_for(path)
            if is_granted:
                return path
            index = 0
            while True:
                left_ms = int((until - time.monotonic()) * 1000)
                if left_ms <= 0:
                    raise Failed("timed out")
                _, index, pairs = call(self.connection, "GET", f"{path}?consistent&index={index}&wait={left_ms}ms")
                if not pairs or "Session" not in pairs[0]:
                    break

    def ask_for(self, path):
        """Whether the lock is this session's now."""
        try:
            return call(self.connection, "PUT", f"{path}?acquire={self.session}", b"")[2]
        except OSError as error:
            if "invalid session" in str(error):
                self.session = None
            raise

    def release(self, grant):
        call(self.connection, "PUT", f"{grant}?release={self.session}", b"")

    def write(self, key, value):
        call(self.resource, "PUT", f"/v1/kv/resources/{key}", value.encode())

    def guarded_write(self, grant, key, value):
        """In one transaction: the lock belongs to this session still, and the write."""
        lock = {"KV": {"Verb": "check-session", "Key": grant.removeprefix("/v1/kv/"), "Session": self.session}}
        text = base64.b64encode(value.encode()).decode()
        write = {"KV": {"Verb": "set", "Key": f"resources/{key}", "Value": text}}
        status, _, _ = call(self.resource, "PUT", "/v1/txn", json.dumps([lock, write]))
        return status == 200
