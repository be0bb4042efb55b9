"""Functions whose values are cached."""

import asyncio
import contextvars
import json
import pickle
import threading
from collections.abc import Callable, Iterator
from subprocess import Popen
from typing import Any

import pytest
from conftest import LIMIT, Server, eventually

from leasehold_redis import AsyncClient, Client, LoadFailed, Refused, WaitTimeout, cached

Program = Callable[[str], "Popen[str]"]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.connect(server.url) as client:
        yield client


def prolong_back_off(server: Server, key: str) -> None:
    """After a failed load, nobody tries again for a minute."""
    entry = f"{{{key}}}:lh-cache"
    eventually(lambda: server.redis.hexists(entry, "back_off_until"))
    server.redis.hincrby(entry, "back_off_until", 60_000)


def test_value_is_loaded_once_for_each_key_and_all_processes(client: Client, server: Server) -> None:
    loads: list[int] = []

    @cached("user:{id}", client=client)
    def user(id: int) -> bytes:
        loads.append(id)
        return b"user %d" % id

    with Client.connect(server.url) as other:

        @cached("user:{id}", client=other)
        def elsewhere(id: int) -> bytes:
            raise AssertionError

        assert [user(7), user(7), user(id=8), elsewhere(7)] == [b"user 7", b"user 7", b"user 8", b"user 7"]
    assert loads == [7, 8]
    assert user.__name__ == "user"


def test_callers_of_a_missing_value_share_one_load(client: Client) -> None:
    loads, values, go = [], [], threading.Event()

    @cached("page", client=client)
    def page() -> str:
        loads.append(1)
        go.wait(LIMIT)
        return "<h1>hello</h1>"

    threads = [threading.Thread(target=lambda: values.append(page())) for _ in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: loads)
    go.set()
    for thread in threads:
        thread.join(LIMIT)
    assert (values, loads) == (["<h1>hello</h1>"] * 8, [1])


def test_invalidated_value_is_served_stale_while_one_loads(client: Client) -> None:
    loads, go = [0], threading.Event()

    @cached("count", client=client, loads=json.loads, dumps=json.dumps)
    def count() -> int:
        loads[0] += 1
        assert loads[0] == 1 or go.wait(LIMIT)
        return loads[0]

    assert count() == 1
    count.invalidate()
    assert count() == 1
    go.set()
    eventually(lambda: count() == 2)
    count.remove()
    assert count() == 3


def test_stale_value_is_not_enough_if_it_must_be_fresh(client: Client) -> None:
    loads = [0]

    @cached("count", client=client, must_be_fresh=True, loads=pickle.loads, dumps=pickle.dumps)
    def count() -> int:
        loads[0] += 1
        return loads[0]

    assert count() == 1
    count.invalidate()
    assert count() == 2


def test_failed_load_says_why_and_when_to_try_again(client: Client, server: Server) -> None:
    @cached("user:{id}", client=client)
    def user(id: int) -> bytes:
        raise KeyError(id)

    with pytest.raises(LoadFailed, match="user:7.*KeyError: 7") as raised:
        user(7)
    assert isinstance(raised.value.__cause__, KeyError)
    assert 0 < raised.value.retry_after <= 1
    assert (raised.value.held, raised.value.may_retry) == (False, True)
    prolong_back_off(server, "user:7")
    with Client.connect(server.url) as other:

        @cached("user:{id}", client=other)
        def elsewhere(id: int) -> bytes:
            raise AssertionError("during the back-off")

        with pytest.raises(LoadFailed, match="KeyError: 7") as raised:
            elsewhere(7)
        assert raised.value.__cause__ is None
        assert 30 < raised.value.retry_after <= 61


def test_limit_of_a_wait_for_another_load(client: Client, server: Server) -> None:
    go, begun = threading.Event(), threading.Event()

    @cached("page", client=client)
    def page() -> bytes:
        begun.set()
        go.wait(LIMIT)
        return b"page"

    loading = threading.Thread(target=page)
    loading.start()
    begun.wait(LIMIT)
    with Client.connect(server.url) as other:

        @cached("page", client=other, timeout=0.05)
        def elsewhere() -> bytes:
            raise AssertionError

        with pytest.raises(WaitTimeout, match="loaded by another"):
            elsewhere()
    go.set()
    loading.join(LIMIT)


