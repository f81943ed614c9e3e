"""Checks unmodified lock libraries for Python at the node with the given port, for keys with a prefix.

Exits with 0 if everything is as with Redis.
"""

import sys
import threading
import time
import uuid

import redis

LIBRARY, PORT, PREFIX = sys.argv[1], int(sys.argv[2]), sys.argv[3]
LOCALHOST = {"host": "127.0.0.1", "port": PORT, "socket_timeout": 20}


def name(what):
    """A lock of its own for each test."""
    return f"{PREFIX}{what}:{uuid.uuid4()}"


def raises(kind, run):
    try:
        run()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


def counts_exactly(client, lock):
    """Read and write apart, under a lock: no addition is lost."""
    key = name("count")
    client.set(key, 0)

    def work():
        own = redis.Redis(**LOCALHOST)
        for _ in range(10):
            with lock(own):
                own.set(key, int(own.get(key)) + 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get(key) == b"40", client.get(key)


def redis_py():
    from redis.exceptions import LockError, LockNotOwnedError

    client = redis.Redis(**LOCALHOST)
    key = name("lock")
    lock = client.lock(key, timeout=60)
    other = client.lock(key, timeout=60)
    assert lock.acquire(blocking=False)
    assert lock.locked() and lock.owned() and not other.owned()
    assert not other.acquire(blocking=False)
    assert not other.acquire(blocking_timeout=0.2)
    assert lock.extend(60) and client.pttl(key) > 100_000
    assert lock.extend(30, replace_ttl=True) and client.pttl(key) <= 30_000
    assert lock.reacquire() and client.pttl(key) > 30_000
    client.set(key, "somebody else's")
    raises(LockNotOwnedError, lock.release)
    assert client.get(key) == b"somebody else's"
    client.delete(key)
    raises(LockError, lock.release)
    # It waits until the other one releases the lock.
    assert lock.acquire()
    taken = threading.Event()
    waiting = threading.Thread(target=lambda: other.acquire() and taken.set())
    waiting.start()
    lock.release()
    waiting.join()
    assert taken.is_set()
    # Each thread keeps a token of its own, which the others must not use.
    client.delete(key)
    counted = name("lock")
    counts_exactly(client, lambda own: own.lock(counted, timeout=60, sleep=0.002))
    # Without the nodes knowing the scripts beforehand.
    lock.acquire()
    client.script_flush()
    lock.release()
    assert client.get(key) is None
    # In a transaction.
    script = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    with client.pipeline(transaction=True) as pipeline:
        key = name("sum")
        script(keys=[key], args=[2], client=pipeline)
        pipeline.get(key)
        script(keys=[key], args=[3], client=pipeline)
        assert pipeline.execute() == [2, b"2", 5]


def redlock_py():
    from redlock import Redlock

    locks = Redlock([{"host": "127.0.0.1", "port": PORT, "db": 0}], retry_count=2)
    client = redis.Redis(**LOCALHOST)
    key = name("lock")
    held = locks.lock(key, 60_000)
    assert held and locks.lock(key, 60_000) is False
    locks.unlock(held._replace(key=b"not mine"))
    assert client.exists(key) == 1
    locks.unlock(held)
    assert client.exists(key) == 0
    assert locks.lock(key, 60_000)


def pottery():
    from pottery import Redlock

    client = redis.Redis(**LOCALHOST)
    # Pottery puts a prefix of its own before the name, so its keys are in the default keyspace.
    key = name("lock")
    lock = Redlock(key=key, masters={client}, auto_release_time=60)
    other = Redlock(key=key, masters={client}, auto_release_time=60)
    assert lock.acquire() and not other.acquire(blocking=False)
    assert 59 < lock.locked() <= 60
    lock.extend()
    assert lock.locked()
    lock.release()
    assert not lock.locked() and other.acquire(blocking=False)
    other.release()


begun = time.monotonic()
{"redis-py": redis_py, "redlock-py": redlock_py, "pottery": pottery}[LIBRARY]()
print(f"{LIBRARY}: {time.monotonic() - begun:.2f} s")
