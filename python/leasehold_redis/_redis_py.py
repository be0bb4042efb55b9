"""redis-py's locks with our leases: for `redis.Redis(...).lock(name, lock_class=leasehold_redis.Lock)`, and the same for asyncio.

The classes are redis-py's own; only what reaches the server is replaced. A lock without a timeout is renewed while it is held. A lock with a
timeout ends by it, also if its object or its program ends before, as redis-py's does.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from time import monotonic
from typing import Any, Literal
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary, WeakValueDictionary

import redis.asyncio.lock
import redis.exceptions
import redis.lock
from redis.exceptions import LockError, LockNotOwnedError

from . import _core
from ._client import AsyncClient, Client, finish
from ._errors import LeaseholdError, LeaseLost, StoreUnavailable, WaitTimeout

RENEWED = 30.0
"""The TTL of a lock without a timeout: when a crashed holder frees it."""

# The clients of this process and of its parents, by the pool of the redis-py client, then by process and URL.
_clients: WeakKeyDictionary[Any, dict[tuple[int, str], Client | AsyncClient]] = WeakKeyDictionary()
# Which tasks connect now, so that all tasks share one client.
_connecting: WeakKeyDictionary[Any, asyncio.Lock] = WeakKeyDictionary()
_timed: WeakValueDictionary[int, _Timed] = WeakValueDictionary()


class _Timed:
    """A lease with a timeout, which it outlives as an object: the lock stays taken until then."""

    def __init__(self, core: _core.Lease) -> None:
        self.core = core
        _timed[id(self)] = self

    def __del__(self) -> None:
        try:
            self.core.leave()
        except (LeaseholdError, ImportError):
            pass  # It was released, or belongs to a parent. At its end, Python has no exceptions of this package.


@atexit.register
def _at_exit() -> None:
    """Runs before that of the clients, which release what they hold."""
    for known in _timed.valuerefs():
        if timed := known():
            timed.__del__()


def _raised(error: LeaseholdError, name: Any) -> Exception:
    """What redis-py raises in this case."""
    if isinstance(error, LeaseLost):
        return LockNotOwnedError(str(error), lock_name=name)
    if isinstance(error, StoreUnavailable):
        return redis.exceptions.ConnectionError(str(error))
    return LockError(str(error), lock_name=name)


class _Ours:
    """What both locks have: the address of their client, and the lease in place of a token."""

    url: str | None = None
    """Set it in a subclass where the client's own address is not enough: for a cluster, sentinels, or special TLS."""

    redis: Any
    name: Any
    timeout: float | None
    blocking: bool
    blocking_timeout: float | None
    local: Any

    def register_scripts(self) -> None:
        """redis-py's scripts are not used."""

    def _url(self) -> str:
        return self.url or address(self.redis)

    def _elsewhere(self) -> str | None:
        """The address of the lock's own server, if redis-py's client has another one."""
        if self.url is None:
            return None
        try:
            own, theirs = (of.partition("?")[0].removesuffix("/0") for of in (self.url, address(self.redis)))
        except LockError:
            return None  # A cluster or sentinels, for instance: only `url` can name what the client asks.
        return None if own == theirs else own

    def _reader(self, kind: Any, url: str) -> Any:
        """A client of redis-py for the lock's own server."""
        try:
            return kind.from_url(url)
        except ValueError as error:
            what = "redis-py cannot ask the server of this lock's `url`: make the lock from a client of that server"
            raise LockError(what, lock_name=self.name) from error

    def _known(self, url: str) -> Any:
        """The client for this pool, if this process has connected it."""
        return _clients.get(_pool(self.redis), {}).get((os.getpid(), url))

    def _keep(self, url: str, client: Client | AsyncClient) -> None:
        _clients.setdefault(_pool(self.redis), {})[os.getpid(), url] = client

    def _ask(self, client: Client | AsyncClient, limit: float | None) -> _core.Call[_core.Lease | None]:
        try:
            name = self.name if isinstance(self.name, str) else bytes(self.name).decode()
        except UnicodeDecodeError as error:
            raise LockError("leasehold_redis takes names in UTF-8, and this one is not: choose another name", lock_name=self.name) from error
        return client._core.acquire(
            [(name, "exclusive")],
            ttl=self.timeout or RENEWED,
            note="",
            renew=not self.timeout,
            max_hold=None,
            limit=limit,
            on_wait=None,
        )

    def _limit(self, blocking: bool | None, blocking_timeout: float | None, token: object) -> float | None:
        if token is not None:
            raise LockError("leasehold_redis gives each lease a token of its own: acquire without `token`", lock_name=self.name)
        if not (self.blocking if blocking is None else blocking):
            return 0
        limit = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        return limit if limit is None else max(0, limit)

    def _take(self, core: _core.Lease | None) -> bool:
        if core is None:
            return False
        self.local.held = _Timed(core) if self.timeout else core
        self.local.until = monotonic() + (self.timeout or RENEWED)
        self.local.token = (core.token or "").encode()
        return True

    def _held(self) -> _core.Lease:
        held = getattr(self.local, "held", None)
        if held is None:
            raise LockError("Only the object that has acquired this lock can change it", lock_name=self.name)
        return held.core if isinstance(held, _Timed) else held

    def _extension(self, additional_time: float, replace_ttl: bool) -> tuple[_core.Call[None], float]:
        """The request, and when the lock ends after it. The deadline of the lease has a margin, which each extension would take off."""
        held, now = self._held(), monotonic()
        until = (now if replace_ttl else max(now, self.local.until)) + additional_time
        return held.extend(until - now), until


