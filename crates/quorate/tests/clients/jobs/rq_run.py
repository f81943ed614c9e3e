"""RQ while nodes are killed: `add PORT FIRST COUNT`, `work PORT` until it is killed, `left PORT` prints where jobs are."""

import json
import sys
import time

import ledger
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue, Worker
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job
from rq.registry import FailedJobRegistry, FinishedJobRegistry, StartedJobRegistry


def run(number):
    ledger.note_ran(number)


def add(connection, first, count):
    queue = Queue("jobs", connection=connection)
    for number in range(first, first + count):
        is_sure, is_added = True, False
        while not is_added:
            try:
                # After an uncertain outcome: a job and its place in the queue are written in one transaction.
                is_added = not is_sure and Job.exists(str(number), connection)
                if not is_added:
                    queue.enqueue(run, number, job_id=str(number), result_ttl=3600, failure_ttl=3600)
                    is_added = True
            except redis.RedisError as error:
                print(f"{number}: {error!r}", flush=True)
                is_sure = False
                time.sleep(0.2)
        ledger.note_added(number, is_sure)


def work(connection):
    # Like a supervisor: RQ's worker exits at an error that it does not know.
    while True:
        try:
            Worker(["jobs"], connection=connection, worker_ttl=30).work(logging_level="WARNING")
        except redis.RedisError as error:
            print(f"the worker ends: {error!r}", flush=True)
        time.sleep(0.2)


def left(connection):
    queue = Queue("jobs", connection=connection)
    report = {
        "queued": queue.get_job_ids(),
        "taken": IntermediateQueue(queue.key, connection).get_job_ids(),
        "started": StartedJobRegistry(queue=queue).get_job_ids(cleanup=False),
        "failed": FailedJobRegistry(queue=queue).get_job_ids(),
        "finished": FinishedJobRegistry(queue=queue).get_job_ids(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    import rq_run  # Its functions are imported from a module of this name.

    # redis-py repeats a command when its connection breaks, which may add a job twice: not here.
    connection = redis.Redis(port=int(sys.argv[2]), retry=Retry(NoBackoff(), 0))
    getattr(rq_run, sys.argv[1])(connection, *map(int, sys.argv[3:]))
