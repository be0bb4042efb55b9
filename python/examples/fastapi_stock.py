"""A FastAPI service: the orders of one item come one after the other, in all processes, and its page is made by one of them.

    LEASEHOLD_URL=redis://127.0.0.1 uvicorn fastapi_stock:app
"""

import asyncio
import os
from pathlib import Path

from fastapi import FastAPI

from leasehold_redis import cached, locked

app = FastAPI()
folder = Path(os.environ["STOCK"])


@locked("stock:{item}", timeout=30)
async def take(item: str) -> int:
    count = int((folder / item).read_text()) - 1
    await asyncio.sleep(0.01)  # Others would read the old count now.
    (folder / item).write_text(str(count))
    return count


@cached("page:{item}", fresh=60, stale=600)
async def page(item: str) -> str:
    with (folder / "made").open("a") as made:
        made.write(f"{item}\n")
    return f"<h1>{item}: {(folder / item).read_text()}</h1>"


@app.post("/{item}")
async def order(item: str) -> int:
    left = await take(item)
    await page.remove(item)
    return left


@app.get("/{item}")
async def show(item: str) -> str:
    return await page(item)