class Lock(_Ours, redis.lock.Lock):
    """redis-py's lock, with a queue, renewal and fences. Use it by `lock_class`."""

    def acquire(
        self, sleep: Any = None, blocking: bool | None = None, blocking_timeout: Any = None, token: Any = None
    ) -> bool:
        """As redis-py's. `sleep` has no effect: the server wakes the waiters, in their order."""
        limit = self._limit(blocking, blocking_timeout, token)
        try:
            url = self._url()
            client = self._known(url)
            if client is None:
                client = Client.connect(url)
                self._keep(url, client)
            return self._take(self._ask(client, limit).wait())
        except WaitTimeout:
            return False
        except LeaseholdError as error:
            raise _raised(error, self.name) from error

    def _stored(self, url: str) -> bytes | None:
        with self._reader(redis.Redis, url) as client:
            stored: bytes | None = client.get(self.name)
            return stored

    def locked(self) -> bool:
        """As redis-py's."""
        url = self._elsewhere()
        return super().locked() if url is None else self._stored(url) is not None

    def owned(self) -> bool:
        """As redis-py's."""
        url = self._elsewhere()
        return super().owned() if url is None else self.local.token is not None and self._stored(url) == self.local.token

    def do_release(self, expected_token: Any) -> None:
        try:
            self._held().release().wait()
        except LeaseholdError as error:
            raise _raised(error, self.name) from error

    def do_extend(self, additional_time: Any, replace_ttl: bool) -> Literal[True]:
        try:
            extension, until = self._extension(additional_time, replace_ttl)
            extension.wait()
        except LeaseholdError as error:
            raise _raised(error, self.name) from error
        self.local.until = until
        return True

    def do_reacquire(self) -> Literal[True]:
        return self.do_extend(self.timeout, True)

    @property
    def fence(self) -> int:
        """The number of the lease, to send with each access to the resource."""
        return self._held().fence or 0

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost: another client may hold the lock."""
        return self._held().loss() is not None


class AsyncLock(_Ours, redis.asyncio.lock.Lock):
    """redis-py's lock for asyncio, with a queue, renewal and fences. Use it by `lock_class`."""

    async def acquire(self, blocking: bool | None = None, blocking_timeout: Any = None, token: Any = None) -> bool:
        """As redis-py's. The server wakes the waiters, in their order."""
        limit = self._limit(blocking, blocking_timeout, token)
        try:
            url = self._url()
            client = self._known(url)
            if client is None:
                async with _connecting.setdefault(_pool(self.redis), asyncio.Lock()):
                    client = self._known(url)
                    if client is None:
                        client = await AsyncClient.connect(url)
                        self._keep(url, client)
            return self._take(await finish(self._ask(client, limit)))
        except WaitTimeout:
            return False
        except LeaseholdError as error:
            raise _raised(error, self.name) from error

    async def _stored(self, url: str) -> bytes | None:
        async with self._reader(redis.asyncio.Redis, url) as client:
            stored: bytes | None = await client.get(self.name)
            return stored

    async def locked(self) -> bool:
        """As redis-py's."""
        url = self._elsewhere()
        return await super().locked() if url is None else await self._stored(url) is not None

    async def owned(self) -> bool:
        """As redis-py's."""
        url = self._elsewhere()
        return await super().owned() if url is None else self.local.token is not None and await self._stored(url) == self.local.token

    async def do_release(self, expected_token: Any) -> None:
        # After a cancelled release the token stays: the next one waits for the same request.
        of, releasing = getattr(self.local, "releasing", (None, None))
        try:
            if of != expected_token or releasing is None:
                releasing = asyncio.ensure_future(finish(self._held().release()))
                self.local.releasing = (expected_token, releasing)
            await asyncio.shield(releasing)
        except LeaseholdError as error:
            raise _raised(error, self.name) from error

    async def do_extend(self, additional_time: Any, replace_ttl: bool) -> Literal[True]:
        try:
            extension, until = self._extension(additional_time, replace_ttl)
            await finish(extension)
        except LeaseholdError as error:
            raise _raised(error, self.name) from error
        self.local.until = until
        return True

    async def do_reacquire(self) -> Literal[True]:
        return await self.do_extend(self.timeout, True)

    @property
    def fence(self) -> int:
        """The number of the lease, to send with each access to the resource."""
        return self._held().fence or 0

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost: another client may hold the lock."""
        return self._held().loss() is not None


def _pool(client: Any) -> Any:
    """What stands for the client's connections: the pool, or of a cluster the client."""
    return getattr(client, "connection_pool", client)


