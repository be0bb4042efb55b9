"""Functions under a lock."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from subprocess import Popen

import pytest
from conftest import LIMIT, Server

from leasehold_redis import AsyncClient, Client, LeaseLost, Refused, WaitTimeout, cached, locked

Program = Callable[[str], "Popen[str]"]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.connect(server.url) as client:
        yield client


class Order:
    def __init__(self, number: int) -> None:
        self.number = number


def test_call_holds_the_lock_that_its_arguments_name(client: Client) -> None:
    busy: list[bool] = []

    @locked("orders:{order.number}:{kind}", client=client)
    def pack(order: Order, kind: str = "box", *parts: int) -> int:
        """Packs."""
        busy.append(client.mutex(f"orders:{order.number}:{kind}").try_acquire() is None)
        return len(parts)

    assert pack(Order(7)) == 0
    assert pack(Order(7), "bag", 1, 2) == 2
    assert pack(kind="bag", order=Order(8)) == 0
    assert busy == [True, True, True]
    assert (pack.__name__, pack.__doc__) == ("pack", "Packs.")
    with pytest.raises(TypeError, match="order"):
        pack()  # type: ignore[call-arg]
    assert client.mutex("orders:7:box").try_acquire()


def test_method_and_client_from_a_function(client: Client) -> None:
    class Shop:
        name = "east"

        @locked("shops:{self.name}", client=lambda: client)
        def open(self) -> bool:
            return client.mutex("shops:east").try_acquire() is None

    assert Shop().open()


def test_name_that_is_no_argument_is_refused_at_once(client: Client) -> None:
    def pack(id: int) -> None: ...

    for template, said in (("orders:{number}", '"number".*no argument of .*pack.*id'), ("orders:{}", '""'), ("orders:{0}", '"0"')):
        with pytest.raises(Refused, match=said):
            locked(template, client=client)(pack)
    with pytest.raises(Refused, match="not both"):
        locked("orders", shared=True, slots=2)

    def lines() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="generator"):
        locked("lines", client=client)(lines)


def test_limit_kind_and_terms_are_those_of_the_lock(client: Client, server: Server) -> None:
    @locked("x", client=client, timeout=0, ttl=600)
    def once_at_a_time() -> int:
        return int(server.redis.pttl("x"))

    @locked("x", client=client, timeout=0, shared=True)
    def reader() -> bool:
        return client.rw_lock("x").read().try_acquire() is not None

    @locked("x", client=client, timeout=0, slots=1)
    def worker() -> bool:
        return client.semaphore("x", 1).try_acquire() is None

    assert once_at_a_time() > 500_000
    assert reader()
    assert worker()
    with client.mutex("x"):
        for function in (once_at_a_time, reader, worker):
            with pytest.raises(WaitTimeout):
                function()


def test_loss_ends_the_call_and_its_own_error_comes_first(client: Client, server: Server) -> None:
    @locked("x", client=client)
    def lose(fails: bool) -> None:
        server.redis.delete("x")
        if fails:
            raise KeyError

    with pytest.raises(LeaseLost):
        lose(False)
    with pytest.raises(KeyError):
        lose(True)


async def test_coroutines_take_turns(server: Server) -> None:
    inside, most = [0], [0]
    async with await AsyncClient.connect(server.url) as client:

        @locked("orders:{id}", client=client)
        async def pack(id: int) -> int:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            await asyncio.sleep(0)
            inside[0] -= 1
            return id

        assert await asyncio.gather(*(pack(7) for _ in range(16))) == [7] * 16
        assert most == [1]
        async with client.mutex("orders:7"):
            assert await pack(8) == 8

        @locked("orders:{id}", client=client, timeout=0)
        async def lose(id: int) -> None:
            server.redis.delete("orders:7")

        with pytest.raises(LeaseLost):
            await lose(7)


async def test_callers_that_are_no_coroutine_functions_hold_the_lock(server: Server) -> None:
    async with await AsyncClient.connect(server.url) as client:

        async def is_busy() -> str:
            return "no" if await client.mutex("x").try_acquire() else "yes"

        @locked("x", client=client)
        @cached("value", client=client)
        async def kept() -> str:
            return await is_busy()

        class Work:
            async def __call__(self) -> str:
                return await is_busy()

        assert await kept() == "yes"
        assert await locked("x", client=client)(Work())() == "yes"
        assert await cached("work", client=client)(Work())() == "no"


def test_awaitable_of_a_plain_function_is_refused(client: Client) -> None:
    async def work() -> None:
        raise AssertionError("without the lock")

    @locked("x", client=client)
    def wrapper() -> Awaitable[None]:
        return work()

    with pytest.raises(TypeError, match=r"wrapper returned an awaitable.*async def"):
        wrapper()
    assert client.mutex("x").try_acquire()


def test_default_client_is_one_for_each_process(program: Program, server: Server) -> None:
    process = program("""
import asyncio, leasehold_redis as lh, os, redis, threading
os.environ["LEASEHOLD_URL"] = url
counter = redis.Redis.from_url(url)
before = counter.info("stats")["total_connections_received"]

@lh.locked("x")
def work():
    return counter.exists("x")

@lh.locked("x")
async def work_async():
    return counter.exists("x")

print(work(), work(), asyncio.run(work_async()), counter.info("stats")["total_connections_received"] - before, flush=True)
if os.fork() == 0:
    print(work(), asyncio.run(work_async()), flush=True)
    os._exit(0)
os.wait()
print(work())
""")
    assert process.communicate(timeout=LIMIT)[0] == "1 1 1 1\n1 1\n1\n"
    assert not server.redis.exists("x")


def test_first_calls_of_threads_take_turns(program: Program, server: Server) -> None:
    process = program("""
import leasehold_redis as lh, os, threading
os.environ["LEASEHOLD_URL"] = url
inside, most = [], []

@lh.locked("x")
def work():
    inside.append(1)
    most.append(len(inside))
    inside.pop()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(most), max(most))
""")
    assert process.communicate(timeout=LIMIT)[0] == "8 1\n"
    assert not server.redis.exists("x")


def test_default_client_without_an_address_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEASEHOLD_URL", raising=False)

    @locked("x")
    def work() -> None: ...

    with pytest.raises(Refused, match="LEASEHOLD_URL"):
        work()
