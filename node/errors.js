// What can go wrong. Each error says whether the lock was held (`held`) and whether to ask again (`mayRetry`).

/** The base of all errors of this package. */
export class LeaseholdError extends Error {
  constructor(message, { held = false, mayRetry = false, code = null } = {}) {
    super(message);
    this.name = new.target.name;
    /** True if the program held the lock, so its work may have been unprotected. */
    this.held = held;
    /** True if the same request may succeed later. */
    this.mayRetry = mayRetry;
    /** The exit code of the command for this error, or null. */
    this.code = code;
  }
}

/** The lease ended before its release: another client may hold the lock. Repeat the work only if that is safe. */
export class LeaseLost extends LeaseholdError {
  constructor(lock, cause) {
    super(`the lease on "${lock}" was lost: ${cause}`, { held: true, mayRetry: true, code: 79 });
    this.lock = lock;
  }
}

/** The lock was busy until the limit of the wait. */
export class WaitTimeout extends LeaseholdError {}

/** The store does not answer, or not now. */
export class StoreUnavailable extends LeaseholdError {}

/** The request or the setup is wrong: a name, an option, a permission, a key of another program. */
export class Refused extends LeaseholdError {}

/** The command `leasehold` is missing, does not fit this package, or has ended. */
export class CommandFailed extends LeaseholdError {}

const UNAVAILABLE = 69;

/** The error of a request that ended with this event. */
export function errorOf({ event, code, message: said }) {
  const message = said.replace(` (exit ${code})`, ''); // The exit code of a command that holds one lock.
  if (event === 'timeout') return new WaitTimeout(message, { mayRetry: true, code });
  if (code === UNAVAILABLE) return new StoreUnavailable(message, { mayRetry: true, code });
  if (event === 'cancelled') return new CommandFailed(message, { mayRetry: true, code });
  return new Refused(message, { code });
}
