"""Which of a router's addresses are topics that match.  With a router: tests/spark/test_ingest.py."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.sections import Message
from onceway.spark.errors import IngestFailed, SparkSourceError
from onceway.spark.options import source_options
from onceway.spark.source.topics import Topics, _names, matching

OPTIONS = {
    "url": "amqp://nobody:x@127.0.0.1:1", "topicpattern": "orders.*", "subscription": "s", "wallocation": "/nowhere",
}  # fmt: skip


def answer(rows: list[list[str]], status: int = 200) -> Message:
    body: Any = {"attributeNames": ["distribution", "key"], "results": [row[::-1] for row in rows]} if rows else None
    return Message(body, application_properties={"statusCode": status, "statusDescription": "why"})


def test_queues_and_addresses_of_routers_are_no_topics() -> None:
    rows = [["Morders", "multicast"], ["Mjobs", "balanced"], ["L_dynamic/a/1", "multicast"], ["M$cbs", "multicast"]]
    assert _names(answer(rows)) == ["orders"]


def test_the_whole_name_matches() -> None:
    assert matching("orders.*", ["orders.b", "my.orders", "orders"]) == ["orders", "orders.b"]


def test_a_router_that_does_not_say_is_an_error() -> None:
    with pytest.raises(SparkSourceError, match="403 why"):
        _names(answer([], 403))


def test_a_network_that_does_not_answer_in_time_is_an_error() -> None:
    topics = Topics(source_options(OPTIONS, "stream"))
    topics.begin()
    with pytest.raises(IngestFailed, match=r"no router said within 0\.2 s which topics there are"):
        topics.now(0.2)
    topics.stop()