def address(client: Any) -> str:
    """The URL of the server that this client of redis-py uses."""
    pool = _pool(client)
    settings = dict(getattr(pool, "connection_kwargs", {}))
    kinds = {kind.__name__ for kind in getattr(pool, "connection_class", type(None)).__mro__}
    unknown = [name for name in ("credential_provider", "ssl_ca_data", "ssl_ca_path", "ssl_password") if settings.get(name)]
    if not kinds & {"Connection", "SSLConnection", "UnixDomainSocketConnection"} or "SentinelManagedConnection" in kinds or unknown:
        why = f"it has {', '.join(unknown)}" if unknown else "it has not one server"
        raise LockError(f"leasehold_redis cannot read the address of this client ({why}): use a subclass of Lock with its own `url`")
    user, password, db = (settings.get(name) for name in ("username", "password", "db"))
    if user and not password:
        password = "any"  # A user without a password takes any. With an empty one there would be no login.
    if path := settings.get("path"):
        parts = {"db": db, "user": user, "pass": password}
        options = urlencode({name: value for name, value in parts.items() if value}, quote_via=quote)
        return f"unix:{quote(path)}" + (f"?{options}" if options else "")
    login = f"{quote(user or '', safe='')}:{quote(password, safe='')}@" if password else ""
    host = settings.get("host") or "localhost"
    place = f"{login}{f'[{host}]' if ':' in host else host}:{settings.get('port') or 6379}/{db or 0}"
    if "SSLConnection" not in kinds:
        return f"redis://{place}"
    if settings.get("ssl_cert_reqs") in ("none", "optional", 0, 1):
        raise LockError("leasehold_redis checks the certificate of the server: give its root by ssl_ca_certs, not ssl_cert_reqs")
    files = {"tls_ca": "ssl_ca_certs", "tls_cert": "ssl_certfile", "tls_key": "ssl_keyfile"}
    options = urlencode({ours: settings[theirs] for ours, theirs in files.items() if settings.get(theirs)}, quote_via=quote)
    return f"rediss://{place}" + (f"?{options}" if options else "")
