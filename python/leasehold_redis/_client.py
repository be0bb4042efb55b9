"""Clients, locks and leases: `Client` for threads, `AsyncClient` for asyncio. Times are seconds."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar
from weakref import WeakValueDictionary

from . import _core
from ._errors import ForkedClient, LeaseholdError, LeaseLost, Refused, WaitTimeout

if TYPE_CHECKING:
    from asyncio import Future
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from ._once import AsyncOnce, Once

T = TypeVar("T")
L = TypeVar("L", bound="_AnyLock[Any]")
Held = TypeVar("Held", bound="_AnyLease")


class Terms(TypedDict, total=False):
    """The settings of a lock's leases."""

    ttl: float  # How long a lease lasts without renewal, and the lock of a crashed holder: 0.01 to 86,400, by default 30.
    note: str  # A text that others see beside the holder.
    renew: bool  # Whether a lease renews itself every third of its TTL.
    max_hold: float | None  # The longest time that a lease may be held.


class Settings(TypedDict, total=False):
    """The settings of a client."""

    namespace: str | None  # A prefix for all names, followed by a colon.
    key_template: str | None  # How a key is made from a name, `{}`.
    request_timeout: float | None  # The limit of one request, by default 2.
    outage_timeout: float | None  # How long a waiter keeps asking while the server does not answer, by default 30.


