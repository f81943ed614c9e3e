"""One process of clients that take locks. The lab starts as many as a point needs, and tells each what to do.

    worker.py versions       prints the versions of the clients' libraries
    worker.py load JOB       contenders in a closed loop: acquire, compute, release
    worker.py holder JOB     one client that carries out commands, a line each

JOB is a JSON object. A worker prints "ready" once all its contenders are connected. Times are of the clock CLOCK_MONOTONIC,
which all processes of a machine share, in nanoseconds.

load: a line "go T" starts it at that time. Every try of every contender becomes six numbers of 64 bits in the file
`rows`: contender, asked, granted, released (called), done (release returned), outcome. "done" is printed at the end.

holder: a line is a JSON object {"do": ...}; each is answered by one line {"ok": ..., "at": ...} or {"error": ...}.
"""

import array
import hashlib
import importlib
import json
import platform
import sys
import threading
import time
from importlib.metadata import version

from recipe import Failed

RECIPES = {
    "quorate-lock": ("recipe_quorate", "QuorateLock"),
    "python-etcd3": ("recipe_etcd", "PythonEtcd3"),
    "etcd-v3lock": ("recipe_etcd", "V3Lock"),
    "kazoo": ("recipe_zookeeper", "Kazoo"),
    "consul-lock": ("recipe_consul", "ConsulLock"),
    "consul-session": ("recipe_consul", "ConsulSession"),
    "redlock-py": ("recipe_redis", "RedlockPy"),
    "redlock-py-one-node": ("recipe_redis", "RedlockPyOneNode"),
    "redlock-jitter": ("recipe_redis", "RedlockWithJitter"),
}

# Granted; the recipe gave up; something failed; the run was over before either.
GRANTED, GAVE_UP, FAILED, UNFINISHED = range(4)

# Who waits longer than this gives up, as far as the recipe lets it.
WAIT_S_MOST = 30.0

# A wait that ends so shortly before the run was cut off by the run: recipes count in milliseconds, some of them roughly.
END_NS = 20_000_000

# After a failure, before the next try: a node that is down refuses thousands of times per second.
PAUSE_AFTER_FAILURE_S = 0.01

# Errors of one contender that are reported; the others are counted.
ERRORS_TOLD = 3

# With many threads the interpreter hands its lock on every 5 ms when it is not asked for less.
SWITCH_S = 0.0005

# The paper's "short computation": it does not say which.
COMPUTED = b"x" * 16384


def compute(hold_s):
    """What the lock is held for."""
    if hold_s:
        time.sleep(hold_s)
    else:
        hashlib.sha256(COMPUTED).digest()


def recipe(job):
    """The class of the recipe that a job names."""
    module, name = RECIPES[job["recipe"]]
    return getattr(importlib.import_module(module), name)


def connect(job):
    """A client for a job."""
    return recipe(job)(job["lock_nodes"], job["resource_nodes"], job["ttl_ms"])


def keep_alive(clients, is_over):
    """Renews what clients must renew, for as long as the process lives."""
    while not is_over.wait(clients[0].renew_every_s):
        for client in clients:
            try:
                client.renew()
            except Exception as error:  # The lock is lost then, which is what a fault is to show.
                print(f"renew: {type(error).__name__}: {error}", file=sys.stderr)


def start_keeping_alive(clients):
    """Starts the thread that renews, where there is something to renew; gives back what ends it."""
    is_over = threading.Event()
    if clients[0].renew_every_s is not None:
        threading.Thread(target=keep_alive, args=(clients, is_over), daemon=True).start()
    return is_over


