"""Checks redis-py's unmodified RedisCluster with a cluster of sharded keys. Arguments: a client port, and the process of
another node, which is killed in between; over TLS, if a file with the certificate of an authority is also given. Exits
with 0 if everything is as with Redis Cluster."""

import os
import signal
import sys
import time

import redis
from redis.cluster import ClusterNode, RedisCluster

PORT, VICTIM = int(sys.argv[1]), int(sys.argv[2])
TLS = {"ssl": True, "ssl_ca_certs": sys.argv[3]} if len(sys.argv) > 3 else {}
KEYS = [f"key:{number}" for number in range(200)]


def topology(client):
    assert len(client.get_nodes()) == 3, client.get_nodes()
    slots = client.nodes_manager.slots_cache
    assert len(slots) == 16384
    # A node leads some shards and follows in others. The client records one role for each node, and uses the slots.
    assert len({nodes[0].name for nodes in slots.values()}) == 3
    assert client.cluster_keyslot("foo") == 12182 == client.keyslot("foo")
    assert client.cluster_info(target_nodes=RedisCluster.RANDOM)["cluster_state"] == "ok"
    assert len(client.cluster_nodes()) == 3


def commands(client):
    for number, key in enumerate(KEYS):
        assert client.set(key, number) is True
    for number, key in enumerate(KEYS):
        assert client.get(key) == b"%d" % number
    assert client.mset({"{tag}a": "1", "{tag}b": "2"}) is True
    assert client.mget("{tag}a", "{tag}b") == [b"1", b"2"]
    assert client.mset_nonatomic({"x": "1", "y": "2", "z": "3"})
    assert client.mget_nonatomic("x", "y", "z") == [b"1", b"2", b"3"]
    assert client.incr("counter") == 1
    with client.pipeline() as pipeline:
        for key in KEYS:
            pipeline.incr(key)
        assert pipeline.execute() == list(range(1, len(KEYS) + 1))
    assert client.delete("x", "y", "z") == 3
    assert client.exists("x", "y", "z") == 0
    # Unlike Redis Cluster, a node takes keys of several shards in one command, and changes them at one moment.
    node = client.get_node_from_key("a")
    assert client.execute_command("MSET", "a", "1", "b", "2", target_nodes=node)
    assert client.execute_command("MGET", "b", "a", "none", target_nodes=node) == [b"2", b"1", None]
    assert client.execute_command("RENAME", "a", "b", target_nodes=node)
    assert client.execute_command("MGET", "a", "b", target_nodes=node) == [None, b"1"]
    assert client.delete("b") == 1
    assert client.rpush("b", "x") == 1
    assert list(client.execute_command("BLPOP", "a", "b", "1", target_nodes=node)) == [b"b", b"x"]
    assert client.execute_command("BLPOP", "a", "b", "0.01", target_nodes=node) is None


def failover(client):
    os.kill(VICTIM, signal.SIGKILL)
    by = time.monotonic() + 20
    for number, key in enumerate(KEYS):
        while True:
            try:
                assert client.get(key) == b"%d" % (number + 1), key
                assert client.set(key, "after") is True
                break
            except redis.RedisError as error:
                assert time.monotonic() < by, error
                time.sleep(0.02)
                client.nodes_manager.initialize()
            # A write that took effect and was not acknowledged is read as such the next time.
            try:
                if client.get(key) == b"after":
                    break
            except redis.RedisError:
                pass


for options in [{}, {"protocol": 3}, {"read_from_replicas": True}]:
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", PORT)], socket_timeout=20, **TLS, **options)
    client.flushall(target_nodes=RedisCluster.RANDOM)
    topology(client)
    commands(client)
failover(client)
