"""Locks for threads."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from subprocess import Popen

import pytest
from conftest import LIMIT, Server, eventually

from leasehold_redis import Client, Lease, LeaseLost, Refused, StoreUnavailable, WaitTimeout

Program = Callable[[str], "Popen[str]"]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.connect(server.url) as client:
        yield client


def test_block_holds_the_lock_and_releases_it(client: Client) -> None:
    mutex = client.mutex("x")
    with mutex as lease:
        assert mutex.try_acquire() is None
        assert 0 < lease.check() <= 30
        assert (lease.name, lease.mode, lease.slot) == ("x", "exclusive", None)
    with mutex as later:
        assert later.fence > lease.fence


def test_limit_of_a_wait_says_that_the_lock_was_never_held(client: Client) -> None:
    with client.mutex("x"):
        for limit in (0, 0.05):
            with pytest.raises(WaitTimeout) as raised:
                client.mutex("x").acquire(timeout=limit)
            assert (raised.value.held, raised.value.may_retry) == (False, True)
            assert isinstance(raised.value, TimeoutError)


def test_one_lock_object_serves_threads_in_turn(client: Client) -> None:
    mutex, inside, most = client.mutex("x"), [], []

    def work() -> None:
        for _ in range(20):
            with mutex:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert (len(most), max(most)) == (160, 1)


def elsewhere(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(LIMIT)


def test_block_may_end_in_another_thread(client: Client) -> None:
    mutex = client.mutex("x")
    elsewhere(mutex.__enter__)
    mutex.__exit__(None, None, None)
    assert client.mutex("x").try_acquire()


def test_block_that_ends_in_another_thread_beside_others_says_what_to_do(client: Client) -> None:
    seats = client.semaphore("seats", 2)
    elsewhere(seats.__enter__)
    elsewhere(seats.__enter__)
    with pytest.raises(RuntimeError, match=r'"seats".*still held.*acquire\(\) and release\(\)'):
        seats.__exit__(None, None, None)
    assert client.semaphore("seats", 2).try_acquire() is None


def test_loss_is_an_event_and_ends_the_block(client: Client, server: Server) -> None:
    heard: list[bool] = []
    with pytest.raises(LeaseLost) as raised, client.mutex("x", ttl=6) as lease:
        assert not lease.lost.is_set()
        assert lease.lost.error is None
        waiting = threading.Thread(target=lambda: heard.append(lease.lost.wait()))
        waiting.start()
        assert not lease.lost.wait(timeout=0.05)
        server.redis.delete("x")
        waiting.join(LIMIT)
        assert heard == [True]
        for raises in (lease.check, lease.release, lease.release):
            with pytest.raises(LeaseLost):
                raises()
    assert (raised.value.held, raised.value.may_retry) == (True, True)
    assert str(raised.value) == str(lease.lost.error)


def test_loss_that_only_the_release_finds_ends_the_block(client: Client, server: Server) -> None:
    with pytest.raises(LeaseLost), client.mutex("x"):
        server.redis.delete("x")


def test_error_of_a_block_comes_before_the_loss(client: Client, server: Server) -> None:
    with pytest.raises(KeyError), client.mutex("x"):
        server.redis.delete("x")
        raise KeyError
    with pytest.raises(KeyError), client.mutex("x"):
        raise KeyError
    assert client.mutex("x").try_acquire()


def test_released_lease_is_not_lost_and_refuses_more(client: Client) -> None:
    with client.mutex("x") as lease:
        lease.release()
    assert not lease.lost.wait()
    for raises in (lease.check, lease.release, lambda: lease.extend(6)):
        with pytest.raises(Refused, match="was released") as raised:
            raises()
        assert (raised.value.held, raised.value.may_retry) == (True, False)


def test_dropped_lease_is_released(client: Client, server: Server) -> None:
    client.mutex("x").acquire()
    eventually(lambda: not server.redis.exists("x"))


def test_extend_sets_the_time_left(client: Client, server: Server) -> None:
    with client.mutex("x") as lease:
        lease.extend(600)
        assert 500 < lease.check() <= 600
        assert server.redis.pttl("x") > 500_000


def test_kinds_of_locks(client: Client) -> None:
    table = client.rw_lock("table")
    with table.read() as one, table.read() as other:
        assert one.fence == other.fence
        assert table.write().try_acquire() is None
    seats = client.semaphore("seats", 2)
    with seats as one, seats as other:
        assert [one.slot, other.slot] == [1, 2]
        with pytest.raises(Refused):
            one.fence
        assert seats.try_acquire() is None
    with client.all("b", "a") as both:
        assert both.names == ["a", "b"]
        assert client.mutex("b").try_acquire() is None
    assert client.mutex("b").try_acquire()


def test_firing_is_done_by_one_run(client: Client, server: Server) -> None:
    fences: list[int] = []

    def work(lease: Lease) -> str:
        fences.append(lease.fence)
        return "pages"

    firing = client.once("nightly", "2026-11-27", note="reporter")
    assert firing.past() is None
    with pytest.raises(ZeroDivisionError):
        firing.run(lambda _: 1 / 0)
    turn = firing.run(work)
    assert (turn.is_mine, turn.value, turn.past) == (True, "pages", None)
    with Client.connect(server.url) as other:
        for later in (other.once("nightly", "2026-11-27").run(work), other.once("nightly", "2026-11-27").try_run(work)):
            assert later is not None
            assert (later.is_mine, later.value) == (False, None)
            assert later.past == firing.past()
    past = firing.past()
    assert past is not None
    assert (past.fence, past.number, past.is_done) == (fences[0], 2, True)
    assert "reporter" in past.by
    assert abs(past.at - time.time()) < LIMIT
    assert len(fences) == 1
    assert client.mutex("nightly").try_acquire()


def test_run_that_loses_its_lease_leaves_the_firing_open(client: Client, server: Server) -> None:
    firing = client.once("nightly", "2026-11-27", tries=2)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            firing.run(lambda _: server.redis.delete("nightly"))
    # As many runs have begun as may.
    turn = firing.run(lambda _: 1)
    assert not turn.is_mine
    assert turn.past and (turn.past.number, turn.past.is_done) == (2, False)


def test_firing_waits_for_the_lock_of_another_one(client: Client) -> None:
    with client.mutex("nightly"):
        firing = client.once("nightly", "2026-11-27")
        assert firing.try_run(lambda _: 1) is None
        with pytest.raises(WaitTimeout):
            firing.run(lambda _: 1, timeout=0.05)


def test_release_after_the_loss_of_one_releases_the_others(client: Client, server: Server) -> None:
    both = client.all("a", "b", ttl=6).acquire()
    server.redis.delete("b")
    assert both.lost.wait(LIMIT)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            both.release()
        assert not server.redis.exists("a")


def test_bad_input_is_refused_without_a_retry(client: Client) -> None:
    for wrong in (
        lambda: client.mutex("a{b").acquire(),
        lambda: client.mutex("x", ttl=0.001).acquire(),
        lambda: client.semaphore("x", 0).acquire(),
        lambda: Client.connect("nonsense:"),
    ):
        with pytest.raises(Refused) as raised:
            wrong()
        assert (raised.value.held, raised.value.may_retry) == (False, False)
    for ttl in (-1, float("nan")):
        with pytest.raises(ValueError, match="not a time"):
            client.mutex("x", ttl=ttl).acquire()


def test_server_that_has_gone_is_unavailable(own_server: Server) -> None:
    client = Client.connect(own_server.url)
    own_server.stop()
    with pytest.raises(StoreUnavailable) as raised:
        client.mutex("x").acquire()
    assert (raised.value.held, raised.value.may_retry) == (False, True)


def test_closed_client_releases_its_locks_and_refuses(server: Server) -> None:
    client = Client.connect(server.url)
    lease = client.mutex("x").acquire()
    assert client.close()
    assert not server.redis.exists("x")
    assert lease.lost.is_set()
    with pytest.raises(Refused):
        client.mutex("x").acquire()


def test_wait_is_watched_and_lets_other_threads_run(client: Client) -> None:
    lease = client.mutex("x").acquire()
    heard: list[tuple[str, int, float]] = []

    def release() -> None:
        eventually(lambda: heard)
        lease.release()

    thread = threading.Thread(target=release)
    thread.start()
    client.mutex("x").acquire(on_wait=lambda *status: heard.append(status)).release()
    thread.join()
    name, ahead, waited = heard[0]
    assert (name, ahead) == ("x", 0)
    assert waited >= 0


def test_renewals_go_on_while_the_program_keeps_the_gil(client: Client) -> None:
    heard: list[object] = []
    with client.mutex("x", ttl=6) as lease, client.mutex("y", ttl=6):
        # Messages to Python wait for the GIL meanwhile.
        waiting = threading.Thread(target=client.mutex("y").acquire, kwargs={"on_wait": lambda *status: heard.append(status)}, daemon=True)
        waiting.start()
        eventually(lambda: heard)
        ctypes.PyDLL(None).sleep(8)
        assert lease.check() > 0


def test_interrupt_ends_a_wait_and_leaves_the_queue(client: Client, program: Program) -> None:
    lease = client.mutex("x").acquire()
    waiter = program("""