def test_value_has_the_type_that_the_function_says(client: Client) -> None:
    @cached("number", client=client)
    def number() -> int:
        return 7

    with pytest.raises(LoadFailed, match=r"number returned int.*dumps") as raised:
        number()
    assert isinstance(raised.value.__cause__, TypeError)
    with pytest.raises(TypeError, match="both"):
        cached("x", dumps=json.dumps)(number)
    with pytest.raises(Refused, match='"id"'):

        @cached("user:{id}", client=client)
        def user(number: int) -> bytes:
            return b""


def test_value_that_cannot_be_read_is_loaded_anew(client: Client) -> None:
    loads: list[int] = []

    def brace() -> bytes:
        loads.append(1)
        return b"{"

    @cached("number", client=client, dumps=json.dumps, loads=json.loads)
    def number() -> int:
        return 7

    @cached("number", client=client, dumps=json.dumps, loads=json.loads)
    async def number_async() -> int:
        return 8

    older = cached("number", client=client)(brace)
    assert older() == b"{"
    assert [number(), number()] == [7, 7]
    number.remove()
    assert older() == b"{"
    assert asyncio.run(number_async()) == number() == 8
    number.remove()
    loads.clear()
    with pytest.raises(json.JSONDecodeError):
        cached("number", client=client, dumps=bytes, loads=json.loads)(brace)()
    assert loads == [1, 1]


def test_key_of_another_program_is_left_alone(client: Client, server: Server) -> None:
    server.redis.set("x", "theirs")

    @cached("x", client=client)
    def x() -> bytes:
        return b"ours"

    with pytest.raises(Refused, match="left alone"):
        x()
    assert server.redis.get("x") == b"theirs"


def test_method_loads_in_the_context_of_its_caller(client: Client) -> None:
    language = contextvars.ContextVar("language", default="en")

    class Shop:
        name = "east"

        @cached("shops:{self.name}:{page}", client=lambda: client)
        def page(self, page: str) -> str:
            return f"{self.name} {page} {language.get()}"

    language.set("de")
    shop = Shop()
    assert shop.page("home") == "east home de"
    language.set("fr")
    assert shop.page(page="home") == "east home de"
    shop.page.remove("home")
    assert shop.page("home") == "east home fr"


async def test_coroutines_share_one_load_in_their_loop(server: Server) -> None:
    loads: list[Any] = []
    async with await AsyncClient.connect(server.url) as client:

        @cached("user:{id}", client=client)
        async def user(id: int) -> str:
            await asyncio.sleep(0)
            loads.append(asyncio.get_running_loop())
            return f"user {id}"

        assert await asyncio.gather(*(user(7) for _ in range(16))) == ["user 7"] * 16
        assert loads == [asyncio.get_running_loop()]
        await user.invalidate(7)
        assert await user(7) == "user 7"
        await asyncio.to_thread(eventually, lambda: len(loads) == 2)
        await user.remove(7)
        assert await user(7) == "user 7"
        assert len(loads) == 3

        @cached("order:{id}", client=client)
        async def order(id: int) -> bytes:
            raise KeyError(id)

        with pytest.raises(LoadFailed, match="KeyError"):
            await order(7)


async def test_load_goes_on_after_its_caller_is_cancelled(server: Server) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    async with await AsyncClient.connect(server.url) as client:

        @cached("page", client=client)
        async def page() -> bytes:
            begun.set()
            await go.wait()
            return b"page"

        caller = asyncio.create_task(page())
        await begun.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        go.set()
        assert await page() == b"page"


def test_load_that_its_loop_cancels_fails(client: Client, server: Server) -> None:
    begun = asyncio.Event()

    @cached("page", client=client)
    async def page() -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return b""

    async def abandoned() -> None:
        caller = asyncio.create_task(page())
        await asyncio.wait_for(begun.wait(), LIMIT)
        caller.cancel()

    # asyncio.run cancels the load at its end.
    asyncio.run(abandoned())
    prolong_back_off(server, "page")

    @cached("page", client=client)
    def again() -> bytes:
        raise AssertionError("during the back-off")

    with pytest.raises(LoadFailed, match="CancelledError"):
        again()


def test_default_client_loads_for_a_forked_child_too(program: Program, server: Server) -> None:
    process = program("""
import leasehold_redis as lh, os
os.environ["LEASEHOLD_URL"] = url

@lh.cached("pid:{name}")
def pid(name: str) -> str:
    return str(os.getpid())

print(pid("a") == str(os.getpid()), flush=True)
if os.fork() == 0:
    print(pid("a") == str(os.getppid()), pid("b") == str(os.getpid()), flush=True)
    os._exit(0)
os.wait()
""")
    assert process.communicate(timeout=LIMIT)[0] == "True\nTrue True\n"
