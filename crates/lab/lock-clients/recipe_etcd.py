"""etcd: python-etcd3's Lock, as the paper used it, and the lock service that etcd itself offers since 3.2.

python-etcd3's Lock makes a lease and a key for each acquire: two entries of etcd's log, one after the other; a lease is
left to run out. Any change of the key wakes all waiting clients at once; a change before its watch begins is missed.

The lock service (v3lock) takes a lease that the client keeps: one entry per acquire. The server queues who waits. Its
messages are three fields long and are written here by hand, so that no generated code of another protobuf version is
needed.
"""

import types

import etcd3
import etcd3.etcdrpc as rpc
import etcd3.locks
import grpc
import tenacity

from recipe import Failed, Recipe, split

# A connection of its own for each client: the default shares one among all clients of a process.
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


def retry_as_once(wait, **settings):
    """`tenacity.retry` as python-etcd3 0.12.0 calls it. Versions of tenacity that run on today's Python pass one argument
    to `wait`, and those that pass its two do not run there: without this, every wait for a lock ends with a TypeError."""
    return tenacity.retry(wait=lambda state: wait(state.attempt_number, state.seconds_since_start), **settings)


etcd3.locks.tenacity = types.SimpleNamespace(**{**vars(tenacity), "retry": retry_as_once})


class PythonEtcd3(Recipe):
    """The paper's: `client.lock(name, ttl)`."""

    def connect(self):
        def client(address):
            host, port = split(address)
            return etcd3.client(host=host, port=port, grpc_options=OWN_CONNECTION)

        self.client = client(self.lock_nodes[0])
        same = self.lock_nodes[0] == self.resource_nodes[0]
        self.resource = self.client if same else client(self.resource_nodes[0])

    def close(self):
        self.client.close()
        if self.resource is not self.client:
            self.resource.close()

    def acquire(self, name, timeout_s):
        lock = self.client.lock(name, ttl=max(1, self.ttl_ms // 1000))
        if not lock.acquire(timeout=timeout_s):
            raise Failed("acquire returned False")
        return lock

    def release(self, grant):
        grant.release()

    def write(self, key, value):
        self.resource.put(key, value)


class V3Lock(Recipe):
    """The best: the server's own queue, on a lease that lasts."""

    def __init__(self, lock_nodes, resource_nodes, ttl_ms):
        # It outlives connections: what is held under it stays held, and is this client's also through another node.
        self.lease = None
        super().__init__(lock_nodes, resource_nodes, ttl_ms)

    @property
    def renew_every_s(self):
        return self.ttl_ms / 3000

    def connect(self):
        self.channel = grpc.insecure_channel(self.lock_nodes[0], options=OWN_CONNECTION)
        same = self.lock_nodes[0] == self.resource_nodes[0]
        resource = self.channel if same else grpc.insecure_channel(self.resource_nodes[0], options=OWN_CONNECTION)
        self.resource_channel = resource
        self.lock = self.channel.unary_unary("/v3lockpb.Lock/Lock", lock_request, lock_response)
        self.unlock = self.channel.unary_unary("/v3lockpb.Lock/Unlock", unlock_request, bytes)
        self.leases = rpc.LeaseStub(self.channel)
        self.kv = rpc.KVStub(resource)
        if self.lease is None:
            ttl_s = max(1, self.ttl_ms // 1000)
            self.lease = self.leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=ttl_s), timeout=5).ID

    def close(self):
        self.channel.close()
        self.resource_channel.close()

    def renew(self):
        request = rpc.LeaseKeepAliveRequest(ID=self.lease)
        for _ in self.leases.LeaseKeepAlive(iter([request]), timeout=self.ttl_ms / 1000):
            pass

    def acquire(self, name, timeout_s):
        try:
            return self.lock((name.encode(), self.lease), timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise Failed("deadline exceeded") from None
            if "lease not found" in (error.details() or ""):
                self.lease = None
            raise

    def release(self, grant):
        self.unlock(grant, timeout=10)

    def write(self, key, value):
        self.kv.Put(rpc.PutRequest(key=key.encode(), value=value.encode()), timeout=10)

    def guarded_write(self, grant, key, value):
        """In one transaction: the key that is the lock is there still, and the write. It is named after this client's
        lease, and goes with it."""
        is_held = rpc.Compare(key=grant, target=rpc.Compare.CREATE, result=rpc.Compare.GREATER, create_revision=0)
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=value.encode()))
        return self.kv.Txn(rpc.TxnRequest(compare=[is_held], success=[put]), timeout=10).succeeded


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def lock_request(request):
    """LockRequest { bytes name = 1; int64 lease = 2; }"""
    name, lease = request
    return b"\x0a" + varint(len(name)) + name + b"\x10" + varint(lease)


def unlock_request(key):
    """UnlockRequest { bytes key = 1; }"""
    return b"\x0a" + varint(len(key)) + key


def lock_response(message):
    """LockResponse { ResponseHeader header = 1; bytes key = 2; }, of which the key is wanted."""
    return dict(parse(message))[2]


def parse(message):
    """The fields of a message: numbers and their values. Only varints and lengths occur."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
        elif tag & 7 == 2:
            length = number()
            yield tag >> 3, message[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {tag & 7} is not expected")