import leasehold_redis, os, signal
mutex = leasehold_redis.Client.connect(url).mutex("x")
try:
    mutex.acquire(on_wait=lambda *_: os.kill(os.getpid(), signal.SIGINT))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    input()
    print(mutex.try_acquire())
""")
    assert waiter.stdout and waiter.stdout.readline() == "interrupted\n"
    lease.release()
    # The waiter that was interrupted does not get it.
    with client.mutex("x"):
        assert waiter.communicate("\n", LIMIT)[0] == "None\n"


def test_end_of_a_program_releases_its_locks(client: Client, program: Program, server: Server) -> None:
    holder = program("""
import leasehold_redis
lease = leasehold_redis.Client.connect(url).mutex("x").acquire()
keep = [lease]; keep.append(keep)
""")
    assert holder.wait(LIMIT) == 0
    assert not server.redis.exists("x")


def test_end_of_a_program_releases_what_other_threads_hold(program: Program, server: Server) -> None:
    holder = program("""
import leasehold_redis, threading
held = threading.Barrier(4)

def block(lock):
    with lock:
        held.wait()
        threading.Event().wait()

def lease():
    lease = leasehold_redis.Client.connect(url).mutex("lease").acquire()
    held.wait()
    threading.Event().wait()

def once():
    leasehold_redis.Client.connect(url).once("once", "today").run(lambda _: (held.wait(), threading.Event().wait()))

