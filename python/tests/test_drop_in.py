"""`lock_class`, beyond redis-py's own tests in `redis_py`."""

import asyncio
from collections.abc import Callable
from subprocess import Popen

import pytest
import redis
import redis.asyncio
from conftest import LIMIT, Server, eventually
from redis.exceptions import LockError, LockNotOwnedError

import leasehold_redis._redis_py
from leasehold_redis._redis_py import address

Program = Callable[[str], "Popen[str]"]


def test_lock_excludes_one_of_redis_py(server: Server) -> None:
    for first, second in ((leasehold_redis.Lock, redis.lock.Lock), (redis.lock.Lock, leasehold_redis.Lock)):
        ours = server.redis.lock("x", timeout=60, lock_class=first)
        theirs = server.redis.lock("x", timeout=60, lock_class=second)
        with ours:
            assert not theirs.acquire(blocking=False)
        with theirs:
            assert not ours.acquire(blocking=False)


def test_lock_without_a_timeout_is_renewed_while_held(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasehold_redis._redis_py, "RENEWED", 6.0)
    lock = server.redis.lock("x", lock_class=leasehold_redis.Lock)
    with lock:
        first = lock.fence
        server.redis.pexpire("x", 600_000)
        # The next renewal sets the TTL again.
        eventually(lambda: server.redis.pttl("x") <= 6_000)
        assert not lock.is_lost
    with lock:
        assert lock.fence > first
    lock.acquire()
    del lock
    eventually(lambda: not server.redis.exists("x"))


def test_loss_is_told_before_the_release(server: Server) -> None:
    lock = server.redis.lock("x", timeout=6, lock_class=leasehold_redis.Lock)
    lock.acquire()
    server.redis.delete("x")
    with pytest.raises(LockNotOwnedError):
        lock.extend(6)
    assert lock.is_lost


def test_extensions_add_up(server: Server) -> None:
    with server.redis.lock("x", timeout=600, lock_class=leasehold_redis.Lock) as lock:
        for _ in range(100):
            lock.extend(3)
        assert 870_000 < server.redis.pttl("x") <= 910_000
        lock.extend(600, replace_ttl=True)
        lock.extend(60)
        assert 630_000 < server.redis.pttl("x") <= 670_000


def test_lock_with_a_timeout_outlives_its_object_and_program(server: Server, program: Program) -> None:
    server.redis.lock("x", timeout=60, lock_class=leasehold_redis.Lock).acquire()
    asked = program("""
import leasehold_redis, redis
lock = redis.Redis.from_url(url).lock("y", timeout=60, lock_class=leasehold_redis.Lock)
print(lock.acquire())
""")
    assert asked.communicate(timeout=LIMIT)[0] == "True\n"
    for name in ("x", "y"):
        lock = server.redis.lock(name, lock_class=leasehold_redis.Lock)
        assert not lock.acquire(blocking_timeout=1)
        assert 30_000 < server.redis.pttl(name) <= 60_000


def test_forked_child_has_a_client_of_its_own(server: Server, program: Program) -> None:
    parent = program("""
import leasehold_redis, os, redis
client = redis.Redis.from_url(url)
lock = client.lock("x", lock_class=leasehold_redis.Lock)
assert lock.acquire()
if os.fork() == 0:
    try:
        lock.release()
    except redis.exceptions.LockError as error:
        print("parent" if "forked" in str(error) else error)
    other = client.lock("y", lock_class=leasehold_redis.Lock)
    print(client.lock("x", lock_class=leasehold_redis.Lock).acquire(blocking=False), other.acquire(), flush=True)
    other.release()
    os._exit(0)
os.wait()
lock.release()
print("released")
""")
    assert parent.communicate(timeout=LIMIT)[0] == "parent\nFalse True\nreleased\n"


def test_token_of_a_caller_is_refused(server: Server) -> None:
    with pytest.raises(LockError, match="token"):
        server.redis.lock("x", lock_class=leasehold_redis.Lock).acquire(token="mine")


def test_server_that_has_gone_is_a_connection_error(own_server: Server) -> None:
    client = redis.Redis(port=own_server.port)
    lock = client.lock("x", lock_class=leasehold_redis.Lock)
    own_server.stop()
    with pytest.raises(redis.exceptions.ConnectionError):
        lock.acquire()


async def test_tasks_of_one_client_share_a_connection_and_take_turns(server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port)
    before, counted = server.redis.info("stats")["total_connections_received"], [0]

    async def work() -> None:
        async with client.lock("x", lock_class=leasehold_redis.AsyncLock):
            now = counted[0]
            await asyncio.sleep(0)
            counted[0] = now + 1

    await asyncio.gather(*(work() for _ in range(64)))
    assert counted == [64]
    # Only a connection of the locks has joined: the client of redis-py has sent nothing.
    assert server.redis.info("stats")["total_connections_received"] == before + 1
    await client.aclose()


async def test_cancelled_release_is_awaited_by_the_next_one(server: Server) -> None:
    client = redis.asyncio.Redis(port=server.port)
    lock = client.lock("x", lock_class=leasehold_redis.AsyncLock)
    await lock.acquire()
    releasing = asyncio.create_task(lock.release())
    await asyncio.sleep(0)
    releasing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await releasing
    assert lock.local.token
    await lock.release()
    assert not await lock.locked()
    await client.aclose()


