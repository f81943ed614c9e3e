// An application that uses ioredis with the library's usual settings at the node with the given port, in two keyspaces,
// until its input ends. Prints a report as JSON.
const Redis = require("ioredis").default ?? require("ioredis");

const client = new Redis(Number(process.argv[2]));
client.on("error", () => {}); // ioredis requires this; errors that it cannot handle are reported by the commands.
const prefixes = process.argv[3].split(",");
let stopped = false;
process.stdin.resume();
process.stdin.on("end", () => (stopped = true));

const report = { operations: 0, unknown: 0, errors: [], longest_pause_ms: 0 };

// Returns the reply, or undefined if the outcome is unknown.
async function ask(run) {
  const begun = performance.now();
  try {
    const answer = await run();
    report.operations += 1;
    return answer;
  } catch (error) {
    if (!error.message.startsWith("UNKNOWN")) throw error;
    report.unknown += 1;
  } finally {
    report.longest_pause_ms = Math.max(report.longest_pause_ms, Math.round(performance.now() - begun));
  }
}

async function one(prefix, number, added) {
  // In one turn of the event loop, and so in one pipeline: ioredis does not wait between them.
  const [set, seen, count] = await Promise.all([
    ask(() => client.set(prefix + "key", number)),
    ask(() => client.get(prefix + "key")),
    ask(() => client.incr(prefix + "counter")),
  ]);
  if (set !== undefined && seen !== undefined && seen !== String(number)) {
    throw new Error(`${prefix}key is ${seen} and not ${number}`);
  }
  if (count !== undefined) {
    if (added.length && count <= added.at(-1)) throw new Error(`${prefix}counter goes back: ${count}`);
    added.push(count);
  }
}

(async () => {
  const counters = {};
  for (const prefix of prefixes) {
    counters[prefix] = [];
    await client.set(prefix + "counter", 0);
  }
  console.log("ready");
  for (let number = 1; !stopped; number++) {
    for (const prefix of prefixes) {
      await one(prefix, number, counters[prefix]).catch((error) => report.errors.push(String(error)));
    }
  }
  for (const prefix of prefixes) {
    const [done, counter] = [counters[prefix].length, Number(await client.get(prefix + "counter"))];
    if (!(done <= counter && counter <= done + report.unknown)) {
      report.errors.push(`${prefix}counter is ${counter} after ${done} additions`);
    }
  }
  console.log(JSON.stringify(report));
  client.disconnect();
})();