class Contender:
    """One client in a closed loop."""

    def __init__(self, number, name, client, job):
        self.number = number
        self.name = name
        self.client = client
        self.hold_s = job["hold_ms"] / 1000
        self.think_s = job["think_ms"] / 1000
        self.rows = array.array("Q")
        self.errors = 0

    def run(self, start_at, end_at):
        """Takes the lock again and again until it is time to end."""
        time.sleep(max(0, start_at - time.monotonic_ns()) / 1e9)
        while (asked_at := time.monotonic_ns()) < end_at:
            outcome, times = self.once(asked_at, end_at)
            self.rows.extend((self.number, asked_at, *times, outcome))
            if self.think_s:
                time.sleep(self.think_s)

    def once(self, asked_at, end_at):
        """One try: what became of it, and when the lock was granted, its release was called and had returned."""
        granted_at = release_at = 0
        try:
            grant = self.client.acquire(self.name, min(WAIT_S_MOST, (end_at - asked_at) / 1e9))
            granted_at = time.monotonic_ns()
            compute(self.hold_s)
            release_at = time.monotonic_ns()
            self.client.release(grant)
            return GRANTED, (granted_at, release_at, time.monotonic_ns())
        except Failed:
            now = time.monotonic_ns()
            return UNFINISHED if now >= end_at - END_NS else GAVE_UP, (0, 0, now)
        except Exception as error:
            now = time.monotonic_ns()
            self.tell(error)
            time.sleep(PAUSE_AFTER_FAILURE_S)
            self.connect_again()
            # A lock that was granted counts, whatever became of its release.
            return GRANTED if granted_at else FAILED, (granted_at, release_at or now if granted_at else 0, now)

    def connect_again(self):
        """A client that has failed is connected to the next node."""
        try:
            self.client.reconnect()
        except Exception as error:
            self.tell(error)

    def tell(self, error):
        """Errors are for the log; those that come again and again are not."""
        self.errors += 1
        if self.errors <= ERRORS_TOLD:
            print(f"contender {self.number}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def load(job):
    """Runs a job's contenders: one on this thread, several on threads of their own."""
    contenders = [Contender(number, name, connect(job), job) for number, name in job["contenders"]]
    is_over = start_keeping_alive([contender.client for contender in contenders])
    print("ready", flush=True)
    start_at = int(sys.stdin.readline().split()[1])
    end_at = start_at + int(job["seconds"] * 1e9)
    if len(contenders) == 1:
        contenders[0].run(start_at, end_at)
    else:
        sys.setswitchinterval(SWITCH_S)
        threads = [threading.Thread(target=contender.run, args=(start_at, end_at)) for contender in contenders]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    is_over.set()
    with open(job["rows"], "wb") as file:
        for contender in contenders:
            contender.rows.tofile(file)
    print("done", flush=True)


def holder(job):
    """Carries out the commands that it gets."""
    client = connect(job)
    start_keeping_alive([client])
    grant = None
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            accepted = True
            match order["do"]:
                case "acquire":
                    grant = acquire_at_last(client, order["name"], order["within_s"])
                case "release":
                    client.release(grant)
                case "write":
                    client.write(order["key"], order["value"])
                case "guarded write":
                    accepted = client.guarded_write(grant, order["key"], order["value"])
            answer = {"ok": accepted, "at": time.monotonic_ns()}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "at": time.monotonic_ns()}
        print(json.dumps(answer), flush=True)


def acquire_at_last(client, name, within_s):
    """Tries again where a recipe gives up or fails before its time, as its user would."""
    until = time.monotonic() + within_s
    while True:
        try:
            return client.acquire(name, max(0.001, until - time.monotonic()))
        except Failed:
            if time.monotonic() >= until:
                raise
        except Exception as error:
            if time.monotonic() >= until:
                raise
            print(f"acquire: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(PAUSE_AFTER_FAILURE_S)
            client.reconnect()


def versions():
    """What the report shows. Fails where a library is not there."""
    for module, _ in RECIPES.values():
        importlib.import_module(module)
    names = ("etcd3", "grpcio", "kazoo", "consul-lock", "redlock-py", "redis")
    libraries = [f"{name} {version(name)}" for name in names]
    print(", ".join([f"Python {platform.python_version()}", *libraries]))


def main():
    """What the command line asks for."""
    match sys.argv[1:]:
        case ["versions"]:
            versions()
        case ["load", job]:
            load(json.loads(job))
        case ["holder", job]:
            holder(json.loads(job))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
