"""A redis-server for the tests, and programs of their own."""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

LIMIT = 30.0
"""Far more than anything takes here, in seconds."""


class Server:
    """A redis-server on a free port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self._folder = tempfile.mkdtemp(prefix="leasehold-python-")
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._folder, "--save", ""]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.redis = redis.Redis(port=self.port)
        eventually(self._answers)

    def _answers(self) -> bool:
        try:
            return bool(self.redis.ping())
        except redis.ConnectionError:
            return False

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self.redis.close()
        self.stop()
        shutil.rmtree(self._folder)


def eventually(holds: Callable[[], object]) -> None:
    """Returns once `holds()` is true."""
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end, "never"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()


@pytest.fixture
def server(shared_server: Server) -> Server:
    """The server of all tests, without keys."""
    shared_server.redis.flushall()
    return shared_server


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that the test may stop."""
    server = Server()
    yield server
    server.end()


@pytest.fixture
def program(server: Server, tmp_path: Path) -> Iterator[Callable[[str], "subprocess.Popen[str]"]]:
    """Starts a program, whose `url` is that of the server. Its folder has no sources of the package, so it imports the installed one."""
    started = []

    def start(text: str) -> "subprocess.Popen[str]":
        text = f"url = {server.url!r}\n{text}"
        command = [sys.executable, "-Wignore", "-c", text]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()
