"""A program that takes locks as a story says: one order per line of stdin, one answer per line of stdout.

`crates/cli/tests/interop/faces/README.md` has both.
"""

import asyncio
import json
import os
import platform
import select
import sys
from typing import Any, NoReturn

from leasehold_redis import AsyncClient, AsyncLease, ForkedClient, LeaseLost, Refused, StoreUnavailable, WaitTimeout

KINDS = {WaitTimeout: "timeout", LeaseLost: "lost", StoreUnavailable: "unavailable", Refused: "refused", asyncio.CancelledError: "cancelled"}


def answer(name: str, result: str, **more: int | None) -> None:
    print(json.dumps({"as": name, "is": result, **more}), flush=True)


class Actor:
    """Requests and leases by their names."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.requests: dict[str, asyncio.Task[None]] = {}
        self.leases: dict[str, AsyncLease] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, order: dict[str, Any]) -> None:
        verb, name = order.pop("do"), order.pop("as")
        task = asyncio.create_task(self.obey(verb, name, order))
        self.tasks.add(task)
        if verb == "acquire":
            self.requests[name] = task

    async def obey(self, verb: str, name: str, order: dict[str, Any]) -> None:
        try:
            if verb == "acquire":
                await self.acquire(name, **order)
            elif verb == "cancel":
                self.requests[name].cancel()
            elif verb == "release":
                await self.leases[name].release()
                answer(name, "released")
            elif verb == "check":
                answer(name, "valid" if self.leases[name].check() > 0 else "over")
            elif verb == "fork":
                if os.fork() == 0:
                    self.live_as_forked_child(name)
            else:
                answer(name, "cannot")
        except BaseException as error:
            answer(name, KINDS.get(type(error), repr(error)))

    async def acquire(
        self, name: str, *, lock: str, ttl: int, wait: int | None = None, mode: str = "", slots: int = 0, also: list[str] | None = None
    ) -> None:
        seconds = ttl / 1000
        if also:
            named = self.client.all(lock, *also, ttl=seconds)
        elif slots:
            named = self.client.semaphore(lock, slots, ttl=seconds)
        elif mode:
            both = self.client.rw_lock(lock, ttl=seconds)
            named = both.read() if mode == "read" else both.write()
        else:
            named = self.client.mutex(lock, ttl=seconds)
        waits: list[None] = []

        def on_wait(*_: object) -> None:
            if not waits:
                answer(name, "waiting")
            waits.append(None)

        if wait == 0:
            lease = await named.try_acquire()
        else:
            lease = await named.acquire(None if wait is None else wait / 1000, on_wait=on_wait)
        if lease is None:
            answer(name, "busy")
            return
        self.leases[name] = lease
        answer(name, "held", fence=None if lease.slot else lease.fence, slot=lease.slot)
        if await lease.lost is not None:
            answer(name, "lost")

    def live_as_forked_child(self, name: str) -> NoReturn:
        """Tries the parent's client and lease, and lives on until the parent's stdin ends."""
        lease = self.leases[name]
        refused = []
        for use in (lease.check, lease.release().__await__().__next__, self.client.mutex(name).acquire().__await__().__next__):
            try:
                use()
            except ForkedClient as error:
                refused.append(error)
        answer(name, "forked" if len(refused) == 3 else "served")
        os.setpgid(0, 0)
        end = select.poll()
        end.register(sys.stdin, 0)
        end.poll()
        os._exit(0)


async def main() -> None:
    client = await AsyncClient.connect()
    print("ready", platform.python_version(), flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    actor = Actor(client)
    async for line in lines:
        actor.start(json.loads(line))
    await client.close()


asyncio.run(main())