def _settle(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def finish(call: _core.Call[T]) -> T:
    """The answer of a call, which the running event loop polls. A cancelled task drops the request."""
    from asyncio import get_running_loop

    loop = get_running_loop()
    try:
        while True:
            future = loop.create_future()
            if (answer := call.poll(loop, _settle, future)) is not None:
                return answer[0]
            await future
    finally:
        call.close()


class _Use:
    """A use of a core client, by a client, a lock, a firing or a lease. While there is one, the end of the program closes the core client."""

    def __init__(self, core: _core.Client) -> None:
        self.core = core
        _uses[id(self)] = self


_uses: WeakValueDictionary[int, _Use] = WeakValueDictionary()


class _AnyLease:
    """Locks that are held and renewed."""

    def __init__(self, core: _core.Lease, use: _Use) -> None:
        self._core, self._use = core, use

    @property
    def name(self) -> str:
        """The name of the lock; of several, the first one in the order of their keys."""
        return self._core.names[0]

    @property
    def names(self) -> list[str]:
        """The names of all locks that are held together."""
        return self._core.names

    @property
    def fence(self) -> int:
        """The number to send with each access to the resource. It rises from holder to holder."""
        if self._core.fence is None:
            raise Refused(f'"{self.name}" has no fence, since its holders do not exclude each other', held=True)
        return self._core.fence

    @property
    def slot(self) -> int | None:
        """The number of the slot, from 1, if the lock is a semaphore."""
        return self._core.slot

    @property
    def mode(self) -> str:
        """`exclusive`, `shared`, or `slot/4`."""
        return self._core.mode

    @property
    def doubt(self) -> str | None:
        """Why the last renewal failed, while the lease is valid."""
        return self._core.doubt()

    def check(self) -> float:
        """Seconds until the deadline, unless the lease is renewed before. Raises LeaseLost after a loss. Asks no server."""
        return self._core.check()


class _AnyLoss:
    """The loss of a lease."""

    def __init__(self, core: _core.Lease) -> None:
        self._core = core

    def is_set(self) -> bool:
        """Whether the lease was lost."""
        return self._core.loss() is not None

    @property
    def error(self) -> LeaseLost | None:
        """Why the lease was lost, if it was."""
        return self._core.loss()


class _AnyLock(Generic[Held]):
    """A named lock, or several that are taken together, and the settings of their leases."""

    def __init__(
        self,
        core: _core.Client,
        locks: list[tuple[str, str]],
        *,
        ttl: float = 30.0,
        note: str = "",
        renew: bool = True,
        max_hold: float | None = None,
    ) -> None:
        self._core, self._use, self._locks = core, _Use(core), locks
        self._ttl, self._note, self._renew, self._max_hold = ttl, note, renew, max_hold
        # The leases of blocks, by the thread or the task that entered them: one object serves many.
        self._entered: dict[object, list[Held]] = {}

    def _ask(self, limit: float | None, on_wait: Callable[[str, int, float], Any] | None = None) -> _core.Call[_core.Lease | None]:
        return self._core.acquire(
            self._locks, ttl=self._ttl, note=self._note, renew=self._renew, max_hold=self._max_hold, limit=limit, on_wait=on_wait
        )

    def _busy(self) -> WaitTimeout:
        return WaitTimeout(f'"{self._locks[0][0]}" is busy')

    def _once(self, firing: str, tries: int | None, keep: float) -> _core.Once:
        name, ttl, note = self._locks[0][0], self._ttl, self._note
        return self._core.once(name, firing, ttl=ttl, note=note, renew=self._renew, max_hold=self._max_hold, tries=tries, keep=keep)

    def _enter(self, who: object, lease: Held) -> Held:
        self._entered.setdefault(who, []).append(lease)
        return lease

    def _leave(self, who: object) -> Held:
        leases = self._entered.get(who)
        if not leases:
            # A fixture or a generator may end elsewhere than it began. With one entered lease, there is no doubt which one it is.
            entered = list(self._entered.items())
            if (count := sum(len(leases) for _, leases in entered)) != 1:
                raise RuntimeError(
                    f'another thread or task has entered this block of "{self._locks[0][0]}", and its lease is still held, one of {count}: '
                    "leave a block where it was entered, give each block a lock object of its own, or use acquire() and release()"
                )
            who, leases = entered[0]
        lease = leases.pop()
        if not leases:
            del self._entered[who]
        return lease


class RwLock(Generic[L]):
    """A lock with many readers or one writer, all in one line."""

    def __init__(self, make: Callable[[str], L]) -> None:
        self._make = make

    def read(self) -> L:
        """Its readers, who hold beside each other."""
        return self._make("shared")

    def write(self) -> L:
        """Its writer: the mutex of this name."""
        return self._make("exclusive")


class _AnyClient(Generic[L]):
    _lock: type[L]

    def __init__(self, core: _core.Client) -> None:
        self._core, self._use = core, _Use(core)

    @property
    def store(self) -> str:
        """The address of the server, without user and password."""
        return self._core.store

    def mutex(self, name: str, **terms: Unpack[Terms]) -> L:
        """A lock with one holder at a time."""
        return self._lock(self._core, [(name, "exclusive")], **terms)

    def rw_lock(self, name: str, **terms: Unpack[Terms]) -> RwLock[L]:
        """A lock with many readers or one writer."""
        return RwLock(lambda mode: self._lock(self._core, [(name, mode)], **terms))

    def semaphore(self, name: str, slots: int, **terms: Unpack[Terms]) -> L:
        """A lock with `slots` holders at a time, 1 to 1,000."""
        return self._lock(self._core, [(name, f"slot/{slots}")], **terms)

    def all(self, *names: str, **terms: Unpack[Terms]) -> L:
        """Several mutexes, all or none."""
        return self._lock(self._core, [(name, "exclusive") for name in names], **terms)


def _url(url: str | None) -> str:
    url = url or os.environ.get("LEASEHOLD_URL")
    if not url:
        raise Refused("no server is named: give a URL such as redis://127.0.0.1, or set LEASEHOLD_URL")
    return url


# The client that a process shares, and which process that is.
_shared: tuple[int, _AnyClient[Any]] | None = None


def _share(connected: _core.Client | None = None) -> _core.Client | None:
    """The shared client. If there is none, `connected` is: of several threads or tasks, that of the first one."""
    global _shared
    if _shared is None or _shared[0] != os.getpid():
        if connected is None:
            return None
        _shared = os.getpid(), _AnyClient(connected)
    return _shared[1]._core


def _at_exit() -> None:
    """Releases what is held, unless that is another process's. Then no thread of this package uses Python any more."""
    # `valuerefs` copies in one step: other threads may add meanwhile.
    for core in {use.core for known in _uses.valuerefs() if (use := known())}:
        try:
            core.close().wait()
        except ForkedClient:
            pass
    _core.end_messenger()


atexit.register(_at_exit)


def _after_block(failure: LeaseholdError, error: BaseException | None) -> None:
    """A block raises its own error first, then the loss. Without a confirmed release, the TTL ends the lease; the block was under it."""
    if error is None and isinstance(failure, LeaseLost):
        raise failure


class Loss(_AnyLoss):
    """The loss of a lease, as an event."""

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the loss. False if the lease was released, or at the limit."""
        self._core.ended().wait(timeout)
        return self.is_set()


class Lease(_AnyLease):
    """A held lock, for threads. A block under it releases it; so does dropping the object."""

    @property
    def lost(self) -> Loss:
        """The loss of this lease, as an event."""
        return Loss(self._core)

    def extend(self, ttl: float) -> None:
        """Renews the lease now. It and later renewals last for `ttl`."""
        self._core.extend(ttl).wait()

    def release(self) -> None:
        """Gives the lock back. Raises LeaseLost if the lease was lost before."""
        self._core.release().wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.release()
        except LeaseholdError as failure:
            _after_block(failure, error)


class NamedLock(_AnyLock[Lease]):
    """A lock for threads. One object may serve many threads; it is not re-entrant."""

    def acquire(self, timeout: float | None = None, *, on_wait: Callable[[str, int, float], Any] | None = None) -> Lease:
        """Waits for the lock in its queue, at most `timeout`. Calls `on_wait(name, waiters_ahead, waited)` while the lock is busy."""
        core = self._ask(timeout, on_wait).wait()
        if core is None:
            raise self._busy()
        return Lease(core, self._use)

    def try_acquire(self) -> Lease | None:
        """The lease, or None if the lock is busy."""
        core = self._ask(0).wait()
        return None if core is None else Lease(core, self._use)

    def __enter__(self) -> Lease:
        return self._enter(threading.get_ident(), self.acquire())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(threading.get_ident()).__exit__(kind, error, trace)


class Client(_AnyClient[NamedLock]):
    """A connection to a server, and the locks that it holds. Made by `connect`."""

    _lock = NamedLock

    @classmethod
    def connect(cls, url: str | None = None, **settings: Unpack[Settings]) -> Self:
        """Connects to `url`, by default that of LEASEHOLD_URL: `redis://`, `rediss://`, `unix:`, `redis+sentinel://` and others."""
        return cls(_core.Client.connect(_url(url), **settings).wait())

    @classmethod
    def shared(cls) -> Self:
        """The client of this process, connected to LEASEHOLD_URL by the first call; a forked child connects its own. Do not close it."""
        core = _share() or _share(_core.Client.connect(_url(None)).wait())
        assert core
        return cls(core)

    def once(self, name: str, firing: str, *, tries: int | None = None, keep: float = 7 * 86_400.0, **terms: Unpack[Terms]) -> Once:
        """One firing of the work under the lock of this name, such as a date: at most one run of it is successful. At most `tries` runs begin.
        The server remembers the last one for `keep`."""
        from ._once import Once

        return Once(self.mutex(name, **terms)._once(firing, tries, keep), name, self._use)

    def close(self) -> bool:
        """Releases all locks. Returns whether the server has confirmed that."""
        return self._core.close().wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class AsyncLoss(_AnyLoss):
    """The loss of a lease, as an event and an awaitable."""

    async def wait(self) -> bool:
        """Waits for the loss. False if the lease was released."""
        return await self is not None

    def __await__(self) -> Generator[Any, Any, LeaseLost | None]:
        """Waits for the end of the lease: the loss, or None if the lease was released."""
        return finish(self._core.ended()).__await__()


class AsyncLease(_AnyLease):
    """A held lock, for asyncio. A block under it releases it; so does dropping the object."""

    @property
    def lost(self) -> AsyncLoss:
        """The loss of this lease, as an event and an awaitable."""
        return AsyncLoss(self._core)

    async def extend(self, ttl: float) -> None:
        """Renews the lease now. It and later renewals last for `ttl`."""
        await finish(self._core.extend(ttl))

    async def release(self) -> None:
        """Gives the lock back. Raises LeaseLost if the lease was lost before. A cancelled release goes on."""
        await finish(self._core.release())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self.release()
        except LeaseholdError as failure:
            _after_block(failure, error)


class AsyncNamedLock(_AnyLock[AsyncLease]):
    """A lock for asyncio. One object may serve many tasks; it is not re-entrant. A cancelled task leaves the queue."""

    async def acquire(self, timeout: float | None = None, *, on_wait: Callable[[str, int, float], Any] | None = None) -> AsyncLease:
        """Waits for the lock in its queue, at most `timeout`. Calls `on_wait(name, waiters_ahead, waited)` while the lock is busy."""
        heard = on_wait
        if on_wait is not None:
            from asyncio import get_running_loop

            loop, watch = get_running_loop(), on_wait

            def heard(name: str, ahead: int, waited: float) -> None:
                loop.call_soon_threadsafe(watch, name, ahead, waited)

        core = await finish(self._ask(timeout, heard))
        if core is None:
            raise self._busy()
        return AsyncLease(core, self._use)

    async def try_acquire(self) -> AsyncLease | None:
        """The lease, or None if the lock is busy."""
        core = await finish(self._ask(0))
        return None if core is None else AsyncLease(core, self._use)

    async def __aenter__(self) -> AsyncLease:
        return self._enter(_task(), await self.acquire())

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._leave(_task()).__aexit__(kind, error, trace)


def _task() -> object:
    from asyncio import current_task

    return current_task()


class AsyncClient(_AnyClient[AsyncNamedLock]):
    """A connection to a server, and the locks that it holds, for asyncio. Made by `connect`. It belongs to no event loop."""

    _lock = AsyncNamedLock

    @classmethod
    async def connect(cls, url: str | None = None, **settings: Unpack[Settings]) -> Self:
        """Connects to `url`, as `Client.connect` does."""
        return cls(await finish(_core.Client.connect(_url(url), **settings)))

    @classmethod
    async def shared(cls) -> Self:
        """The client of this process, as `Client.shared` gives it, also for several event loops."""
        core = _share() or _share(await finish(_core.Client.connect(_url(None))))
        assert core
        return cls(core)

    def once(self, name: str, firing: str, *, tries: int | None = None, keep: float = 7 * 86_400.0, **terms: Unpack[Terms]) -> AsyncOnce:
        """One firing of the work under the lock of this name, such as a date: at most one run of it is successful. At most `tries` runs begin.
        The server remembers the last one for `keep`."""
        from ._once import AsyncOnce

        return AsyncOnce(self.mutex(name, **terms)._once(firing, tries, keep), name, self._use)

    async def close(self) -> bool:
        """Releases all locks. Returns whether the server has confirmed that."""
        return await finish(self._core.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
