"""A publisher without credit knows why, and says so while somebody waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import onceway
from amqp10.types import Symbol, UInt
from onceway.client.reports import PublisherWaiting, waiting_from
from tests.onceway.client.scenes import eventually, playing

TOLD = {
    Symbol("reason"): Symbol("window"),
    Symbol("address"): "orders",
    Symbol("count"): UInt(3),
    Symbol("subscriptions"): [["billing", "billing", "b"], ["lake", "in", ""]],
    Symbol("seconds"): UInt(42),
    Symbol("setting"): "subscription_timeout",
}


async def test_it_says_what_it_waits_for_while_it_waits_and_no_more_when_that_is_over() -> None:
    async with playing() as network:
        network.window = 0
        reports: list[Any] = []
        async with onceway.connect(network.url(), on_report=reports.append) as connection:
            publisher = await connection.publisher("orders", name="p")
            network.tell_waiting(TOLD)
            assert await eventually(lambda: publisher.waiting)
            told = PublisherWaiting(
                "orders",
                "p",
                "r0",
                "window",
                3,
                (("billing", "billing", "b"), ("lake", "in", "")),
                42,
                "subscription_timeout",
            )
            assert publisher.waiting == told
            assert told not in reports  # nobody waits
            putting = asyncio.create_task(publisher.put(b"x"))
            assert await eventually(lambda: told in reports)
            assert reports.count(told) == 1
            network.tell_waiting({Symbol("reason"): Symbol("no-subscribers")})
            assert await eventually(lambda: publisher.waiting and publisher.waiting.reason == "no-subscribers")
            assert await eventually(lambda: publisher.waiting in reports)
            network.window = 10
            network.tell_waiting(None)
            await putting
            assert publisher.waiting is None


def test_it_is_said_in_words() -> None:
    said = str(waiting_from("orders", "p", "r0", TOLD))
    assert said == (
        "publisher 'p' of 'orders' waits: what it has sent has not been accepted by billing/billing (at b), lake/in (away) "
        "and 1 more, for 42 s at most (subscription_timeout)"
    )
    assert "nobody subscribes to 'orders'" in waiting_from("orders", "p", "r0", {"reason": "no-subscribers"}).why
    assert waiting_from("orders", "p", "r0", {"reason": "moon", "count": "x", "subscriptions": [1]}).why == "moon"


def test_subscriptions_of_other_users_are_counted() -> None:
    told = {"reason": "window", "count": 3, "subscriptions": []}
    assert waiting_from("orders", "p", "r0", told).why == "what it has sent has not been accepted by 3 subscriptions"
