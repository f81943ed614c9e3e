"""Checks unmodified redis-py at the node with the given port; over TLS, if a file with the certificate of an authority is
also given. Exits with 0 if everything is as with Redis."""

import sys
import threading
import time

import redis

PORT = int(sys.argv[1])
AUTHORITY = sys.argv[2] if len(sys.argv) > 2 else None
PLAIN = {"host": "127.0.0.1", "port": PORT, "socket_timeout": 20}
LOCALHOST = {**PLAIN, "ssl": True, "ssl_ca_certs": AUTHORITY} if AUTHORITY else PLAIN
POOL = {**PLAIN, "connection_class": redis.SSLConnection, "ssl_ca_certs": AUTHORITY} if AUTHORITY else PLAIN
# Refused connections are not retried repeatedly.
AT_ONCE = {**LOCALHOST, "retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0)}


def raises(kind, text, run):
    """Asserts that `run` raises this kind of error, not a mere subclass of it or of another, with this text."""
    try:
        run()
    except redis.RedisError as error:
        assert type(error) is kind, f"{type(error)}: {error}"
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"no {kind.__name__}")


def values_and_options(client, protocol):
    client.flushall()
    assert client.ping() is True
    assert client.set("k", b"\x00\r\n\xff") is True
    assert client.get("k") == b"\x00\r\n\xff"
    assert client.get("nothing") is None
    assert client.set("k", "w", nx=True) is None
    assert client.set("k", "w", xx=True, get=True) == b"\x00\r\n\xff"
    assert client.set("k", "x", ex=100) is True and 98 <= client.ttl("k") <= 100
    assert client.set("k", "y", keepttl=True) is True and client.ttl("k") > 0
    assert client.set("k", "z", px=100_000) is True and client.pttl("k") > 90_000
    assert client.set("k", "z", exat=33_177_117_420) is True
    assert client.expiretime("k") == 33_177_117_420
    assert client.set("k", "z", pxat=33_177_117_420_000) is True
    assert client.pexpiretime("k") == 33_177_117_420_000
    assert client.getex("k", ex=100) == b"z" and client.ttl("k") > 0
    assert client.getex("k", persist=True) == b"z" and client.ttl("k") == -1
    assert client.getdel("k") == b"z" and client.ttl("k") == -2
    assert client.mset({"a": 1, "b": 2}) is True
    assert client.mget("a", "nothing", "b") == [b"1", None, b"2"]
    assert client.incr("n") == 1 and client.incrby("n", 9) == 10 and client.decr("n") == 9
    assert client.incrbyfloat("n", 0.5) == 9.5
    assert client.append("text", "abc") == 3 and client.getrange("text", 1, -1) == b"bc"
    assert client.setrange("text", 3, "d") == 4 and client.strlen("text") == 4
    assert client.exists("a", "b", "nothing") == 2
    assert client.type("a") == b"string" and client.type("nothing") == b"none"
    assert client.rename("a", "c") is True and client.copy("c", "d") is True
    assert client.delete("b", "c", "d", "n", "text") == 5
    assert client.dbsize() == 0 and client.randomkey() is None
    assert client.echo("text") == b"text"
    assert isinstance(client.time()[0], int)
    assert client.wait(1, 1000) >= 0


