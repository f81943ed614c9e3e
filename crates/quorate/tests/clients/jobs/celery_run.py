"""Celery while nodes are killed: `add PORT FIRST COUNT`, `left PORT`; its worker is `celery -A celery_run worker`."""

import json
import os
import sys
import time

import ledger
import redis
from celery import Celery

PORT = os.environ.get("PORT") or sys.argv[2]
app = Celery("celery_run", broker=f"redis://127.0.0.1:{PORT}/0")
app.conf.update(
    # A message is acknowledged when its task has run; one that is not acknowledged within the visibility timeout is
    # delivered again. The workers usually check for such messages every 100 seconds.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_transport_options={
        "visibility_timeout": 5,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
    worker_prefetch_multiplier=1,
    # After a broken connection, or a command with an unknown outcome, it connects again.
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_channel_error_retry=True,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    task_ignore_result=True,
)


@app.task(name="run")
def run(number):
    ledger.note_ran(number)


def add(first, count):
    for number in range(first, first + count):
        is_sure, is_added = True, False
        while not is_added:
            try:
                run.apply_async((number,), task_id=str(number), retry=False)
                is_added = True
            except Exception as error:
                print(f"{number}: {error!r}", flush=True)
                is_sure = False
                time.sleep(0.2)
        ledger.note_added(number, is_sure)


def left():
    connection = redis.Redis(port=int(PORT))
    print(json.dumps({"queued": connection.llen("celery"), "unacknowledged": connection.hlen("unacked")}))


if __name__ == "__main__":
    {"add": add, "left": left}[sys.argv[1]](*map(int, sys.argv[3:]))
