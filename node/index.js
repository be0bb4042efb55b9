// Locks for Redis and Valkey. A client has one child process, `leasehold hold --many`, which holds and renews all its locks.
import { Child } from './child.js';
import { CommandFailed, LeaseLost, Refused, errorOf } from './errors.js';

export { CommandFailed, LeaseLost, LeaseholdError, Refused, StoreUnavailable, WaitTimeout } from './errors.js';

/** How long the child may take to answer when this program has not asked in time. */
const ANSWER = 2_000;

/** How long a release may take. The command gives up earlier, unless it is stopped. */
const RELEASE = 5_000;

/** The most bytes of a request: the command reads lines of 64 KiB. */
const LONGEST = 60_000;

/** A positive time as the command reads it. */
function millis(time, what) {
  if (typeof time !== 'number' || !(time > 0) || time > Number.MAX_SAFE_INTEGER) throw new RangeError(`${what} is a number of milliseconds above 0`);
  return Math.ceil(time);
}

const now = () => performance.now();

/** A connection to a store, and the locks that it holds. */
export class Client {
  #settings;
  #child = null;
  #isClosed = false;

  constructor(settings) {
    this.#settings = settings;
  }

  /** Connects to `url`, by default that of LEASEHOLD_URL or of the command's configuration. */
  static async connect(url, { command, ttl } = {}) {
    const client = new Client({ command, url, ttl: ttl === undefined ? undefined : millis(ttl, 'ttl') });
    await client.child();
    return client;
  }

  /** A lock with one holder at a time. */
  mutex(name, options) {
    return new Lock(this, { lock: name }, options);
  }

  /** A lock with many readers or one writer. */
  rwLock(name, options) {
    return {
      read: () => new Lock(this, { lock: name, mode: 'shared' }, options),
      write: () => new Lock(this, { lock: name }, options),
    };
  }

  /** A lock with `slots` holders at a time. */
  semaphore(name, slots, options) {
    return new Lock(this, { lock: name, mode: `slot/${slots}` }, options);
  }

  /** Several mutexes, all or none. */
  all(names, options) {
    if (!Array.isArray(names)) throw new TypeError('the names of the locks are a list');
    const [first, ...also] = names;
    return new Lock(this, { lock: first, also }, options);
  }

  /** Releases all locks. */
  async close() {
    this.#isClosed = true;
    await this.#child?.close();
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }

