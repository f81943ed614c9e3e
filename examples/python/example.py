"""Quorate with redis-py: go on at another node, write once, hold a lock, take a job."""

import sys
import time
import uuid

import redis

NODES = sys.argv[1:] or ["127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"]


class Quorate:
    """A connection to one of several nodes: to the next one when it breaks."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.connect()

    def connect(self):
        host, port = self.nodes[0].rsplit(":", 1)
        # A node answers within command_timeout_ms (5 s). A client that waits for less makes definite answers unknown.
        # What the client would repeat by itself could be done twice.
        self.client = redis.Redis(
            host, int(port), decode_responses=True, socket_timeout=15, socket_connect_timeout=2,
            retry=None, retry_on_error=[],
        )

    def once(self, *words):
        """Sends a command. If the connection breaks, its outcome is unknown."""
        # redis-py returns what SET … GET has found only if it is told so.
        options = {"get": True} if words[0] == "SET" and "GET" in words else {}
        try:
            return self.client.execute_command(*words, **options)
        except (redis.ConnectionError, redis.TimeoutError):
            self.nodes = self.nodes[1:] + self.nodes[:1]
            self.connect()
            raise

    def repeat(self, *words):
        """Sends a command that may be sent twice, until its outcome is known."""
        return self.until_known(lambda: self.once(*words))

    def until_known(self, step):
        """Repeats a step until its outcome is known."""
        give_up = time.monotonic() + 60
        while True:
            try:
                return step()
            except (redis.ConnectionError, redis.TimeoutError):
                pass
            except redis.ResponseError as error:
                # UNKNOWN: it may have happened. TRYAGAIN and CLUSTERDOWN: it did not, and it may soon.
                if not str(error).startswith(("UNKNOWN", "TRYAGAIN", "CLUSTERDOWN")):
                    raise
            if time.monotonic() > give_up:
                raise TimeoutError("no node has answered")
            time.sleep(0.1)

    def take(self, queue, own):
        """Moves a job to the worker's own list. One that is there already was moved by a command of unknown outcome."""
        step = lambda: self.once("LINDEX", own, -1) or self.once("BLMOVE", queue, own, "RIGHT", "LEFT", 10)
        while not (job := self.until_known(step)):
            pass  # There was none for ten seconds.
        return job


def main():
    quorate = Quorate(NODES)
    me = f"worker-{uuid.uuid4()}"

    # Write once. Whoever sets the order finds its own value there when it repeats.
    order = f"order:{uuid.uuid4()}"
    before = quorate.repeat("SET", order, me, "NX", "GET")
    assert before in (None, me), f"the order is {before}'s"
    assert quorate.repeat("GET", order) == me
    print("the order is ours")

    # A lock. To ask again with the same owner gives the same token.
    tag = f"{{job:{uuid.uuid4()}}}"
    lock, state = f"{tag}:lock", f"{tag}:state"
    token = quorate.repeat("LOCK", lock, me, "PX", 10_000, "WAIT", 60_000)
    quorate.repeat("SET", state, "begun", "FENCE", lock, token)
    print("written under the lock:", quorate.repeat("GET", state))
    quorate.repeat("UNLOCK", lock, token)
    newer = quorate.repeat("LOCK", lock, "another", "PX", 10_000, "WAIT", 60_000)
    try:
        quorate.repeat("SET", state, "too late", "FENCE", lock, token)
        sys.exit("a write with an old token was not refused")
    except redis.ResponseError as error:
        print("a late write is refused:", str(error).split()[0])
    quorate.repeat("UNLOCK", lock, newer)

    # A queue. A job may be in it twice, since its LPUSH may have been repeated: what it does must bear that.
    queue, own = f"{{queue:{me}}}", f"{{queue:{me}}}:own"
    quorate.repeat("LPUSH", queue, "job 1")
    job = quorate.take(queue, own)
    print("taken:", job)
    quorate.repeat("LREM", own, 0, job)
    quorate.repeat("DEL", order, state, queue, own)
    print("done")


main()
