"""A Celery task that must not run twice. Brokers deliver a task again if its worker seems dead, and programs send it again.

    LEASEHOLD_URL=redis://127.0.0.1 celery --app celery_charge worker
"""

import os
from typing import Any

from celery import Celery

from leasehold_redis import Client, Lease

url = os.environ["LEASEHOLD_URL"]
app: Any = Celery("charge", broker=url, backend=url)


# The processes of a worker are forked. Each of them has a shared client of its own.
@app.task(acks_late=True)
def charge(order: int) -> str:
    def work(lease: Lease) -> None:
        with open(os.environ["LEDGER"], "a") as ledger:
            ledger.write(f"order {order} fence {lease.fence}\n")

    turn = Client.shared().once(f"orders:{order}", "charged").run(work)
    return "charged" if turn.past is None else f"charged before by {turn.past.by}"