def hashes(client, protocol):
    client.delete("h", "s")
    assert client.hset("h", mapping={"a": 1, "b": "two"}) == 2
    assert client.hset("h", "c", b"\x00\xff") == 1 and client.hsetnx("h", "c", "x") == 0
    assert client.hgetall("h") == {b"a": b"1", b"b": b"two", b"c": b"\x00\xff"}
    assert client.hget("h", "b") == b"two" and client.hget("h", "nothing") is None
    assert client.hmget("h", "a", "nothing") == [b"1", None]
    assert client.hkeys("h") == [b"a", b"b", b"c"] and client.hlen("h") == 3
    assert client.hvals("h")[1] == b"two" and client.hstrlen("h", "b") == 3
    assert client.hexists("h", "a") and not client.hexists("h", "nothing")
    assert client.hincrby("h", "a", 5) == 6 and client.hincrbyfloat("h", "a", 0.5) == 6.5
    client.hset("h", mapping={f"field{number}": number for number in range(1000)})
    found = dict(client.hscan_iter("h", match="field*", count=50))
    assert len(found) == 1000 and found[b"field7"] == b"7"
    assert client.hdel("h", "a", "b", "nothing") == 2
    assert client.type("h") == b"hash" and list(client.scan_iter(_type="hash")) == [b"h"]
    assert client.object("encoding", "h") == b"hashtable"
    raises(redis.ResponseError, "WRONGTYPE", lambda: client.get("h"))
    client.set("s", "v")
    raises(redis.ResponseError, "WRONGTYPE", lambda: client.hget("s", "a"))
    assert client.delete("h", "s") == 2


def channels(client, other):
    with client.pubsub() as listener:
        listener.subscribe("news", "more")
        listener.psubscribe("n*")
        assert [listener.get_message(timeout=20)["type"] for _ in range(3)] == ["subscribe", "subscribe", "psubscribe"]
        assert client.pubsub_numsub("news", "nothing") == [(b"news", 1), (b"nothing", 0)]
        assert client.pubsub_numpat() == 1 and sorted(client.pubsub_channels()) == [b"more", b"news"]
        assert other.publish("news", "text") == 2
        message = listener.get_message(timeout=20)
        assert (message["type"], message["channel"], message["data"]) == ("message", b"news", b"text"), message
        message = listener.get_message(timeout=20)
        assert (message["type"], message["pattern"], message["channel"]) == ("pmessage", b"n*", b"news"), message
        with other.pipeline(transaction=True) as pipeline:
            assert pipeline.set("k", "v").publish("more", "exec").execute() == [True, 1]
        assert listener.get_message(timeout=20)["data"] == b"exec"
        publish = other.register_script("return redis.call('publish', KEYS[1], ARGV[1])")
        assert publish(keys=["more"], args=["script"]) == 0
        assert listener.get_message(timeout=20)["data"] == b"script"
        listener.unsubscribe()
        listener.punsubscribe()
        assert [listener.get_message(timeout=20)["type"] for _ in range(3)] == ["unsubscribe"] * 2 + ["punsubscribe"]
    assert client.publish("news", "nobody") == 0


def expiry(client):
    client.set("k", "v")
    assert client.expire("k", 100, xx=True) is False
    assert client.expire("k", 100, nx=True) is True
    assert client.expire("k", 50, gt=True) is False
    assert client.expire("k", 200, gt=True) is True
    assert client.pexpire("k", 50_000, lt=True) is True
    assert client.expireat("k", 33_177_117_420) is True
    assert client.persist("k") is True and client.persist("k") is False
    assert client.psetex("short", 50, "v") is True
    deadline = time.monotonic() + 20
    while client.exists("short"):
        assert time.monotonic() < deadline
    assert client.get("short") is None


def pipelines(client):
    with client.pipeline(transaction=False) as pipeline:
        for number in range(1000):
            pipeline.set(f"p:{number}", number)
            pipeline.get(f"p:{number}")
        replies = pipeline.execute()
    assert replies[1::2] == [str(number).encode() for number in range(1000)]
    with client.pipeline(transaction=False) as pipeline:
        pipeline.set("k", "text").incr("k").get("k")
        first, error, last = pipeline.execute(raise_on_error=False)
    assert first is True and isinstance(error, redis.ResponseError) and last == b"text"
    assert sorted(client.scan_iter("p:*", count=37)) == sorted(f"p:{number}".encode() for number in range(1000))
    assert sum(1 for _ in client.scan_iter("p:*")) == 1000
    assert client.delete(*(f"p:{number}" for number in range(1000))) == 1000
    assert client.keys("p:*") == []


