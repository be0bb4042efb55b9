"""What can go wrong. Each error says whether the lock was held (`held`) and whether to ask again (`may_retry`)."""

from __future__ import annotations


class LeaseholdError(Exception):
    """The base of all errors of this package."""

    held: bool = False
    """True if the program held the lock when it asked."""
    may_retry: bool = False
    """True if the same request may succeed later."""

    def __init__(self, message: str, *, held: bool = False) -> None:
        super().__init__(message)
        self.held = held


class LeaseLost(LeaseholdError):
    """The lease ended before its release: another client may hold the lock. Repeat the work only if that is safe."""

    may_retry = True


class WaitTimeout(LeaseholdError, TimeoutError):
    """The lock was busy until the limit of the wait. It was never held."""

    may_retry = True


class LoadFailed(LeaseholdError):
    """The value could not be loaded, here or in another process, and there is no stale one. Its cause is the error, if that was raised here."""

    may_retry = True
    retry_after: float = 0.0
    """For so many seconds no process loads it."""


class StoreUnavailable(LeaseholdError, ConnectionError):
    """The server does not answer, or not now."""

    may_retry = True


class Refused(LeaseholdError):
    """The request or the setup is wrong: a name, an option, a permission, a key of another program, a lease after its release."""


class ForkedClient(LeaseholdError):
    """The client belongs to the process that forked this one. Its locks stay with that process: connect a client in this one."""
