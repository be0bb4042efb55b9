"""Measures the package beside redis-py's lock and python-redis-lock, in one run on a server of its own. Use a machine without other work.

    pip install redis==8.1.0 python-redis-lock==4.0.1
    pip install dist/leasehold_redis-*.whl            # a release build
    python bench.py [--wheel dist/leasehold_redis-*.whl]

Each figure is the median of the repetitions, with the lowest and the highest.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

# The sources beside this file have no extension module: the installed package is measured.
sys.path.pop(0)

import redis  # noqa: E402
import redis.asyncio  # noqa: E402
import redis_lock  # noqa: E402

import leasehold_redis  # noqa: E402

REPETITIONS, CYCLES, TASKS, SECONDS, IMPORTS = 3, 3_000, 64, 3.0, 21


def spread(figures: list[float], unit: str) -> str:
    return f"{statistics.median(figures):9,.1f} {unit} ({min(figures):,.1f}–{max(figures):,.1f})"


def table(title: str, figures: dict[str, list[float]], unit: str) -> None:
    print(f"\n{title}")
    for name, measured in figures.items():
        print(f"  {name:32}{spread(measured, unit)}")


def cycles(url: str) -> None:
    """Microseconds of an acquire and a release without another client."""
    client, ours = redis.Redis.from_url(url), leasehold_redis.Client.connect(url)

    def theirs() -> None:
        with client.lock("redis-py", timeout=30):
            pass

    def expiring() -> None:
        with redis_lock.Lock(client, "python-redis-lock", expire=30):
            pass

    def renewed() -> None:
        with redis_lock.Lock(client, "python-redis-lock", expire=30, auto_renewal=True):
            pass

    def dropped_in() -> None:
        with client.lock("drop-in", timeout=30, lock_class=leasehold_redis.Lock):
            pass

    def own() -> None:
        with ours.mutex("own"):
            pass

    ways = {
        "redis-py": theirs,
        "python-redis-lock": expiring,
        "python-redis-lock, renewed": renewed,
        "leasehold, drop-in": dropped_in,
        "leasehold, renewed": own,
    }
    figures: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPETITIONS):
        for name, way in ways.items():
            for _ in range(100):
                way()
            begun = time.perf_counter()
            for _ in range(CYCLES):
                way()
            figures[name].append((time.perf_counter() - begun) / CYCLES * 1e6)
    table(f"acquire and release, {CYCLES:,} times", figures, "µs")
    ours.close()


async def hand_overs(url: str) -> None:
    """Hand-overs in a second of tasks that want one lock."""
    client, ours = redis.asyncio.Redis.from_url(url), await leasehold_redis.AsyncClient.connect(url)
    locks: dict[str, Callable[[], Any]] = {
        "redis-py": lambda: client.lock("redis-py", timeout=30),
        "leasehold, drop-in": lambda: client.lock("drop-in", timeout=30, lock_class=leasehold_redis.AsyncLock),
        "leasehold, renewed": lambda: ours.mutex("own"),
    }
    figures: dict[str, list[float]] = {name: [] for name in locks}

    async def work(lock: Callable[[], Any], end: float) -> int:
        count = 0
        while time.perf_counter() < end:
            async with lock():
                count += 1
                await asyncio.sleep(0)
        return count

    for _ in range(REPETITIONS):
        for name, lock in locks.items():
            begun = time.perf_counter()
            counts = await asyncio.gather(*(work(lock, begun + SECONDS) for _ in range(TASKS)))
            figures[name].append(sum(counts) / (time.perf_counter() - begun))
    table(f"hand-overs of {TASKS} tasks", figures, "in a second")
    await client.aclose()
    await ours.close()


def imports() -> None:
    """Milliseconds of an import, in fresh interpreters."""
    figures: dict[str, list[float]] = {"leasehold_redis": [], "redis": []}
    for _ in range(IMPORTS):
        for module, measured in figures.items():
            code = f"import time; begun = time.perf_counter(); import {module}; print(time.perf_counter() - begun)"
            measured.append(float(subprocess.check_output([sys.executable, "-c", code])) * 1e3)
    table(f"import, {IMPORTS} times", figures, "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", help="prints its size too")
    wheel = parser.parse_args().wheel
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""], stdout=subprocess.DEVNULL
        )
        try:
            client = redis.Redis(port=port)
            while True:
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.01)
            print(f"Python {sys.version.split()[0]}, redis-py {redis.__version__}, {os.cpu_count()} processors")
            imports()
            cycles(f"redis://127.0.0.1:{port}")
            asyncio.run(hand_overs(f"redis://127.0.0.1:{port}"))
        finally:
            server.kill()
            server.wait()
    if wheel:
        print(f"\nwheel: {os.path.getsize(wheel):,} bytes")


if __name__ == "__main__":
    main()
