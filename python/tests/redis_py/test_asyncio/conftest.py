"""The clients of redis-py's asyncio tests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest_asyncio
import redis.asyncio
from conftest import Server

Create = Callable[..., Awaitable[Any]]


@pytest_asyncio.fixture
async def create_redis(server: Server) -> AsyncIterator[Create]:
    made: list[Any] = []

    async def create(**settings: Any) -> Any:
        made.append(redis.asyncio.Redis(port=server.port, **settings))
        return made[-1]

    yield create
    for client in made:
        await client.aclose()


@pytest_asyncio.fixture
async def r(create_redis: Create) -> Any:
    return await create_redis()