  /** The running child. After its end the next request starts another one. */
  async child() {
    if (this.#isClosed) throw new CommandFailed('the client is closed');
    if (this.#child === null) {
      const child = new Child({ ...this.#settings, onEnd: () => this.#child === child && (this.#child = null) });
      this.#child = child;
    }
    const child = this.#child;
    await child.ready;
    return child;
  }
}

/** A lock to acquire, as often as wanted. */
class Lock {
  #client;
  #request;

  constructor(client, request, { ttl, note } = {}) {
    this.#client = client;
    this.#request = { ...request, ttl_ms: ttl === undefined ? undefined : millis(ttl, 'ttl'), note };
    // The command would not know whose answer an error is.
    const texts = [request.lock, ...(request.also ?? []), request.mode ?? '', note ?? ''];
    if (!texts.every((text) => typeof text === 'string')) throw new TypeError('the names of locks and notes are strings');
    if (!texts.every((text) => text.isWellFormed())) throw new Refused('a name or a note has half of a surrogate pair', { code: 64 });
    if (Buffer.byteLength(JSON.stringify(this.#request)) > LONGEST) throw new Refused('the names of the locks are too long', { code: 64 });
  }

  /** Waits for the lock, at most `wait` milliseconds, until `signal` aborts. */
  async acquire({ wait, signal, onWait } = {}) {
    const end = await this.#ask(wait === undefined ? undefined : millis(wait, 'wait'), signal, onWait);
    if (end instanceof Lease) return end;
    throw errorOf(end);
  }

  /** The lease, or null if the lock is busy. */
  async tryAcquire({ signal } = {}) {
    const end = await this.#ask(0, signal);
    if (end instanceof Lease) return end;
    if (end.event === 'busy') return null;
    throw errorOf(end);
  }

  /** Runs `work(lease)` under the lock and releases it. Rejects with LeaseLost if the lease did not last until then. */
  async use(work, options) {
    const lease = await this.acquire(options);
    let result;
    try {
      result = await work(lease);
    } catch (error) {
      await lease.release().catch(() => {}); // The error of the work says more.
      throw error;
    }
    await lease.release();
    return result;
  }

  #ask(wait, signal, onWait) {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const begun = now();
      let [child, id, lease, isOver] = [null, null, null, false];
      const settle = (how, value) => {
        isOver = true;
        signal?.removeEventListener('abort', cancel);
        how(value);
      };
      const giveUp = (error) => {
        // If the lock arrives now, the child lets it go, and no caller has the lease.
        child?.say('release', id);
        settle(reject, error);
      };
      const cancel = () => giveUp(signal.reason);
      const heard = (event) => {
        if (event.event === 'waiting') {
          try {
            onWait?.(event);
          } catch (error) {
            giveUp(error);
          }
        } else if (event.event === 'lost') settle(reject, new LeaseLost(event.lock, event.cause));
        else settle(resolve, event.event === 'acquired' ? lease : event);
      };
      const ask = (running) => {
        if (isOver) return;
        child = running;
        const asked = now();
        // A child that had to be started took some of the time.
        const wait_ms = wait && Math.max(1, Math.ceil(wait - (asked - begun)));
        id = child.open({ ...this.#request, wait_ms }, {
          heard: (event) => {
            if (lease) return lease.heard(event);
            if (isOver) return;
            if (event.event === 'acquired') lease = new Lease(child, id, event, asked);
            heard(event);
          },
          failed: (error) => (lease ? lease.failed(error) : settle(reject, error)),
        });
      };
      signal?.addEventListener('abort', cancel, { once: true });
      this.#client.child().then(ask).catch((error) => settle(reject, error));
    });
  }
}

/** A held lock. The child renews it until the release. */
class Lease {
  #child;
  #id;
  #abort = new AbortController();
  #deadline;
  #checks = [];
  #release = null;
  #timer;
  #due;
  #ends = null;
  #isOver = false;

  constructor(child, id, { lock, fence, mode, slot, locks, waited_ms, valid_for_ms }, asked) {
    this.#child = child;
    this.#id = id;
    /** The name of the lock. */
    this.lock = lock;
    /** The fence, a number below 2^53; of a slot, that of the slot. */
    this.fence = fence;
    /** `exclusive`, `shared`, or `slot/4`. */
    this.mode = mode;
    /** The number of the slot, or null. */
    this.slot = slot;
    /** All locks that are held with this one, or null. */
    this.locks = locks;
    // The child counted from its receipt of the request, which came later. So the deadline is no later than the child's.
    this.#deadline = asked + waited_ms + valid_for_ms;
    this.#watch();
  }

  /** Aborts when the lease is lost. The reason is the LeaseLost. */
  get signal() {
    return this.#abort.signal;
  }

  /** Asks the child for the state of the lease. Rejects with LeaseLost after a loss. */
  async check() {
    this.signal.throwIfAborted();
    if (this.#release) throw new Refused(`the lease on "${this.lock}" was released`, { held: true });
    const { doubtful, valid_for_ms } = await new Promise((resolve, reject) => this.#ask({ resolve, reject }));
    return { doubtful, validFor: valid_for_ms };
  }

  /** Gives the lock back, once. Rejects with LeaseLost if the lease had ended before. */
  release() {
    this.#release ??= new Promise((resolve, reject) => {
      if (this.signal.aborted) return reject(this.signal.reason);
      this.#ends = { resolve, reject };
      this.#child.say('release', this.#id);
      this.#deadline = Math.max(this.#deadline, now() + RELEASE);
      this.#watch();
    });
    return this.#release;
  }

  [Symbol.asyncDispose]() {
    return this.release();
  }

  /** An event from the child. */
  heard(event) {
    if (this.#isOver) return;
    if (event.event === 'state') this.#checked(event);
    else if (event.event === 'lost') this.#lost(new LeaseLost(event.lock, event.cause));
    else if (event.event === 'released' && this.#release) this.#end();
    else if (event.event === 'released') this.#lost(new LeaseLost(this.lock, 'the client was closed, or its command was asked to end'));
  }

  /** The child has ended. */
  failed(error) {
    if (!this.#isOver) this.#lost(new LeaseLost(this.lock, error.message));
  }

  #ask(check = {}) {
    // A look that comes late shows a pause of this program, in which no answer was heard. The child went on renewing.
    const pause = Math.min(now() - this.#due, ANSWER);
    this.#deadline = Math.max(this.#deadline, now() + pause);
    this.#checks.push({ asked: now(), ...check });
    this.#child.say('check', this.#id);
  }

  #checked(state) {
    const { asked, resolve } = this.#checks.shift();
    this.#deadline = Math.max(this.#deadline, asked + state.valid_for_ms);
    resolve?.(state);
    this.#watch();
  }

  // A child that is stopped tells no loss. So its answers count, and the lease is lost at the deadline of the last one.
  #watch() {
    clearTimeout(this.#timer);
    const left = Math.max(0, this.#deadline - now());
    const pause = this.#isAsked() ? left : left / 3;
    this.#due = now() + pause;
    this.#timer = setTimeout(() => this.#isDue(), pause).unref();
  }

  #isAsked() {
    return this.#ends !== null || this.#checks.length > 0;
  }

  #isDue() {
    if (!this.#isAsked()) {
      this.#ask();
      return this.#watch();
    }
    // An answer may lie unread, if this program was paused.
    setImmediate(() => setImmediate(() => {
      if (this.#isOver) return;
      const isLate = this.#deadline <= now() && this.#isAsked();
      if (isLate) this.#lost(new LeaseLost(this.lock, 'the command did not answer until the deadline of the lease'));
      else this.#watch();
    }));
  }

  #lost(error) {
    // Of a lease that no answer confirmed, the child may still have the lock.
    this.#child.say('release', this.#id);
    this.#end(error);
  }

  #end(error) {
    this.#isOver = true;
    clearTimeout(this.#timer);
    if (error) this.#abort.abort(error);
    for (const { reject } of this.#checks.splice(0)) reject?.(error ?? new Refused(`the lease on "${this.lock}" was released`, { held: true }));
    if (error) this.#ends?.reject(error);
    else this.#ends?.resolve();
  }
}
