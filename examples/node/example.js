// Quorate with ioredis: go on at another node, write once, hold a lock, take a job.

const { randomUUID } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');
const { Redis } = require('ioredis');

const nodes = process.argv.length > 2 ? process.argv.slice(2) : ['127.0.0.1:7000', '127.0.0.1:7001', '127.0.0.1:7002'];

function check(isSo, what) {
  if (!isSo) throw new Error(what);
}

/** A connection to one of several nodes: to the next one when it breaks. */
class Quorate {
  constructor(nodes) {
    this.nodes = nodes;
    this.connect();
  }

  connect() {
    const [host, port] = this.nodes[0].split(':');
    // A node answers within command_timeout_ms (5 s). A client that waits for less makes definite answers unknown.
    // What the client would repeat by itself could be done twice.
    this.client = new Redis({
      host, port: Number(port), connectTimeout: 2000, commandTimeout: 15000,
      retryStrategy: null, maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false,
    });
    this.client.on('error', () => {}); // Each command reports it.
  }

  /** Sends a command. If the connection breaks, its outcome is unknown. */
  async once(...words) {
    try {
      return await this.client.call(...words);
    } catch (error) {
      if (error.name !== 'ReplyError') {
        this.client.disconnect();
        this.nodes = [...this.nodes.slice(1), this.nodes[0]];
        this.connect();
      }
      throw error;
    }
  }

  /** Sends a command that may be sent twice, until its outcome is known. */
  repeat(...words) {
    return this.untilKnown(() => this.once(...words));
  }

  /** Repeats a step until its outcome is known. */
  async untilKnown(step) {
    const giveUp = Date.now() + 60_000;
    for (;;) {
      try {
        return await step();
      } catch (error) {
        // UNKNOWN: it may have happened. TRYAGAIN and CLUSTERDOWN: it did not, and it may soon.
        if (error.name === 'ReplyError' && !/^(UNKNOWN|TRYAGAIN|CLUSTERDOWN)/.test(error.message)) throw error;
        if (Date.now() > giveUp) throw new Error('no node has answered', { cause: error });
        await sleep(100);
      }
    }
  }

  /** Moves a job to the worker's own list. One that is there already was moved by a command of unknown outcome. */
  async take(queue, own) {
    for (;;) {
      const job = await this.untilKnown(async () =>
        (await this.once('LINDEX', own, -1)) ?? (await this.once('BLMOVE', queue, own, 'RIGHT', 'LEFT', 10)));
      if (job !== null) return job; // Else there was none for ten seconds.
    }
  }
}

async function main() {
  const quorate = new Quorate(nodes);
  const me = `worker-${randomUUID()}`;

  // Write once. Whoever sets the order finds its own value there when it repeats.
  const order = `order:${randomUUID()}`;
  const before = await quorate.repeat('SET', order, me, 'NX', 'GET');
  check(before === null || before === me, `the order is ${before}'s`);
  check((await quorate.repeat('GET', order)) === me, 'the order is not ours');
  console.log('the order is ours');

  // A lock. To ask again with the same owner gives the same token.
  const tag = `{job:${randomUUID()}}`;
  const [lock, state] = [`${tag}:lock`, `${tag}:state`];
  const token = await quorate.repeat('LOCK', lock, me, 'PX', 10000, 'WAIT', 60000);
  await quorate.repeat('SET', state, 'begun', 'FENCE', lock, token);
  console.log('written under the lock:', await quorate.repeat('GET', state));
  await quorate.repeat('UNLOCK', lock, token);
  const newer = await quorate.repeat('LOCK', lock, 'another', 'PX', 10000, 'WAIT', 60000);
  const refusal = await quorate.repeat('SET', state, 'too late', 'FENCE', lock, token).catch((error) => error);
  check(refusal instanceof Error, 'a write with an old token was not refused');
  console.log('a late write is refused:', refusal.message.split(' ')[0]);
  await quorate.repeat('UNLOCK', lock, newer);

  // A queue. A job may be in it twice, since its LPUSH may have been repeated: what it does must bear that.
  const queue = `{queue:${me}}`;
  const own = `${queue}:own`;
  await quorate.repeat('LPUSH', queue, 'job 1');
  const job = await quorate.take(queue, own);
  console.log('taken:', job);
  await quorate.repeat('LREM', own, 0, job);
  await quorate.repeat('DEL', order, state, queue, own);
  console.log('done');
  quorate.client.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
