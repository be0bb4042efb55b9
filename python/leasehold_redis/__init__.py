"""Locks for Redis and Valkey: renewed while held, with a fence, and with a report of each loss.

    client = Client.connect("redis://127.0.0.1")
    with client.mutex("report", ttl=30) as lease:
        write(rows, fence=lease.fence)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._client import AsyncClient, AsyncLease, AsyncLoss, AsyncNamedLock, Client, Lease, Loss, NamedLock, RwLock
from ._errors import ForkedClient, LeaseholdError, LeaseLost, Refused, StoreUnavailable, WaitTimeout

if TYPE_CHECKING:
    from ._redis_py import AsyncLock, Lock

__all__ = [
    "AsyncClient",
    "AsyncLease",
    "AsyncLock",
    "AsyncLoss",
    "AsyncNamedLock",
    "Client",
    "ForkedClient",
    "Lease",
    "LeaseLost",
    "LeaseholdError",
    "Lock",
    "Loss",
    "NamedLock",
    "Refused",
    "RwLock",
    "StoreUnavailable",
    "WaitTimeout",
]


def __getattr__(name: str) -> Any:
    # redis-py takes long to import, and need not be there.
    if name in ("Lock", "AsyncLock"):
        from . import _redis_py

        return getattr(_redis_py, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
