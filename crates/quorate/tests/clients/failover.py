"""An application that uses redis-py with the library's usual settings at the node with the given port, in two keyspaces,
until its input ends. Prints a report as JSON."""

import json
import sys
import threading
import time

import redis

client = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
prefixes, stopped = sys.argv[2].split(","), threading.Event()


def wait_for_the_end():
    sys.stdin.read()
    stopped.set()


report = {"operations": 0, "unknown": 0, "errors": [], "longest_pause_ms": 0}


def ask(run):
    """True if it was done, and False if that is not known."""
    begun = time.monotonic()
    try:
        run()
        report["operations"] += 1
        return True
    except redis.ResponseError as error:
        if not str(error).startswith("UNKNOWN"):
            raise
        report["unknown"] += 1
        return False
    finally:
        report["longest_pause_ms"] = max(report["longest_pause_ms"], int(1000 * (time.monotonic() - begun)))


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def one(prefix, number, added):
    key, counter = f"{prefix}key", f"{prefix}counter"
    is_known = ask(lambda: client.set(key, number))
    seen = []
    ask(lambda: seen.append(client.get(key)))
    check(not is_known or seen == [str(number)], f"{key} is {seen} and not {number}")
    done = ask(lambda: added.append(client.incr(counter)))
    if done and len(added) > 1:
        check(added[-1] > added[-2], f"{counter} goes back: {added[-2:]}")


threading.Thread(target=wait_for_the_end, daemon=True).start()
counters, number = {prefix: [] for prefix in prefixes}, 0
for prefix in prefixes:
    client.set(f"{prefix}counter", 0)
print("ready", flush=True)
while not stopped.is_set():
    number += 1
    for prefix in prefixes:
        try:
            one(prefix, number, counters[prefix])
        except Exception as error:
            report["errors"].append(f"{type(error).__name__}: {error}")
for prefix in prefixes:
    done, counter = len(counters[prefix]), int(client.get(f"{prefix}counter"))
    if not done <= counter <= done + report["unknown"]:
        report["errors"].append(f"{prefix}counter is {counter} after {done} additions")
print(json.dumps(report))
