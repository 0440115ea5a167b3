"""Filters that take too many steps: the subscription is told, and not the publisher."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.errors import RESOURCE_LIMIT_EXCEEDED
from amqp10.sections import Message
from amqp10.termini import Source
from amqp10.types import Described, Symbol
from router import names
from router.core.ports import Outcome
from router.links.dear import SEARCH_BYTES
from router.links.filters import MOST_TOGETHER
from tests.router.links import Clients


def test_filters_of_an_address_are_bounded_together_and_those_that_go_make_room(clients: Clients, core: Any) -> None:
    client = clients.connect()
    text = "x LIKE '" + "a" * 8_000 + "'"
    chosen = {Symbol("f"): Described(Symbol("apache.org:selector-filter:string"), text)}
    room = MOST_TOGETHER // len(text)
    links = [client.receiver(f"s{n}", source=Source("orders", filter=chosen)) for n in range(room + 1)]
    refusal = client.detached(links[-1])
    assert refusal.error.condition == RESOURCE_LIMIT_EXCEEDED
    assert refusal.error.description.startswith("limit filters: one message of 'orders' would ask filters of")
    assert clients.router.admission.refused == {"filters": 1}
    assert client.receiver("elsewhere", source=Source("other", filter=chosen)).attached
    links[0].detach()
    clients.exchange()
    assert client.receiver("again", source=Source("orders", filter=chosen)).attached
    client.lose()
    assert clients.router.admission.asked == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("apache.org:selector-filter:string", "x LIKE '%a_b%' OR x LIKE '%{n}_c%'"),
        ("apache.org:selector-filter:string", "y = 1 AND (x LIKE '%a_b%' OR x LIKE '%{n}_c%')"),
        (names.PREDICATE, "x like 'a.{{50}}{n}'"),
    ],
)
def test_searches_of_an_address_are_bounded_together(clients: Clients, core: Any, name: str, text: str) -> None:
    """Each takes as long as hundreds of bytes of other filters, however short it is."""
    client = clients.connect()
    for n in range(200):
        source = Source("orders", filter={Symbol("f"): Described(Symbol(name), text.format(n=n))})
        client.receiver(f"s{n}", source=source)
    assert 40 < len(core.named("attach_subscriber")) < MOST_TOGETHER // SEARCH_BYTES
    client.lose()
    assert clients.router.admission.asked == {}


def test_what_only_messages_with_one_value_ask_counts_for_these(clients: Clients, core: Any) -> None:
    client = clients.connect()
    room = MOST_TOGETHER // 8_000
    for n in range(2 * room):
        for value in ("1", "2"):
            text = f"colour = {value} AND x LIKE '{n}{'a' * 8_000}'"
            chosen = {Symbol("f"): Described(Symbol("apache.org:selector-filter:string"), text)}
            client.receiver(f"s{n}.{value}", source=Source("orders", filter=chosen))
    assert len(core.named("attach_subscriber")) == 2 * room


def test_a_subscription_whose_filter_takes_too_many_steps_is_detached_and_told(clients: Clients, core: Any) -> None:
    client = clients.connect()
    chosen = {Symbol("f"): Described(Symbol("apache.org:selector-filter:string"), f"x LIKE '%{'a_' * 2_000}b%'")}
    link = client.receiver("dear", source=Source("orders", filter=chosen))
    (attach,) = core.named("attach_subscriber")[0]
    dear = Message(b"", application_properties={"x": "a" * 2_000}).encode()
    assert attach.selection.unwanted([dear], 0) == [(0, 1, Outcome.ACCEPTED)]
    assert clients.router.wants_flush
    clients.exchange()
    error = client.detached(link).error
    assert error.condition == RESOURCE_LIMIT_EXCEEDED
    assert error.description.startswith("limit filters: a value of 2000 characters with a piece of 4001 of LIKE")
    assert clients.router.passed_by.unread == 1


def test_a_message_that_filters_do_not_read_is_counted_and_detaches_nobody(clients: Clients, core: Any) -> None:
    client = clients.connect()
    chosen = {Symbol("f"): Described(Symbol("apache.org:selector-filter:string"), "x > 1")}
    link = client.receiver("s", source=Source("orders", filter=chosen))
    (attach,) = core.named("attach_subscriber")[0]
    many = Message(b"", application_properties={f"p{n}": n for n in range(5_000)}).encode()
    assert attach.selection.unwanted([many], 0) == [(0, 1, Outcome.ACCEPTED)]
    clients.exchange()
    assert link.attached
    assert clients.router.passed_by.unread == 1
