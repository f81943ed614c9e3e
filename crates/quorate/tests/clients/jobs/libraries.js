// The normal use of job queues and brokers for Node, each in a few seconds.
//
// `PORTS='1 2 3' node libraries.js LIBRARY`: jobs are added at the node at the first port, processed at the second,
// and their results read at the third.
"use strict";
const assert = require("node:assert/strict");
const { setTimeout: pause } = require("node:timers/promises");

const ports = process.env.PORTS.split(" ").map(Number);
const at = (index) => ({ host: "127.0.0.1", port: ports[index] });

async function until(holds, what) {
  for (const by = Date.now() + 20000; !(await holds()); await pause(20)) {
    if (Date.now() > by) throw new Error(`waited in vain: ${what}`);
  }
}

async function bullmq() {
  const { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } = require("bullmq");
  const queue = new Queue("work", { connection: at(0) });
  const events = new QueueEvents("work", { connection: at(2) });
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
  const order = [];
  // Before a worker exists: it takes the most urgent job first.
  const [slow, urgent] = [
    await queue.add("add", { a: 1, b: 1 }, { priority: 9 }),
    await queue.add("add", { a: 2, b: 2 }, { priority: 1 }),
  ];
  const retried = await queue.add("once", {}, { attempts: 3, backoff: { type: "fixed", delay: 100 } });
  const failing = await queue.add("fail", {}, { attempts: 3 });
  const later = await queue.add("add", { a: 3, b: 3 }, { delay: 500 });
  const many = await queue.addBulk([...Array(20).keys()].map((a) => ({ name: "add", data: { a, b: 1 } })));
  const twice = await queue.add("add", { a: 5, b: 5 }, { jobId: "only-once" });
  await queue.add("add", { a: 5, b: 5 }, { jobId: "only-once" });
  assert.equal((await queue.getJobCounts("wait", "prioritized", "delayed")).wait, 23);
  const removed = await queue.add("add", { a: 7, b: 7 });
  await removed.remove();

  const worker = new Worker(
    "work",
    async (job) => {
      order.push(job.id);
      await job.updateProgress(50);
      await job.log("at work");
      if (job.name === "fail") throw new UnrecoverableError("always");
      if (job.name === "once" && job.attemptsMade === 0) throw new Error("the first time");
      return job.name === "once" ? "done" : job.data.a + job.data.b;
    },
    { connection: at(1), concurrency: 1 },
  );
  const done = (job) => job.waitUntilFinished(events, 20000);
  assert.deepEqual(await Promise.all([slow, urgent, retried, later, ...many].map(done)), [
    2,
    4,
    "done",
    6,
    ...[...Array(20).keys()].map((a) => a + 1),
  ]);
  await assert.rejects(done(failing), /always/);
  assert.equal(await done(twice), 10);
  assert(order.indexOf(urgent.id) < order.indexOf(slow.id));
  assert(!order.includes(removed.id));
  assert.equal(order.filter((id) => id === "only-once").length, 1);
  const there = new Queue("work", { connection: at(2) });
  assert.equal((await there.getFailed()).length, 1);
  assert.equal(await there.getCompletedCount(), 25);
  assert.deepEqual((await there.getJobLogs(slow.id)).logs, ["at work"]);
  await (await there.getJob(failing.id)).retry();
  await until(async () => (await there.getJob(failing.id)).attemptsMade === 2, "it is tried again");

  const flow = new FlowProducer({ connection: at(0) });
  const child = (a) => ({ name: "add", queueName: "work", data: { a, b: 0 } });
  const tree = await flow.add({ name: "add", queueName: "work", data: { a: 1, b: 1 }, children: [child(1), child(2)] });
  await done(tree.job);
  assert.deepEqual(Object.values(await tree.job.getChildrenValues()).sort(), [1, 2]);
  const before = order.length;
  await there.upsertJobScheduler("often", { every: 100 }, { name: "add", data: { a: 0, b: 0 } });
  await until(() => order.length >= before + 3, "it is added again and again");
  await there.removeJobScheduler("often");
  await there.pause();
  const held = await queue.add("add", { a: 1, b: 2 });
  assert(await there.isPaused());
  await pause(200);
  assert(!order.includes(held.id));
  await there.resume();
  assert.equal(await done(held), 3);
  await queue.add("add", { a: 1, b: 2 }, { removeOnComplete: true });
  const counts = async () => Object.values(await there.getJobCounts("wait", "active", "delayed"));
  await until(async () => (await counts()).every((it) => it === 0), "all are done");
  assert((await there.clean(0, 100, "completed")).length > 25);
  const limited = new Worker("limited", async () => {}, { connection: at(1), limiter: { max: 2, duration: 400 } });
  const limitedQueue = new Queue("limited", { connection: at(0) });
  const limitedEvents = new QueueEvents("limited", { connection: at(2) });
  await limitedEvents.waitUntilReady();
  const begun = Date.now();
  const jobs = await limitedQueue.addBulk([1, 2, 3, 4, 5].map((number) => ({ name: "x", data: { number } })));
  await Promise.all(jobs.map((job) => job.waitUntilFinished(limitedEvents, 20000)));
  assert(Date.now() - begun > 700, "two in 400 ms");
  await worker.close();
  await limited.close();
  await there.obliterate({ force: true });
  assert.equal(await queue.count(), 0);
  await Promise.all([queue, there, events, flow, limitedQueue, limitedEvents].map((it) => it.close()));
}

