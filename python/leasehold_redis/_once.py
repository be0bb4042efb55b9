"""Work that is done once among all hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from . import _core
from ._client import AsyncLease, Lease, _Use, finish
from ._errors import LeaseholdError, WaitTimeout

T = TypeVar("T")


class PastRun(NamedTuple):
    """A run of a firing that has begun before."""

    by: str  # Who ran: its note, host and process.
    fence: int  # The fence of its lease.
    number: int  # Which run of the firing it is, from 1.
    is_done: bool  # Whether it was successful, so that the firing is done.
    at: float  # When it was marked as done, or else when it began, in seconds since 1970 by the clock of the server.


class Turn(Generic[T]):
    """Whether it was this caller's turn to do the work."""

    def __init__(self, value: T | None = None, past: PastRun | None = None) -> None:
        self.value = value
        """What the work returned, if it ran here."""
        self.past = past
        """The run that was successful before, or the last one if as many have begun as may. None if the work ran here."""

    @property
    def is_mine(self) -> bool:
        """Whether the work ran here."""
        return self.past is None


class _AnyOnce:
    def __init__(self, core: _core.Once, name: str, use: _Use) -> None:
        self._core, self._name, self._use = core, name, use

    def _busy(self) -> WaitTimeout:
        return WaitTimeout(f'"{self._name}" is busy')


class Once(_AnyOnce):
    """One firing of work: among all hosts, at most one run of it is successful."""

    def run(self, work: Callable[[Lease], T], timeout: float | None = None) -> Turn[T]:
        """Waits for the lock, and calls `work(lease)` if no run was successful before. An error of the work leaves the firing open. Raises
        LeaseLost if the lease was lost before the work has ended: then it is not marked as done."""
        turn = self._turn(work, timeout)
        if turn is None:
            raise self._busy()
        return turn

    def try_run(self, work: Callable[[Lease], T]) -> Turn[T] | None:
        """As `run`, or None if the lock is busy: this firing may run just now, or another one."""
        return self._turn(work, 0)

    def past(self) -> PastRun | None:
        """The last run that is known. Waits for no lock."""
        past = self._core.past().wait()
        return past and PastRun(*past)

    def _turn(self, work: Callable[[Lease], T], limit: float | None) -> Turn[T] | None:
        entered = self._core.enter(limit).wait()
        if entered is None:
            return None
        if isinstance(entered, tuple):
            return Turn(past=PastRun(*entered))
        lease = Lease(entered, self._use)
        try:
            value = work(lease)
            self._core.finish(entered).wait()
        finally:
            try:
                lease.release()
            except LeaseholdError:
                pass  # It does not change whether the work is done.
        return Turn(value)


class AsyncOnce(_AnyOnce):
    """One firing of work, for asyncio: among all hosts, at most one run of it is successful."""

    async def run(self, work: Callable[[AsyncLease], Awaitable[T]], timeout: float | None = None) -> Turn[T]:
        """Waits for the lock, and awaits `work(lease)` if no run was successful before. An error of the work leaves the firing open. Raises
        LeaseLost if the lease was lost before the work has ended: then it is not marked as done."""
        turn = await self._turn(work, timeout)
        if turn is None:
            raise self._busy()
        return turn

    async def try_run(self, work: Callable[[AsyncLease], Awaitable[T]]) -> Turn[T] | None:
        """As `run`, or None if the lock is busy: this firing may run just now, or another one."""
        return await self._turn(work, 0)

    async def past(self) -> PastRun | None:
        """The last run that is known. Waits for no lock."""
        past = await finish(self._core.past())
        return past and PastRun(*past)

    async def _turn(self, work: Callable[[AsyncLease], Awaitable[T]], limit: float | None) -> Turn[T] | None:
        entered = await finish(self._core.enter(limit))
        if entered is None:
            return None
        if isinstance(entered, tuple):
            return Turn(past=PastRun(*entered))
        lease = AsyncLease(entered, self._use)
        try:
            value = await work(lease)
            await finish(self._core.finish(entered))
        finally:
            try:
                await lease.release()
            except LeaseholdError:
                pass  # It does not change whether the work is done.
        return Turn(value)
