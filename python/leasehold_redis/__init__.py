"""Locks for Redis and Valkey: renewed while held, with a fence, and with a report of each loss.

    client = Client.connect("redis://127.0.0.1")
    with client.mutex("report", ttl=30) as lease:
        write(rows, fence=lease.fence)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._client import AsyncClient, AsyncLease, AsyncLoss, AsyncNamedLock, Client, Lease, Loss, NamedLock, RwLock
from ._errors import ForkedClient, LeaseholdError, LeaseLost, LoadFailed, Refused, StoreUnavailable, WaitTimeout

if TYPE_CHECKING:
    from ._cached import AsyncCached, Cached, cached
    from ._decorators import locked
    from ._once import AsyncOnce, Once, PastRun, Turn
    from ._redis_py import AsyncLock, Lock

__all__ = [
    "AsyncCached",
    "AsyncClient",
    "AsyncLease",
    "AsyncLock",
    "AsyncLoss",
    "AsyncNamedLock",
    "AsyncOnce",
    "Cached",
    "Client",
    "ForkedClient",
    "Lease",
    "LeaseLost",
    "LeaseholdError",
    "LoadFailed",
    "Lock",
    "Loss",
    "NamedLock",
    "Once",
    "PastRun",
    "Refused",
    "RwLock",
    "StoreUnavailable",
    "Turn",
    "WaitTimeout",
    "cached",
    "locked",
]


# redis-py takes long to import, and need not be there. A program that locks only needs nothing of the others.
_later = {
    "_cached": ("AsyncCached", "Cached", "cached"),
    "_decorators": ("locked",),
    "_once": ("AsyncOnce", "Once", "PastRun", "Turn"),
    "_redis_py": ("AsyncLock", "Lock"),
}


def __getattr__(name: str) -> Any:
    for module, names in _later.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
