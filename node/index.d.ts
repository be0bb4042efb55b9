/// <reference lib="esnext.disposable" />

/** A connection to a store, and the locks that it holds. One child process, `leasehold hold --many`, renews them. */
export class Client implements AsyncDisposable {
  private constructor();
  /**
   * Connects to `url`, by default that of `LEASEHOLD_URL` or of the command's configuration file.
   * Rejects with `CommandFailed` if the command is missing or does not fit, and with `StoreUnavailable` or `Refused`.
   */
  static connect(url?: string, options?: ClientOptions): Promise<Client>;
  /** A lock with one holder at a time. */
  mutex(name: string, options?: LockOptions): Lock;
  /** A lock with many readers or one writer. On a quorum, a reader has no fence. */
  rwLock(name: string, options?: LockOptions): { read(): Lock<number | null>; write(): Lock };
  /** A lock with up to `slots` holders at a time, 1 to 1,000. */
  semaphore(name: string, slots: number, options?: LockOptions): Lock;
  /** Up to 32 mutexes, all or none. */
  all(names: readonly [string, ...string[]], options?: LockOptions): Lock;
  /** Releases all locks, and ends the child. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface ClientOptions {
  /** The program; by default that of the variable `LEASEHOLD`, else `leasehold` in `PATH`. */
  command?: string;
  /** How long a lease lasts if this process dies, in milliseconds; by default 30 s. */
  ttl?: number;
}

export interface LockOptions {
  /** As in `ClientOptions`, for this lock. */
  ttl?: number;
  /** The purpose, shown to those who wait. */
  note?: string;
}

export interface TryOptions {
  /** Cancels the request, which rejects with the reason of the signal. */
  signal?: AbortSignal;
}

export interface AcquireOptions extends TryOptions {
  /** The limit of the wait, in milliseconds; by default none. */
  wait?: number;
  /** Called when the lock is busy, and when the place in line or the holder changes. If it throws, the request rejects with its error. */
  onWait?: (waiting: Waiting) => void;
}

/** The place in the line of a busy lock. */
export interface Waiting {
  readonly lock: string;
  /** How many wait before this request. */
  readonly ahead: number;
  readonly holder: string;
  readonly holder_fence: number | null;
  readonly waited_ms: number;
}

export interface Lock<Fence extends number | null = number> {
  /** Waits in line for the lock. Rejects with `WaitTimeout` at the limit. */
  acquire(options?: AcquireOptions): Promise<Lease<Fence>>;
  /** The lease, or null if the lock is busy. */
  tryAcquire(options?: TryOptions): Promise<Lease<Fence> | null>;
  /** Runs `work` under the lock, then releases it. Rejects with the error of `work`, else with `LeaseLost` if the lease did not last until then. */
  use<T>(work: (lease: Lease<Fence>) => T | PromiseLike<T>, options?: AcquireOptions): Promise<T>;
}

/** A held lock. The child renews it until the release. */
export interface Lease<Fence extends number | null = number> extends AsyncDisposable {
  /** The name of the lock; of several, the first. */
  readonly lock: string;
  /** A number below 2^53, higher for each later holder. Of a slot, that of the slot. */
  readonly fence: Fence;
  /** `exclusive`, `shared`, or `slot/4`. */
  readonly mode: string;
  /** The number of the slot; null without slots. */
  readonly slot: number | null;
  /** All locks that are held with this one; null for one lock. */
  readonly locks: readonly { readonly name: string; readonly mode: string; readonly fence: number }[] | null;
  /** Aborts when the lease is lost. The reason is the `LeaseLost`. */
  readonly signal: AbortSignal;
  /** How long the lease is valid without a renewal, in milliseconds. Rejects with `LeaseLost` after a loss. */
  check(): Promise<{ doubtful: boolean; validFor: number }>;
  /** Gives the lock back, or leaves it to the TTL if the server does not answer. Rejects with `LeaseLost` if the lease had ended before. */
  release(): Promise<void>;
  /** The same as `release()`: `await using lease = await lock.acquire()`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** The base of all errors of this package. */
export class LeaseholdError extends Error {
  /** True if the program held the lock, so its work may have been unprotected. */
  readonly held: boolean;
  /** True if the same request may succeed later. */
  readonly mayRetry: boolean;
  /** The exit code of the command for this error, or null. */
  readonly code: number | null;
}
/** The lease ended before its release: another client may hold the lock. Repeat the work only if that is safe. */
export class LeaseLost extends LeaseholdError {
  readonly lock: string;
}
/** The lock was busy until the limit of the wait. */
export class WaitTimeout extends LeaseholdError {}
/** The store does not answer, or not now. */
export class StoreUnavailable extends LeaseholdError {}
/** The request or the setup is wrong: a name, an option, a permission, a key of another program. */
export class Refused extends LeaseholdError {}
/** The command `leasehold` is missing, does not fit this package, or has ended. */
export class CommandFailed extends LeaseholdError {}