def transactions(client):
    client.delete("a", "b", "n")
    with client.pipeline() as pipeline:
        assert pipeline.set("a", 1).incrby("a", 4).get("b").execute() == [True, 5, None]
    with client.pipeline() as pipeline:
        pipeline.set("a", "text").incr("a").set("b", 2)
        first, error, last = pipeline.execute(raise_on_error=False)
    assert first is True and isinstance(error, redis.ResponseError) and last is True
    assert client.mget("a", "b") == [b"text", b"2"], "an error does not undo the rest"
    with client.pipeline() as pipeline:
        pipeline.watch("a")
        assert pipeline.get("a") == b"text"
        client.set("a", "text")
        pipeline.multi()
        pipeline.set("a", "mine")
        raises(redis.WatchError, "", pipeline.execute)
        pipeline.watch("a", "nothing")
        pipeline.multi()
        pipeline.set("a", "mine").delete("nothing")
        assert pipeline.execute() == [True, 0]
    assert client.get("a") == b"mine"
    with client.pipeline() as pipeline:
        pipeline.set("a", 1).execute_command("NOSUCH")
        raises(redis.ResponseError, "unknown command", pipeline.execute)
    assert client.get("a") == b"mine"

    def counts():
        def step(pipeline):
            before = int(pipeline.get("n") or 0)
            pipeline.multi()
            pipeline.set("n", before + 1)

        with redis.Redis(**LOCALHOST) as own:
            for _ in range(25):
                own.transaction(step, "n")

    threads = [threading.Thread(target=counts) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("n") == b"100", "no step is lost"


def conditional_commands(client):
    client.delete("k")
    assert client.set("k", "v", ifeq="w") is None
    assert client.set("k", "v", ifne="w") is True
    assert client.set("k", "w", ifeq="v", ex=100) is True and client.ttl("k") == 100
    digest = client.digest("k")
    assert len(digest) == 16, digest
    assert client.set("k", "x", ifdne=digest) is None
    assert client.set("k", "x", ifdeq=digest, get=True) == b"w"
    assert client.delex("k", ifeq="w") == 0
    assert client.execute_command("DELIFEQ", "k", "x") == 1
    assert client.delex("k") == 0 and client.digest("k") is None


def about_connections(client):
    assert client.client_setname("tester") is True and client.client_getname() in ("tester", b"tester")
    info = client.client_info()
    assert info["name"] == "tester" and info["lib-name"].startswith("redis-py"), info
    assert info["id"] == client.client_id()
    assert any(each["name"] == "tester" for each in client.client_list())
    assert client.config_get("maxclients")["maxclients"] == "10000"
    assert client.config_set("slowlog-log-slower-than", "10000") is True
    facts = client.info()
    for field in ["redis_version", "role", "connected_clients", "used_memory", "loading", "uptime_in_seconds"]:
        assert field in facts, field
    assert (AUTHORITY or facts["tcp_port"] == PORT) and facts["loading"] == 0
    assert "cmdstat_get" in client.info("commandstats")
    assert client.info("keyspace") is not None
    assert client.command_count() > 50 and "get" in client.command()


def errors(client):
    client.set("text", "abc")
    raises(redis.ResponseError, "value is not an integer or out of range", lambda: client.incr("text"))
    raises(redis.ResponseError, "unknown command", lambda: client.execute_command("NOSUCH", "x"))
    raises(redis.ResponseError, "wrong number of arguments", lambda: client.execute_command("GET"))
    raises(redis.ResponseError, "no such key", lambda: client.rename("nothing", "k"))
    raises(redis.ResponseError, "syntax error", lambda: client.execute_command("SET", "k", "v", "NX", "XX"))
    wrong = redis.Redis(**AT_ONCE, protocol=2, password="wrong")
    raises(redis.AuthenticationError, "without any password configured", wrong.ping)
    raises(redis.ResponseError, "DB index is out of range", redis.Redis(**AT_ONCE, db=16).ping)
    elsewhere = redis.Redis(**AT_ONCE, db=3)
    assert elsewhere.set("of", "three") is True and elsewhere.get("of") == b"three" and client.get("of") is None
    assert elsewhere.flushdb() is True
    assert client.ping() is True


def how_errors_are_mapped():
    """The codes that the nodes answer with when something is wrong become the classes that programs catch."""
    parser = redis.connection.Connection(**PLAIN)._parser
    classes = {
        "LOADING it has no memory of its data yet": redis.BusyLoadingError,
        "READONLY You can't write against a read only replica.": redis.ReadOnlyError,
        "NOAUTH Authentication required.": redis.AuthenticationError,
        "WRONGPASS invalid username-password pair": redis.AuthenticationError,
        "UNKNOWN the write may have taken effect": redis.ResponseError,
        "CLUSTERDOWN NOLEADER nothing was done": redis.exceptions.ClusterDownError,
        "TRYAGAIN LOST nothing was done": redis.exceptions.TryAgainError,
        "NOREPLICAS Not enough good replicas to write.": redis.ResponseError,
    }
    for text, kind in classes.items():
        error = parser.parse_error(text)
        assert isinstance(error, kind), f"{text}: {type(error)}"


def pools_and_health_checks():
    pool = redis.ConnectionPool(max_connections=20, **POOL)
    clients = [redis.Redis(connection_pool=pool) for _ in range(20)]
    for number, client in enumerate(clients):
        client.set(f"pool:{number}", number)
    assert [int(client.get(f"pool:{number}")) for number, client in enumerate(clients)] == list(range(20))
    pool.disconnect()
    with redis.Redis(health_check_interval=0.01, decode_responses=True, **LOCALHOST) as client:
        for number in range(20):
            client.set("text", "äöü")
            time.sleep(0.011)
            assert client.get("text") == "äöü"


def locks(client):
    """The part of a lock that needs no script: it is taken once, and seen to be taken."""
    assert client.set("lock", "token", nx=True, px=100_000) is True
    assert client.set("lock", "another", nx=True, px=100_000) is None
    assert client.lock("lock", timeout=100).locked() is True
    client.delete("lock")
    assert client.lock("lock", timeout=100).locked() is False


def waiting(client, other):
    """Waiting for an element: until it is pushed, or until the time is over."""
    client.delete("l", "to", "z")
    assert client.blpop(["nothing", "l"], timeout=0.01) is None
    assert client.bzpopmin("z", timeout=0.01) is None
    for key, push, take in [
        ("l", lambda: client.rpush("l", "a"), lambda: other.blpop(["nothing", "l"], timeout=10)),
        ("l", lambda: client.rpush("l", "a"), lambda: other.brpop("l", timeout=10)),
        ("z", lambda: client.zadd("z", {"a": 1}), lambda: other.bzpopmax("z", timeout=10)),
    ]:
        got = []
        thread = threading.Thread(target=lambda: got.append(take()))
        thread.start()
        while int(client.info("clients")["blocked_clients"]) == 0:
            time.sleep(0.005)
        assert push() == 1
        thread.join(10)
        assert list(got[0])[:2] == [key.encode(), b"a"], got
        assert client.exists(key) == 0
    client.rpush("l", "a", "b", "c")
    assert client.blmove("l", "to", 1, "LEFT", "RIGHT") == b"a"
    assert client.brpoplpush("l", "to", 1) == b"c"
    assert client.blmpop(1, 2, "nothing", "to", direction="LEFT", count=5) == [b"to", [b"c", b"a"]]
    client.delete("l")


for protocol in (2, 3):
    with redis.Redis(protocol=protocol, **LOCALHOST) as client:
        values_and_options(client, protocol)
        hashes(client, protocol)
        with redis.Redis(protocol=protocol, **LOCALHOST) as other:
            channels(client, other)
            waiting(client, other)
        expiry(client)
        pipelines(client)
        transactions(client)
        conditional_commands(client)
        about_connections(client)
        errors(client)
        locks(client)
how_errors_are_mapped()
pools_and_health_checks()
print("ok", redis.__version__)
