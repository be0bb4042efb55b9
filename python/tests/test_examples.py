"""The programs of `examples`, each in several processes on one server."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import LIMIT, Server, eventually

EXAMPLES = Path(__file__).parents[1] / "examples"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(server: Server, tmp_path: Path) -> Iterator[Start]:
    """Starts Python with these arguments, beside the examples."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **env: str) -> "subprocess.Popen[str]":
        env = {**os.environ, "LEASEHOLD_URL": server.url, "LEDGER": str(tmp_path / "ledger"), "STOCK": str(tmp_path), **env}
        with (tmp_path / f"log{len(started)}").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, *arguments], cwd=EXAMPLES, env=env, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        started.append(process)
        return process

    yield start
    for number, process in enumerate(started):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        print((tmp_path / f"log{number}").read_text())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except ConnectionError:
        return False


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", method=method)
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return answer.status, answer.read().decode()


def services(start: Start, *arguments: str) -> list[int]:
    """Two processes of a service. Their ports."""
    ports = [free_port(), free_port()]
    for port in ports:
        start(*(argument.format(port=port) for argument in arguments))
    for port in ports:
        eventually(lambda port=port: listens(port))  # type: ignore[misc]
    return ports


def test_django_view_pays_an_order_once(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("django")
    ports = services(start, "django_pay.py", "runserver", "--noreload", "127.0.0.1:{port}")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda port: ask(port, "orders/7/pay"), ports * 4))
    assert Counter(answers) == {(201, "paid"): 1, (200, "was paid before"): 7}
    assert len((tmp_path / "ledger").read_text().splitlines()) == 1


def test_celery_task_charges_an_order_once(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("celery")
    for worker in ("one", "two"):
        start("-m", "celery", "--app", "celery_charge", "worker", "--concurrency=2", f"--hostname={worker}@test")
    sender = start(
        "-c",
        """
from celery_charge import charge
sent = [charge.delay(order) for order in (7, 8) * 4]
print(sorted(task.get(timeout=60).split(" by ")[0] for task in sent))
""",
    )
    told, _ = sender.communicate(timeout=2 * LIMIT)
    assert told == f"{['charged'] * 2 + ['charged before'] * 6}\n"
    orders = [line.split(" fence ")[0] for line in (tmp_path / "ledger").read_text().splitlines()]
    assert sorted(orders) == ["order 7", "order 8"]


def test_fastapi_service_counts_right_and_makes_a_page_once(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    (tmp_path / "chairs").write_text("100")
    ports = services(start, "-m", "uvicorn", "fastapi_stock:app", "--port={port}")
    with ThreadPoolExecutor(8) as pool:
        left = [int(answer) for _, answer in pool.map(lambda port: ask(port, "chairs", "POST"), ports * 10)]
        pages = {answer for _, answer in pool.map(lambda port: ask(port, "chairs"), ports * 10)}
    assert sorted(left) == list(range(80, 100))
    assert pages == {'"<h1>chairs: 80</h1>"'}
    assert (tmp_path / "made").read_text() == "chairs\n"


def test_cron_script_reports_once_a_day(start: Start) -> None:
    for day in ("2026-11-27", "2026-11-28"):
        hosts = [start("cron_report.py", day) for _ in range(3)]
        told = sorted(" ".join(host.communicate(timeout=LIMIT)[0].split()[:2]) for host in hosts)
        assert told == ["done before", "done before", "reported under"]
        assert [host.returncode for host in hosts] == [0, 0, 0]
