"""The normal use of job queues and brokers for Python, each in a few seconds.

`PORTS='1 2 3' python libraries.py LIBRARY`: jobs are added at the node at the first port, processed at the second, and
their results read at the third.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from datetime import timedelta

import redis

PORTS = [int(port) for port in os.environ["PORTS"].split()]
URLS = [f"redis://127.0.0.1:{port}/0" for port in PORTS]


def at(index):
    return redis.Redis(port=PORTS[index])


def equal(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r} and not {expected!r}")


def until(holds, what):
    by = time.monotonic() + 20
    while not holds():
        if time.monotonic() > by:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.02)


# RQ imports the functions of its jobs from the module `libraries`.


def add(a, b):
    return a + b


def fail_once(key):
    if at(2).incr(key) == 1:
        raise ValueError("the first time")
    return "done"


def fail():
    raise ValueError("always")


def rq():
    from rq import Queue, Retry, Worker
    from rq.registry import FailedJobRegistry, FinishedJobRegistry, ScheduledJobRegistry

    high, low = Queue("high", connection=at(0)), Queue("low", connection=at(0))
    sum_job = low.enqueue("libraries.add", 2, 3)
    urgent = high.enqueue("libraries.add", 1, 1)
    again = low.enqueue("libraries.fail_once", "rq-count", retry=Retry(max=2))
    never = low.enqueue("libraries.fail")
    after = low.enqueue("libraries.add", 4, 4, depends_on=sum_job)
    many = low.enqueue_many([Queue.prepare_data("libraries.add", (number, 1)) for number in range(10)])
    cancelled = low.enqueue("libraries.add", 9, 9)
    cancelled.cancel()
    later = low.enqueue_in(timedelta(seconds=1), "libraries.add", 5, 5)
    equal(ScheduledJobRegistry(queue=low).get_job_ids(), [later.id])
    equal(high.count, 1)

    worker = Worker(["high", "low"], connection=at(1))
    worker.work(burst=True)
    jobs = [sum_job, urgent, again, after, *many]
    equal([job.return_value() for job in jobs], [5, 2, "done", 8] + list(range(1, 11)))
    equal(urgent.fetch(urgent.id, at(2)).ended_at < sum_job.fetch(sum_job.id, at(2)).started_at, True)
    equal([cancelled.get_status(), never.get_status()], ["canceled", "failed"])
    equal("always" in never.latest_result().exc_string, True)
    there = Queue("low", connection=at(2))
    equal(FailedJobRegistry(queue=there).get_job_ids(), [never.id])
    equal(FinishedJobRegistry(queue=there).count, 13)
    FailedJobRegistry(queue=there).requeue(never.id)
    equal(there.get_job_ids(), [never.id])

    # The scheduler is a process of its own, held by a lock.
    time.sleep(1)
    Worker(["low"], connection=at(1)).work(burst=True, with_scheduler=True)
    until(lambda: later.get_status() == "finished", "the delayed job ends")
    equal(len(Worker.all(connection=at(2))), 0)


def celery():
    from celery import Celery, chain, chord, group
    from celery.contrib.testing.worker import start_worker

    def app_at(index):
        app = Celery(f"app-{index}", broker=URLS[index], backend=URLS[2], set_as_current=False)
        app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
        app.conf.broker_transport_options = {"priority_steps": [0, 9], "queue_order_strategy": "priority"}
        order = []

        @app.task(name="plus", shared=False)
        def plus(a, b):
            order.append(a)
            return a + b

        @app.task(name="total", shared=False)
        def total(numbers):
            return sum(numbers)

        @app.task(name="once", shared=False, bind=True, max_retries=2)
        def once(task):
            if task.request.retries == 0:
                raise task.retry(countdown=0.1)
            return "done"

        @app.task(name="broken", shared=False)
        def broken():
            raise ValueError("always")

        return app, plus, total, once, broken, order

    producer, plus, total, once, broken, _ = app_at(0)
    consumer, *_, order = app_at(1)
    results = [plus.delay(1, 1), plus.apply_async((9, 9), priority=9), once.delay(), plus.apply_async((3, 3), countdown=1)]
    results.append(chain(plus.s(1, 2), plus.s(4)).apply_async())
    results.append(chord(group(plus.s(number, 0) for number in range(5)), total.s()).apply_async())
    failing = broken.delay()
    revoked = plus.apply_async((7, 7), countdown=2)
    with start_worker(consumer, pool="solo", perform_ping_check=False):
        revoked.revoke()
        equal([result.get(timeout=20) for result in results], [2, 18, "done", 6, 7, 10])
        try:
            failing.get(timeout=20)
            raise AssertionError("the task fails")
        except ValueError as error:
            equal(str(error), "always")
        equal(len(producer.control.ping(timeout=1)), 1)
        until(lambda: revoked.state == "REVOKED", "it is revoked")
    equal(7 in order, False)
    equal(at(2).hlen("unacked"), 0)


def huey():
    from huey import PriorityRedisExpireHuey, RedisHuey, crontab
    from huey.exceptions import TaskException

    for kind, name in [(RedisHuey, "plain"), (PriorityRedisExpireHuey, "priority")]:
        producer, consumer = kind(name, url=URLS[0]), kind(name, url=URLS[1])
        order = []

        def declare(of):
            @of.task(name="add")
            def plus(a, b):
                order.append(a)
                return a + b

            @of.task(name="fail_once", retries=1, retry_delay=0)
            def once(state={"calls": 0}):
                state["calls"] += 1
                if state["calls"] == 1:
                    raise ValueError("the first time")
                return "done"

            @of.task(name="locked")
            @of.lock_task("a-lock")
            def locked():
                return "locked"

            @of.periodic_task(crontab(minute="0"), name="hourly")
            def hourly():
                pass

            return plus, once, locked

        plus, once, locked = declare(producer)
        declare(consumer)
        results = [plus(1, 1), plus(2, 2), plus.schedule((3, 3), delay=1), once(), locked()]
        if kind is PriorityRedisExpireHuey:
            results += [plus(8, 8, priority=9)]
        revoked = plus(7, 7)
        revoked.revoke()
        running = consumer.create_consumer(workers=1, periodic=True, initial_delay=0.05, max_delay=0.1)
        running.start()
        try:
            expected = [2, 4, 6, "done", "locked", 16][: len(results)]
            equal([result.get(blocking=True, timeout=20) for result in results], expected)
            if kind is PriorityRedisExpireHuey:
                equal(order[0], 8)
            equal(7 in order, False)
            group = plus.map([(number, number) for number in range(5)])
            equal(group.get(blocking=True, timeout=20), [0, 2, 4, 6, 8])
        finally:
            running.stop(graceful=True)
        equal(kind(name, url=URLS[2]).pending_count(), 0)


def arq():
    from arq import Retry, create_pool, cron
    from arq.connections import RedisSettings
    from arq.jobs import JobStatus
    from arq.worker import Worker, func

    async def plus(context, a, b):
        return a + b

    async def once(context):
        if context["job_try"] == 1:
            raise Retry(defer=0.1)
        return "done"

    async def broken(context):
        raise ValueError("always")

    async def every_second(context):
        context["redis"]
        await context["redis"].incr("arq-cron")

    async def run():
        pools = [await create_pool(RedisSettings(port=port)) for port in PORTS]
        jobs = [await pools[0].enqueue_job("plus", 1, 2), await pools[0].enqueue_job("once")]
        jobs.append(await pools[0].enqueue_job("plus", 2, 2, _defer_by=1))
        jobs.append(await pools[0].enqueue_job("plus", 3, 3, _job_id="only-once"))
        equal(await pools[0].enqueue_job("plus", 3, 3, _job_id="only-once"), None)
        bad = await pools[0].enqueue_job("broken")
        aborted = await pools[0].enqueue_job("plus", 9, 9, _defer_by=60)
        worker = Worker(
            [func(plus, name="plus"), func(once, name="once"), func(broken, name="broken")],
            redis_pool=pools[1],
            cron_jobs=[cron(every_second, second=set(range(60)))],
            poll_delay=0.05,
            allow_abort_jobs=True,
            handle_signals=False,
            max_tries=3,
            health_check_interval=1,
        )
        working = asyncio.ensure_future(worker.main())
        equal([await job.result(timeout=20, poll_delay=0.05) for job in jobs], [3, "done", 4, 6])
        try:
            await bad.result(timeout=20, poll_delay=0.05)
            raise AssertionError("the job fails")
        except ValueError as error:
            equal(str(error), "always")
        equal(await aborted.abort(timeout=20, poll_delay=0.05), True)
        equal(await jobs[0].status(), JobStatus.complete)
        done = [it.function for it in await pools[2].all_job_results() if not it.function.startswith("cron:")]
        equal(sorted(done), ["broken", "once", "plus", "plus", "plus", "plus"])
        while int(await pools[2].get("arq-cron") or 0) < 2:
            await asyncio.sleep(0.1)
        equal(await pools[2].exists("arq:queue:health-check"), 1)
        # It cancels a running cron job.
        with contextlib.suppress(asyncio.CancelledError):
            await worker.close()
        working.cancel()

    asyncio.run(asyncio.wait_for(run(), 30))


def dramatiq():
    import dramatiq
    from dramatiq import group, pipeline
    from dramatiq.brokers.redis import RedisBroker
    from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
    from dramatiq.rate_limits.backends import RedisBackend as Limits
    from dramatiq.results import Results
    from dramatiq.results.backends import RedisBackend

    def broker_at(index):
        broker = RedisBroker(url=URLS[index])
        broker.add_middleware(Results(backend=RedisBackend(url=URLS[2])))
        calls = []

        @dramatiq.actor(broker=broker, store_results=True, actor_name="plus")
        def plus(a, b):
            calls.append(a)
            return a + b

        @dramatiq.actor(broker=broker, store_results=True, actor_name="once", min_backoff=100, max_backoff=100)
        def once():
            calls.append("once")
            if calls.count("once") == 1:
                raise ValueError("the first time")
            return "done"

        return broker, plus, once, calls

    producer, plus, once, _ = broker_at(0)
    consumer, _, _, calls = broker_at(1)
    messages = [plus.send(1, 1), once.send(), plus.send_with_options(args=(3, 3), delay=1000)]
    chain = pipeline([plus.message(1, 2), plus.message(4)], broker=producer).run()
    parts = group([plus.message(number, 0) for number in range(5)], broker=producer).run()
    backend = RedisBackend(url=URLS[2])
    worker = dramatiq.Worker(consumer, worker_threads=2, worker_timeout=100)
    worker.start()
    try:
        found = [it.get_result(backend=backend, block=True, timeout=20000) for it in messages]
        equal(found, [2, "done", 6])
        equal(list(chain.get_results(block=True, timeout=20000)), [3, 7])
        equal(sorted(parts.get_results(block=True, timeout=20000)), [0, 1, 2, 3, 4])
        producer.join("default", timeout=20000)
    finally:
        worker.stop()
    equal(producer.do_qsize("default"), 0)

    limit = ConcurrentRateLimiter(Limits(url=URLS[0]), "one-at-a-time", limit=1)
    same = ConcurrentRateLimiter(Limits(url=URLS[1]), "one-at-a-time", limit=1)
    with limit.acquire(), same.acquire(raise_on_failure=False) as second:
        equal(second, False)
    window = WindowRateLimiter(Limits(url=URLS[2]), "window", limit=2, window=5)
    for expected in [True, True, False]:
        with window.acquire(raise_on_failure=False) as allowed:
            equal(allowed, expected)


def redis_lock():
    import redis_lock

    first = redis_lock.Lock(at(0), "door", expire=2, auto_renewal=True)
    second = redis_lock.Lock(at(1), "door", expire=10)
    equal(first.acquire(), True)
    equal(second.acquire(blocking=False), False)
    equal(second.acquire(timeout=1), False)
    time.sleep(2.2)
    equal(redis_lock.Lock(at(2), "door").locked(), True)
    got = []
    waiting = threading.Thread(target=lambda: got.append(second.acquire(timeout=10)))
    waiting.start()
    time.sleep(0.2)
    first.release()
    waiting.join()
    equal(got, [True])
    second.extend(5)
    equal(at(2).pttl("lock:door") > 2000, True)
    try:
        first.release()
        raise AssertionError("it was not its own")
    except redis_lock.NotAcquired:
        pass
    third = redis_lock.Lock(at(2), "door")
    third.reset()
    equal(third.acquire(blocking=False), True)
    third.release()
    redis_lock.reset_all(at(0))
    equal(at(1).exists("lock:door"), 0)


def channels_redis():
    from channels.exceptions import ChannelFull
    from channels_redis.core import RedisChannelLayer
    from channels_redis.pubsub import RedisPubSubChannelLayer

    async def run():
        first, second = (RedisChannelLayer(hosts=[url], capacity=3) for url in URLS[:2])
        name = await second.new_channel()
        await first.send(name, {"type": "hello", "number": 1})
        equal(await second.receive(name), {"type": "hello", "number": 1})
        waiting = asyncio.ensure_future(second.receive("plain"))
        await asyncio.sleep(0.1)
        await first.send("plain", {"type": "later"})
        equal(await asyncio.wait_for(waiting, 10), {"type": "later"})
        await second.group_add("room", name)
        await first.group_send("room", {"type": "all"})
        equal(await second.receive(name), {"type": "all"})
        await second.group_discard("room", name)
        for _ in range(3):
            await first.send("full", {"type": "x"})
        try:
            await first.send("full", {"type": "x"})
            raise AssertionError("the channel is full")
        except ChannelFull:
            pass
        await first.flush()
        here, there = RedisPubSubChannelLayer(hosts=[URLS[0]]), RedisPubSubChannelLayer(hosts=[URLS[2]])
        name = await there.new_channel()
        await there.group_add("room", name)
        await here.group_send("room", {"type": "all", "number": 2})
        equal(await asyncio.wait_for(there.receive(name), 10), {"type": "all", "number": 2})
        await here.flush()
        await there.flush()

    asyncio.run(asyncio.wait_for(run(), 30))


def limits():
    from limits import RateLimitItemPerSecond
    from limits.storage import storage_from_string
    from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

    for kind in [MovingWindowRateLimiter, FixedWindowRateLimiter, SlidingWindowCounterRateLimiter]:
        limiters = [kind(storage_from_string(url)) for url in URLS]
        few = RateLimitItemPerSecond(3, 60)
        equal([limiters[index].hit(few, kind.__name__) for index in [0, 1, 2, 0]], [True, True, True, False])
        equal(limiters[1].test(few, kind.__name__), False)
        equal(limiters[2].get_window_stats(few, kind.__name__).remaining, 0)
        limiters[0].clear(few, kind.__name__)
        equal(limiters[1].hit(few, kind.__name__, cost=2), True)
    short = RateLimitItemPerSecond(1, 1)
    moving = MovingWindowRateLimiter(storage_from_string(URLS[0]))
    equal([moving.hit(short, "short"), moving.hit(short, "short")], [True, False])
    until(lambda: moving.hit(short, "short"), "the window moves")


if __name__ == "__main__":
    LIBRARIES = [rq, celery, huey, arq, dramatiq, redis_lock, channels_redis, limits]
    {library.__name__: library for library in LIBRARIES}[sys.argv[1]]()