async function beeQueue() {
  const Queue = require("bee-queue");
  const made = (index, isWorker) =>
    new Queue("bees", { redis: at(index), isWorker, activateDelayedJobs: true, sendEvents: true, getEvents: true });
  const [producer, worker, reader] = [made(0, false), made(1, true), made(2, false)];
  await Promise.all([producer.ready(), worker.ready(), reader.ready()]);
  let tries = 0;
  const result = (job) =>
    new Promise((resolve, reject) => job.on("succeeded", resolve).on("failed", reject));
  const jobs = [
    producer.createJob({ a: 1, b: 1 }),
    producer.createJob({ once: true }).retries(2).backoff("fixed", 100),
    producer.createJob({ a: 2, b: 2 }).delayUntil(Date.now() + 500),
  ];
  const failing = producer.createJob({ fail: true });
  const results = jobs.map(result);
  const failed = assert.rejects(result(failing), /always/);
  await producer.saveAll(jobs.slice(0, 1));
  for (const job of [...jobs.slice(1), failing]) await job.save();
  const stalling = await worker.checkStalledJobs(500);
  assert.equal(stalling, 0);
  worker.process(2, async (job) => {
    if (job.data.fail) throw new Error("always");
    if (job.data.once && ++tries === 1) throw new Error("the first time");
    job.reportProgress({ page: 1 });
    return job.data.once ? "done" : job.data.a + job.data.b;
  });
  assert.deepEqual(await Promise.all(results), [2, "done", 4]);
  await failed;
  const health = await reader.checkHealth();
  assert.deepEqual([health.succeeded, health.failed, health.waiting], [3, 1, 0]);
  assert.equal((await reader.getJob(jobs[0].id)).status, "succeeded");
  assert.equal((await reader.getJobs("failed", { size: 10 })).length, 1);
  await reader.removeJob(failing.id);
  await worker.close(5000);
  await reader.destroy();
  await Promise.all([producer.close(), reader.close()]);
}

async function bottleneck() {
  const Bottleneck = require("bottleneck");
  const limiter = (index) =>
    new Bottleneck({
      id: "limits",
      datastore: "ioredis",
      clientOptions: at(index),
      clearDatastore: index === 0,
      maxConcurrent: 2,
      minTime: 50,
      reservoir: 10,
      reservoirRefreshAmount: 10,
      reservoirRefreshInterval: 1000,
      heartbeatInterval: 250,
    });
  const first = limiter(0);
  await first.ready();
  const second = limiter(1);
  await second.ready();
  let [now, most, done] = [0, 0, 0];
  const begun = Date.now();
  const job = async () => {
    most = Math.max(most, ++now);
    await pause(100);
    now--;
    return ++done;
  };
  await Promise.all([...Array(12).keys()].map((number) => [first, second][number % 2].schedule(job)));
  assert.equal(done, 12);
  assert.equal(most, 2, "at both nodes together");
  assert(Date.now() - begun > 900, "ten in a second");
  const group = new Bottleneck.Group({ id: "group", datastore: "ioredis", clientOptions: at(2), maxConcurrent: 1 });
  assert.equal(await group.key("a").schedule(async () => "a"), "a");
  assert.deepEqual(await group.clusterKeys(), ["a"]);
  assert(await group.deleteKey("a"));
  await Promise.all([first.disconnect(), second.disconnect(), group.disconnect()]);
}

async function socketIo() {
  const { Server } = require("socket.io");
  const { io: connect } = require("socket.io-client");
  const { createAdapter } = require("@socket.io/redis-streams-adapter");
  const { Redis } = require("ioredis");
  const { createClient } = require("redis");
  const clients = [new Redis(ports[0]), createClient({ url: `redis://127.0.0.1:${ports[1]}` })];
  await clients[1].connect();
  const options = (client) => ({ adapter: createAdapter(client, { blockTimeInMs: 200 }), connectionStateRecovery: {} });
  const servers = clients.map((client) => new Server(0, options(client)));
  const sockets = servers.map((server) => connect(`http://127.0.0.1:${server.httpServer.address().port}`));
  servers.forEach((server) => server.on("connection", (socket) => socket.join("room")));
  await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.on("connect", resolve))));
  await until(async () => (await servers[0].fetchSockets()).length === 2, "each knows the sockets of both");
  const heard = (socket, event) => new Promise((resolve) => socket.once(event, resolve));
  for (const from of servers) {
    const all = sockets.map((socket) => heard(socket, "hello"));
    from.to("room").emit("hello", "all");
    assert.deepEqual(await Promise.all(all), ["all", "all"]);
  }
  servers[1].on("ping", (answer) => answer("pong"));
  assert.deepEqual(await servers[0].serverSideEmitWithAck("ping"), ["pong"]);
  sockets[1].on("ask", (answer) => answer(1));
  sockets[0].on("ask", (answer) => answer(1));
  assert.deepEqual(await servers[0].timeout(5000).emitWithAck("ask"), [1, 1]);
  servers[0].socketsLeave("room");
  await until(async () => (await servers[1].in("room").fetchSockets()).length === 0, "they leave");
  // A client whose connection broke gets the messages that it missed, from the other server.
  const [left, right] = sockets;
  const missed = heard(left, "missed");
  servers[1].emit("before");
  await heard(left, "before").catch(() => {});
  await pause(100);
  left.io.engine.close();
  servers[1].emit("missed", "kept");
  assert.equal(await missed, "kept");
  assert(left.recovered);
  right.close();
  left.close();
  for (const server of servers) await server.close();
  clients[0].disconnect();
  await clients[1].close();
}

const libraries = { bullmq, "bee-queue": beeQueue, bottleneck, "socket.io": socketIo };
libraries[process.argv[2]]().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
