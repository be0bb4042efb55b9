// Compiled, not run: what a program in TypeScript may write, and what it may not.
import { Client, LeaseLost, LeaseholdError, type Lease } from 'leasehold-redis';

export async function program(signal: AbortSignal): Promise<number> {
  await using client = await Client.connect('redis://127.0.0.1', { ttl: 30_000 });
  await using lease = await client.mutex('report', { note: 'nightly' }).acquire({ wait: 5_000, signal, onWait: ({ ahead }) => ahead });
  const tried: Lease<number | null> | null = await client.rwLock('config').read().tryAcquire();
  // @ts-expect-error: a lock that is busy has no fence.
  tried.fence;
  // @ts-expect-error: a fence is read-only.
  lease.fence = 1;
  // @ts-expect-error: it takes at least one lock.
  client.all([]);
  // @ts-expect-error: a client is connected, not made.
  new Client();
  // @ts-expect-error: a reader on a quorum has no fence.
  await client.rwLock('config').read().use((reader) => reader.fence + 1);
  const { validFor } = await lease.check();
  const text: string = await client.semaphore('licence', 4).use(async ({ slot }) => `slot ${slot}`);
  if (lease.signal.aborted && lease.signal.reason instanceof LeaseLost) return text.length;
  return validFor;
}

export const again = (error: unknown): boolean => error instanceof LeaseholdError && error.mayRetry && !error.held;