def test_address_is_that_of_the_client() -> None:
    assert address(redis.Redis()) == "redis://localhost:6379/0"
    assert address(redis.Redis(host="::1", port=1, db=2, username="u@", password="p/")) == "redis://u%40:p%2F@[::1]:1/2"
    assert address(redis.asyncio.Redis(password="p")) == "redis://:p@localhost:6379/0"
    assert address(redis.Redis(unix_socket_path="/a b", db=1, password="p")) == "unix:/a%20b?db=1&pass=p"
    assert address(redis.Redis(ssl=True, ssl_ca_certs="/ca.pem")) == "rediss://localhost:6379/0?tls_ca=%2Fca.pem"
    sentinel: redis.Redis = redis.sentinel.Sentinel([("localhost", 1)]).master_for("primary")  # type: ignore[no-untyped-call]
    for refused in (redis.Redis(ssl=True, ssl_cert_reqs="none"), sentinel):
        with pytest.raises(LockError, match="leasehold_redis"):
            address(refused)


def test_user_without_a_password_logs_in(own_server: Server) -> None:
    own_server.redis.acl_setuser("guest", enabled=True, nopass=True, keys=["*"], channels=["*"], categories=["+@all"])
    client = redis.Redis(port=own_server.port, username="guest")
    with client.lock("x", lock_class=leasehold_redis.Lock):
        # The client of redis-py has sent nothing.
        assert "guest" in {connection["user"] for connection in own_server.redis.client_list()}


def test_subclass_may_name_another_server(server: Server) -> None:
    class Elsewhere(leasehold_redis.Lock):
        url = f"{server.url}/1"

    server.redis.set("x", "of another program", ex=600)
    there = redis.Redis.from_url(Elsewhere.url)
    lock = server.redis.lock("x", timeout=60, lock_class=Elsewhere)
    assert not lock.locked()
    lock.acquire()
    lock.extend(60)
    assert 90_000 < there.pttl("x") <= 130_000
    assert lock.locked()
    assert lock.owned()
    there.set("x", "theirs")
    assert lock.locked()
    assert not lock.owned()
    with pytest.raises(LockNotOwnedError):
        lock.release()
    there.close()


async def test_subclass_of_the_async_lock_may_name_another_server(server: Server) -> None:
    class Elsewhere(leasehold_redis.AsyncLock):
        url = f"{server.url}/1"

    server.redis.set("x", "of another program", ex=600)
    client = redis.asyncio.Redis(port=server.port)
    there = redis.Redis.from_url(Elsewhere.url)
    lock = client.lock("x", timeout=60, lock_class=Elsewhere)
    assert not await lock.locked()
    await lock.acquire()
    await lock.extend(60)
    assert 90_000 < there.pttl("x") <= 130_000
    assert await lock.locked()
    assert await lock.owned()
    there.delete("x")
    assert not await lock.owned()
    assert not await lock.locked()
    there.close()
    await client.aclose()


def test_locks_of_two_addresses_beside_one_client_keep_their_connections(server: Server) -> None:
    class Elsewhere(leasehold_redis.Lock):
        url = f"{server.url}/1"

    client = redis.Redis(port=server.port)
    before = server.redis.info("stats")["total_connections_received"]
    for _ in range(3):
        with client.lock("x", lock_class=Elsewhere), client.lock("x", lock_class=leasehold_redis.Lock):
            pass
    assert server.redis.info("stats")["total_connections_received"] == before + 2


def test_server_that_redis_py_cannot_ask_is_named(server: Server) -> None:
    class Elsewhere(leasehold_redis.Lock):
        url = "redis+quorum://:secret@a,b,c"

    with pytest.raises(LockError, match="a client of that server") as raised:
        server.redis.lock("x", lock_class=Elsewhere).locked()
    assert "secret" not in str(raised.value)


def test_what_redis_py_takes_and_we_refuse_is_a_lock_error(server: Server) -> None:
    lock = server.redis.lock("x", timeout=60, lock_class=leasehold_redis.Lock)
    lock.acquire()
    other = server.redis.lock("x", timeout=60, lock_class=leasehold_redis.Lock)
    other.local.token = lock.local.token
    for refused, said in (
        (other.release, "Only the object that has acquired"),
        (lambda: lock.extend(86_400), "10 ms to 24 h"),
        (server.redis.lock("y", timeout=86_401, lock_class=leasehold_redis.Lock).acquire, "10 ms to 24 h"),
        (server.redis.lock("y", timeout=0.001, lock_class=leasehold_redis.Lock).acquire, "10 ms to 24 h"),
        (server.redis.lock("y{", lock_class=leasehold_redis.Lock).acquire, "braces"),
        (server.redis.lock("y" * 513, lock_class=leasehold_redis.Lock).acquire, "512 bytes"),
    ):
        with pytest.raises(LockError, match=said):
            refused()
    assert lock.owned()


def test_name_that_is_no_text_is_refused(server: Server) -> None:
    assert server.redis.lock("é".encode(), timeout=6, lock_class=leasehold_redis.Lock).acquire()  # type: ignore[arg-type]
    assert server.redis.exists("é")
    with pytest.raises(LockError, match="UTF-8"):
        server.redis.lock(b"\xff", lock_class=leasehold_redis.Lock).acquire()  # type: ignore[arg-type]