threads = (block, (leasehold_redis.Client.connect(url).mutex("block"),)), (lease, ()), (once, ())
for work, arguments in threads:
    threading.Thread(target=work, args=arguments, daemon=True).start()
held.wait()
""")
    assert holder.wait(LIMIT) == 0
    assert [name for name in ("block", "lease", "once") if server.redis.get(name)] == []


def test_program_ends_while_a_callback_runs(program: Program) -> None:
    waiter = program("""
import leasehold_redis, sys, threading, time
client = leasehold_redis.Client.connect(url)
lease, heard = client.mutex("x").acquire(), threading.Event()

def on_wait(*_):
    heard.set()
    time.sleep(0.2)

def wait():
    try:
        client.mutex("x").acquire(on_wait=on_wait)
    except leasehold_redis.LeaseholdError:
        pass  # The end of the program closes the client.

class SlowEnd:
    def __del__(self, sleep=time.sleep):
        sleep(1)  # The callback would return meanwhile, to a Python that has ended its threads.

sys.keep = SlowEnd()
threading.Thread(target=wait, daemon=True).start()
heard.wait()
""")
    assert waiter.wait(LIMIT) == 0


def test_callback_that_does_not_return_keeps_no_program_from_its_end(program: Program) -> None:
    waiter = program("""
import leasehold_redis, threading
client = leasehold_redis.Client.connect(url)
lease, heard = client.mutex("x").acquire(), threading.Event()

def on_wait(*_):
    heard.set()
    threading.Event().wait()

def wait():
    try:
        client.mutex("x").acquire(on_wait=on_wait)
    except leasehold_redis.LeaseholdError:
        pass  # The end of the program closes the client.

threading.Thread(target=wait, daemon=True).start()
heard.wait()
""")
    assert waiter.wait(LIMIT) == 0


def test_threads_share_a_lease_without_a_deadlock(program: Program) -> None:
    shares = program("""
import leasehold_redis, sys, threading
client = leasehold_redis.Client.connect(url)
sys.setswitchinterval(1e-6)
mutex = client.mutex("x")
leases, is_over = [mutex.acquire()], threading.Event()

def checks():
    while not is_over.is_set():
        try:
            leases[-1].check()
        except leasehold_redis.LeaseholdError:
            pass

threads = [threading.Thread(target=checks) for _ in range(3)]
for thread in threads:
    thread.start()
leases[0].release()
for _ in range(300):
    with mutex as lease:
        leases.append(lease)
is_over.set()
for thread in threads:
    thread.join()
""")
    assert shares.wait(LIMIT) == 0


def test_client_of_the_parent_is_dead_in_a_forked_child(program: Program, server: Server) -> None:
    parent = program("""
import gc, leasehold_redis as lh, os, sys
client = lh.Client.connect(url)
mutex = client.mutex("x")
lease = mutex.acquire()
waiting = client._core.acquire([("x", "exclusive")], ttl=30, note="", renew=True, max_hold=None, limit=None, on_wait=None)
child = os.fork()
if child == 0:
    for used in (mutex.acquire, lease.check, lease.release, lambda: lease.extend(30), client.close, lease.lost.is_set, waiting.wait):
        try:
            used()
        except lh.ForkedClient as error:
            assert str(os.getppid()) in str(error) and not error.may_retry, error
        else:
            os._exit(1)
    waiting.close()
    del waiting, lease, mutex, client
    gc.collect()
    with lh.Client.connect(url) as own, own.mutex("y"):
        assert own.mutex("x").try_acquire() is None
    sys.exit(7)  # With all that Python does at its end.
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), lease.check() > 0, lease.fence, flush=True)
lease.release()
""")
    told, _ = parent.communicate(timeout=LIMIT)
    code, is_held, _fence = told.split()
    assert (code, is_held) == ("7", "True")
    assert parent.returncode == 0
    assert not server.redis.exists("x")


def test_sub_interpreter_is_refused(program: Program) -> None:
    process = program("""
try:
    import _interpreters as interpreters
    other = interpreters.create("legacy")
except ImportError:
    import _xxsubinterpreters as interpreters
    other = interpreters.create(isolated=False)
import leasehold_redis
code = '''
try:
    import leasehold_redis
except ImportError as error:
    print("refused", flush=True)
else:
    print("taken", flush=True)
'''
interpreters.run_string(other, code)
""")
    assert process.communicate(timeout=LIMIT)[0] == "refused\n"
