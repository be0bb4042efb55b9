"""Functions whose values are cached for all processes: `cached`. One caller of the fleet loads a value; the others wait, or take the stale one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import update_wrapper
from threading import Thread
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from . import _core
from ._client import finish
from ._decorators import AnyClient, _client, _client_async, _is_async, _Template, _title

if TYPE_CHECKING:
    from asyncio import Task

P = ParamSpec("P")
R = TypeVar("R")

Dumps = Callable[[Any], "bytes | str"]
Loads = Callable[[bytes], Any]
# asyncio keeps no reference to a task.
_loading: set[Task[None]] = set()


class _AnyCached(Generic[P, R]):
    """A function with a cache before it."""

    __name__: str

    def __init__(
        self,
        function: Callable[..., Any],
        key: str,
        client: AnyClient | Callable[[], AnyClient] | None,
        dumps: Dumps | None,
        loads: Loads | None,
        settings: dict[str, Any],
    ) -> None:
        wrapper: Any = self
        update_wrapper(wrapper, function)
        self._function, self._template, self._client, self._settings = function, _Template(key, function), client, settings
        if (dumps is None) != (loads is None):
            raise TypeError("give both `dumps` and `loads`, or none of them")
        is_text = inspect.signature(function).return_annotation in (str, "str")
        self._dumps = dumps or self._plain
        self._loads: Loads = loads or (bytes.decode if is_text else lambda value: value)
        self._type = str if is_text else bytes
        self._bound: tuple[Any, ...] = ()

    def _method(self, instance: object) -> Any:
        """A method: its first argument is the instance."""
        if instance is None:
            return self
        bound = type(self).__new__(type(self))
        bound.__dict__.update(self.__dict__, _bound=(instance,))
        return bound

    def _plain(self, value: Any) -> bytes | str:
        if isinstance(value, self._type):
            return value
        raise TypeError(
            f"{_title(self._function)} returned {type(value).__name__}: without `dumps` and `loads`, @cached keeps bytes, "
            "or str if the function says `-> str`"
        )

    def _encoded(self, value: Any) -> bytes:
        kept = self._dumps(value)
        return kept.encode() if isinstance(kept, str) else kept

    def _key(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        return self._template.fill(self._bound + arguments, named)


class Cached(_AnyCached[P, R]):
    """A function whose values are cached."""

    def __get__(self, instance: object, owner: type | None = None) -> Cached[..., R]:
        method: Cached[..., R] = self._method(instance)
        return method

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        context = copy_context()

        def load(reply: _core.Reply) -> None:
            Thread(target=context.copy().run, args=(answer, reply), name="leasehold-load", daemon=True).start()

        def answer(reply: _core.Reply) -> None:
            try:
                reply.set(self._encoded(self._function(*self._bound, *arguments, **named)))
            except BaseException as error:
                reply.fail(error)

        key, core = self._key(arguments, named), _client(self._client)
        kept = core.get_or_refresh(key, load=load, **self._settings).wait()
        try:
            value: R = self._loads(kept)
        except Exception:
            # Written in another form, perhaps by an older program.
            core.invalidate(key, True).wait()
            value = self._loads(core.get_or_refresh(key, load=load, **self._settings).wait())
        return value

    def invalidate(self, *arguments: P.args, **named: P.kwargs) -> None:
        """Makes the value for these arguments stale, for all processes. After that, none gets a value as fresh whose load began before."""
        _client(self._client).invalidate(self._key(arguments, named), False).wait()

    def remove(self, *arguments: P.args, **named: P.kwargs) -> None:
        """As `invalidate`, and no process gets the old value: callers wait for the next load."""
        _client(self._client).invalidate(self._key(arguments, named), True).wait()


class AsyncCached(_AnyCached[P, R]):
    """A coroutine function whose values are cached."""

    def __get__(self, instance: object, owner: type | None = None) -> AsyncCached[..., R]:
        method: AsyncCached[..., R] = self._method(instance)
        return method

    async def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        from asyncio import get_running_loop

        loop, context = get_running_loop(), copy_context()

        def load(reply: _core.Reply) -> None:
            loop.call_soon_threadsafe(begin, reply, context=context)

        def begin(reply: _core.Reply) -> None:
            task = loop.create_task(answer(reply))
            _loading.add(task)
            task.add_done_callback(_loading.discard)

        async def answer(reply: _core.Reply) -> None:
            try:
                reply.set(self._encoded(await self._function(*self._bound, *arguments, **named)))
            except BaseException as error:
                reply.fail(error)

        key, core = self._key(arguments, named), await _client_async(self._client)
        kept = await finish(core.get_or_refresh(key, load=load, **self._settings))
        try:
            value: R = self._loads(kept)
        except Exception:
            # Written in another form, perhaps by an older program.
            await finish(core.invalidate(key, True))
            value = self._loads(await finish(core.get_or_refresh(key, load=load, **self._settings)))
        return value

    async def invalidate(self, *arguments: P.args, **named: P.kwargs) -> None:
        """Makes the value for these arguments stale, for all processes. After that, none gets a value as fresh whose load began before."""
        await finish((await _client_async(self._client)).invalidate(self._key(arguments, named), False))

    async def remove(self, *arguments: P.args, **named: P.kwargs) -> None:
        """As `invalidate`, and no process gets the old value: callers wait for the next load."""
        await finish((await _client_async(self._client)).invalidate(self._key(arguments, named), True))


class _Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncCached[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R]) -> Cached[P, R]: ...


def cached(
    key: str,
    *,
    fresh: float = 60.0,
    stale: float = 600.0,
    timeout: float = 30.0,
    must_be_fresh: bool = False,
    dumps: Dumps | None = None,
    loads: Loads | None = None,
    client: AnyClient | Callable[[], AnyClient] | None = None,
) -> _Decorator:
    """The values of the function are cached under this key, filled with the arguments of a call. For `fresh`, all processes get the same value. For
    `stale` after that they get it too, and one of them loads a new one; with `must_be_fresh` they wait for it. A caller waits at most
    `timeout` for the load of another one. `dumps` and `loads` turn a value into bytes and back; one that `loads` refuses is loaded anew.
    `client`: as for `locked`."""
    settings = {"fresh": fresh, "stale": stale, "limit": timeout, "must_be_fresh": must_be_fresh}

    def decorate(function: Callable[..., Any]) -> Any:
        kind = AsyncCached if _is_async(function) else Cached
        return kind(function, key, client, dumps, loads, settings)

    return decorate
