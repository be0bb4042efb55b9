"""Functions under a lock: `locked`. Its template of a name is filled from the arguments of each call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from string import Formatter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import _core
from ._client import AsyncClient, AsyncNamedLock, Client, NamedLock, _AnyClient
from ._errors import Refused

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._client import Terms

P = ParamSpec("P")
R = TypeVar("R")

AnyClient = _AnyClient[Any]


def _client(client: AnyClient | Callable[[], AnyClient] | None) -> _core.Client:
    """The connection of a decorated function."""
    if client is None:
        return Client.shared()._core
    return (client if isinstance(client, _AnyClient) else client())._core


async def _client_async(client: AnyClient | Callable[[], AnyClient] | None) -> _core.Client:
    return (await AsyncClient.shared())._core if client is None else _client(client)


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine: also that of an object, such as a function under `cached`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(type(function), "__call__", None))


def _title(function: Callable[..., Any]) -> str:
    """The name of a function, or of the class of an object that is called like one."""
    title: str = getattr(function, "__qualname__", type(function).__qualname__)
    return title


class _Template:
    """A name with places for arguments of a function, as in `orders:{id}`."""

    def __init__(self, template: str, function: Callable[..., Any]) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{_title(function)} is a generator: its body would run after the call; use `with` in it")
        self._template, self._signature = template, inspect.signature(function)
        for _, field, _, _ in Formatter().parse(template):
            root = None if field is None else field.split(".")[0].split("[")[0]
            if root is not None and root not in self._signature.parameters:
                known = ", ".join(self._signature.parameters) or "none"
                raise Refused(f'"{template}" names "{root}", which is no argument of {_title(function)} (it has: {known})')

    def fill(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
        bound = self._signature.bind(*arguments, **named)
        bound.apply_defaults()
        return self._template.format_map(bound.arguments)


def locked(
    name: str,
    *,
    client: AnyClient | Callable[[], AnyClient] | None = None,
    timeout: float | None = None,
    shared: bool = False,
    slots: int | None = None,
    **terms: Unpack[Terms],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Each call of the function takes the lock of this name, filled with its arguments, and waits for it at most `timeout`. With `shared` the calls
    are readers, with `slots` so many run at a time. `client`: a client, or a function that gives one; by default `Client.shared()`. After a loss the call raises LeaseLost at its end. Not re-entrant."""
    if shared and slots is not None:
        raise Refused("a lock has readers or slots: give `shared` or `slots`, not both")
    mode = "shared" if shared else "exclusive" if slots is None else f"slot/{slots}"

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        template = _Template(name, function)

        if _is_async(function):

            @wraps(function)
            async def under_async_lock(*arguments: P.args, **named: P.kwargs) -> Any:
                filled, core = template.fill(arguments, named), await _client_async(client)
                async with await AsyncNamedLock(core, [(filled, mode)], **terms).acquire(timeout):
                    return await function(*arguments, **named)  # type: ignore[misc]

            return under_async_lock  # type: ignore[return-value]

        @wraps(function)
        def under_lock(*arguments: P.args, **named: P.kwargs) -> R:
            filled = template.fill(arguments, named)
            with NamedLock(_client(client), [(filled, mode)], **terms).acquire(timeout):
                value = function(*arguments, **named)
                if inspect.isawaitable(value):
                    if inspect.iscoroutine(value):
                        value.close()
                    raise TypeError(f"{_title(function)} returned an awaitable, whose work would run without the lock: make it `async def`")
                return value

        return under_lock

    return decorate
