// BullMQ while nodes are killed: `add PORT FIRST COUNT`, `work PORT` until it is killed, `left PORT` prints where
// jobs are.
"use strict";
const { appendFileSync, statSync } = require("node:fs");
const { setTimeout: pause } = require("node:timers/promises");
const { Queue, Worker } = require("bullmq");

// The ledger: lines of equal length, as in `ledger.py`.
const { ADDED, RAN } = process.env;
const digits = (number) => String(number).padStart(6, "0");

const [what, port, ...numbers] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port) };

async function add(first, count) {
  // A command that waits for a connection fails instead of being queued, so that an uncertain outcome is visible.
  const queue = new Queue("jobs", { connection: { ...connection, maxRetriesPerRequest: 0 } });
  queue.on("error", () => {});
  for (let number = first; number < first + count; number++) {
    let [isSure, isAdded] = [true, false];
    while (!isAdded) {
      try {
        // One id is one job, however often it is added.
        await queue.add("run", { number }, { jobId: `job-${number}` });
        isAdded = true;
      } catch (error) {
        console.log(`${number}: ${error.message}`);
        isSure = false;
        await pause(200);
      }
    }
    appendFileSync(ADDED, `${digits(number)} ${isSure ? "sure.." : "unsure"}\n`);
    while (statSync(ADDED).size / 14 > statSync(RAN).size / 7 + 100) await pause(20);
  }
  await queue.close();
}

function work() {
  const run = async (job) => appendFileSync(RAN, `${digits(job.data.number)}\n`);
  const worker = new Worker("jobs", run, {
    connection: {
      ...connection,
      maxRetriesPerRequest: null,
      // Handles an uncertain outcome as if the connection had broken: connects and sends the command again. BullMQ
      // expects a broken connection but not this error, and would count a job as failed that has run.
      reconnectOnError: (error) => (error.message.startsWith("UNKNOWN") ? 2 : false),
    },
    concurrency: 4,
    // A job whose lock expires is run again; the usual values are 30 seconds, and once.
    lockDuration: 3000,
    stalledInterval: 3000,
    maxStalledCount: 100,
  });
  worker.on("error", (error) => console.log(`the worker: ${error.message}`));
}

async function left() {
  const queue = new Queue("jobs", { connection });
  const counts = await queue.getJobCounts("wait", "active", "delayed", "failed", "completed");
  const started = {};
  // In pages: the script that reads them is stopped when it costs too much.
  const PAGE = 500;
  for (let at = 0; at < counts.completed; at += PAGE) {
    for (const job of await queue.getCompleted(at, at + PAGE - 1)) started[job.data.number] = job.attemptsStarted;
  }
  console.log(JSON.stringify({ ...counts, started }));
  await queue.close();
}

({ add, work, left })[what](...numbers.map(Number));
