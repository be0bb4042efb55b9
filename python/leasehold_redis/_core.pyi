"""The extension module. Programs use the classes beside it."""

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from typing import Any, Generic, TypeVar, final

from ._errors import LeaseLost

_T = TypeVar("_T", covariant=True)

__all__ = ["Call", "Client", "Lease", "Once", "Reply", "end_messenger"]

def end_messenger() -> None: ...

@final
class Call(Generic[_T]):
    def wait(self, limit: float | None = None) -> _T: ...
    def poll(self, event_loop: AbstractEventLoop, settle: Callable[[Future[None]], None], future: Future[None]) -> tuple[_T] | None: ...
    def close(self) -> None: ...

@final
class Client:
    @staticmethod
    def connect(
        url: str,
        *,
        namespace: str | None = None,
        key_template: str | None = None,
        request_timeout: float | None = None,
        outage_timeout: float | None = None,
    ) -> Call[Client]: ...
    @property
    def store(self) -> str: ...
    def acquire(
        self,
        locks: list[tuple[str, str]],
        *,
        ttl: float,
        note: str,
        renew: bool,
        max_hold: float | None,
        limit: float | None,
        on_wait: Callable[[str, int, float], Any] | None,
    ) -> Call[Lease | None]: ...
    def once(
        self,
        name: str,
        firing: str,
        *,
        ttl: float,
        note: str,
        renew: bool,
        max_hold: float | None,
        tries: int | None,
        keep: float,
    ) -> Once: ...
    def get_or_refresh(
        self,
        key: str,
        *,
        fresh: float,
        stale: float,
        limit: float,
        must_be_fresh: bool,
        load: Callable[[Reply], object],
    ) -> Call[bytes]: ...
    def invalidate(self, key: str, remove: bool) -> Call[None]: ...
    def close(self) -> Call[bool]: ...

@final
class Lease:
    @property
    def names(self) -> list[str]: ...
    @property
    def fence(self) -> int | None: ...
    @property
    def slot(self) -> int | None: ...
    @property
    def mode(self) -> str: ...
    @property
    def token(self) -> str | None: ...
    def check(self) -> float: ...
    def doubt(self) -> str | None: ...
    def loss(self) -> LeaseLost | None: ...
    def ended(self) -> Call[LeaseLost | None]: ...
    def extend(self, ttl: float) -> Call[None]: ...
    def release(self) -> Call[None]: ...
    def leave(self) -> None: ...

@final
class Once:
    def enter(self, limit: float | None) -> Call[Lease | tuple[str, int, int, bool, float] | None]: ...
    def finish(self, lease: Lease) -> Call[None]: ...
    def past(self) -> Call[tuple[str, int, int, bool, float] | None]: ...

@final
class Reply:
    def set(self, value: bytes) -> None: ...
    def fail(self, error: BaseException) -> None: ...
