"""Locks for asyncio."""

import asyncio
import ctypes
import gc
from collections.abc import AsyncIterator

import pytest
from conftest import LIMIT, Server, eventually

from leasehold_redis import AsyncClient, AsyncLease, LeaseLost, Refused, WaitTimeout
from leasehold_redis._client import _settle


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with await AsyncClient.connect(server.url) as client:
        yield client


async def waiting(client: AsyncClient, name: str) -> "asyncio.Task[object]":
    """A task that waits in the queue of this lock."""
    queued = asyncio.Event()
    task = asyncio.create_task(client.mutex(name).acquire(on_wait=lambda *_: queued.set()))
    await queued.wait()
    return task


async def test_block_holds_the_lock_and_releases_it(client: AsyncClient) -> None:
    mutex = client.mutex("x")
    async with mutex as lease:
        assert await mutex.try_acquire() is None
        with pytest.raises(WaitTimeout):
            await mutex.acquire(timeout=0.05)
        assert 0 < lease.check() <= 30
    async with mutex as later:
        assert later.fence > lease.fence


async def test_block_may_end_in_another_task(client: AsyncClient) -> None:
    mutex = client.mutex("x")
    await asyncio.create_task(mutex.__aenter__())
    await mutex.__aexit__(None, None, None)
    assert await client.mutex("x").try_acquire()


async def test_tasks_exclude_each_other_through_one_object(client: AsyncClient) -> None:
    mutex, inside, most = client.mutex("x"), [], []

    async def work() -> None:
        for _ in range(20):
            async with mutex:
                inside.append(1)
                await asyncio.sleep(0)
                most.append(len(inside))
                inside.pop()

    await asyncio.gather(*(work() for _ in range(16)))
    assert (len(most), max(most)) == (320, 1)


async def test_loss_is_awaitable_and_ends_the_block(client: AsyncClient, server: Server) -> None:
    with pytest.raises(LeaseLost):
        async with client.mutex("x", ttl=6) as lease:
            server.redis.delete("x")
            lost = await lease.lost
            assert isinstance(lost, LeaseLost)
            assert await lease.lost.wait()
            assert lease.lost.is_set()
            with pytest.raises(LeaseLost):
                lease.check()


async def test_wait_for_a_loss_ends_with_the_release(client: AsyncClient) -> None:
    lease = await client.mutex("x").acquire()
    heard = asyncio.ensure_future(lease.lost)
    await asyncio.sleep(0)
    await lease.release()
    assert await heard is None
    assert not await lease.lost.wait()
    with pytest.raises(Refused):
        await lease.release()


async def test_cancelled_waiter_leaves_the_queue(client: AsyncClient, server: Server) -> None:
    other = await AsyncClient.connect(server.url)
    lease = await other.mutex("x").acquire()
    task = await waiting(client, "x")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await lease.release()
    async with other, await other.mutex("x").acquire(timeout=LIMIT):
        pass


async def test_request_that_is_cancelled_at_any_poll_leaks_nothing(client: AsyncClient, server: Server) -> None:
    loop = asyncio.get_running_loop()
    for polls in range(6):
        call = client.mutex("x")._ask(None)
        for _ in range(polls):
            future = loop.create_future()
            if call.poll(loop, _settle, future):
                break
            await future
        call.close()
        await asyncio.to_thread(eventually, lambda: not server.redis.exists("x"))
        with pytest.raises(Refused):
            call.wait()


async def test_cancelled_release_goes_on(client: AsyncClient, server: Server) -> None:
    lease = await client.mutex("x").acquire()
    releasing = asyncio.create_task(lease.release())
    await asyncio.sleep(0)
    releasing.cancel()
    await asyncio.to_thread(eventually, lambda: not server.redis.exists("x"))


async def test_firing_is_done_by_one_task(client: AsyncClient, server: Server) -> None:
    async def work(lease: AsyncLease) -> int:
        await asyncio.sleep(0)
        return lease.fence

    turns = await asyncio.gather(*(client.once("nightly", "2026-11-27").run(work) for _ in range(8)))
    (mine,) = (turn.value for turn in turns if turn.is_mine)
    past = await client.once("nightly", "2026-11-27").past()
    assert past and (past.fence, past.is_done) == (mine, True)
    assert {turn.past for turn in turns if not turn.is_mine} == {past}

    async def lost(_: AsyncLease) -> None:
        server.redis.delete("nightly")

    with pytest.raises(LeaseLost):
        await client.once("nightly", "2026-11-28").run(lost)
    async with client.mutex("nightly"):
        assert await client.once("nightly", "2026-11-28").try_run(work) is None


async def test_client_serves_other_loops(client: AsyncClient) -> None:
    async def elsewhere() -> int:
        async with client.mutex("x") as lease:
            return lease.fence

    lease = await client.mutex("x").acquire()
    other = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
    await asyncio.sleep(0.05)
    assert not other.done()
    await lease.release()
    assert await other > lease.fence


def test_loop_that_is_closed_leaves_the_queue(server: Server) -> None:
    async def abandoned() -> None:
        first = await AsyncClient.connect(server.url)
        second = await AsyncClient.connect(server.url)
        clients.extend((first, second))
        leases.append(await first.mutex("x").acquire())
        tasks.append(await waiting(second, "x"))

    clients: list[AsyncClient] = []
    leases: list[object] = []
    tasks: list[object] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(abandoned())
    loop.close()
    tasks.clear()
    gc.collect()
    # The dead waiter does not get it.
    leases.clear()
    eventually(lambda: not server.redis.exists("x"))
    for client in clients:
        assert asyncio.run(client.close())


async def test_renewals_go_on_while_the_loop_is_blocked(client: AsyncClient, server: Server) -> None:
    other = await AsyncClient.connect(server.url)
    async with client.mutex("x", ttl=6) as lease, client.mutex("y", ttl=6) as held:
        task = await waiting(other, "y")
        await held.release()
        # The other client's wake waits for the GIL meanwhile.
        ctypes.PyDLL(None).sleep(8)
        assert lease.check() > 0
        await task
    await other.close()


async def test_release_follows_an_extension_that_is_under_way(client: AsyncClient, server: Server) -> None:
    lease = await client.mutex("x").acquire()
    extends = asyncio.create_task(lease.extend(60))
    await asyncio.sleep(0)
    await lease.release()
    assert not server.redis.exists("x")
    await extends
