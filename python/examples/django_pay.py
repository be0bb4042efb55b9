"""A Django view that must not run twice: however many workers get the request, an order is paid once.

    LEASEHOLD_URL=redis://127.0.0.1 python django_pay.py runserver --noreload
"""

import os

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse
from django.urls import path

from leasehold_redis import Client, Lease


def pay(request: HttpRequest, order: int) -> HttpResponse:
    def charge(lease: Lease) -> None:
        with open(os.environ["LEDGER"], "a") as ledger:
            ledger.write(f"order {order} fence {lease.fence}\n")

    turn = Client.shared().once(f"orders:{order}", "paid").run(charge, timeout=30)
    return HttpResponse("paid" if turn.is_mine else "was paid before", status=201 if turn.is_mine else 200)


urlpatterns = [path("orders/<int:order>/pay", pay)]

if __name__ == "__main__":
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"])
    execute_from_command_line()
