// A program that takes locks as a story says: one order per line of stdin, one answer per line of stdout.
// `crates/cli/tests/interop/faces/README.md` has both.
import { createInterface } from 'node:readline';
import { Client, LeaseLost, Refused, StoreUnavailable, WaitTimeout } from '../index.js';

const answer = (as, is, more = {}) => process.stdout.write(`${JSON.stringify({ as, is, ...more })}\n`);

const KINDS = [[WaitTimeout, 'timeout'], [LeaseLost, 'lost'], [StoreUnavailable, 'unavailable'], [Refused, 'refused']];
const kindOf = (error) => KINDS.find(([kind]) => error instanceof kind)?.[1] ?? (error.name === 'AbortError' ? 'cancelled' : `${error}`);

const client = await Client.connect();
const leases = new Map();
const cancels = new Map();

function lockOf({ lock, also, mode, slots, ttl }) {
  const options = { ttl };
  if (also) return client.all([lock, ...also], options);
  if (slots !== undefined) return client.semaphore(lock, slots, options);
  if (mode !== undefined) return client.rwLock(lock, options)[mode]();
  return client.mutex(lock, options);
}

const orders = {
  async acquire(as, order) {
    const lock = lockOf(order);
    const cancel = new AbortController();
    cancels.set(as, cancel);
    let isWaiting = false;
    const onWait = () => {
      if (!isWaiting) answer(as, 'waiting');
      isWaiting = true;
    };
    const { wait } = order;
    const lease = wait === 0 ? await lock.tryAcquire() : await lock.acquire({ wait, signal: cancel.signal, onWait });
    if (lease === null) return answer(as, 'busy');
    leases.set(as, lease);
    lease.signal.addEventListener('abort', () => answer(as, 'lost'));
    const { fence, slot } = lease;
    answer(as, 'held', { fence, slot });
  },
  cancel: (as) => cancels.get(as).abort(),
  async release(as) {
    await leases.get(as).release();
    answer(as, 'released');
  },
  async check(as) {
    const { validFor } = await leases.get(as).check();
    answer(as, validFor > 0 ? 'valid' : 'over');
  },
};

process.on('warning', (warning) => {
  throw warning;
});

const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  const { do: what, as, ...order } = JSON.parse(line);
  if (!orders[what]) return answer(as, 'cannot');
  Promise.resolve(orders[what](as, order)).catch((error) => answer(as, kindOf(error)));
});
lines.on('close', () => client.close());
console.log(`ready ${process.version}`);
