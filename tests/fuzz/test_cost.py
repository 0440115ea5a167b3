"""What input costs, counted, as it grows: a sample of `python -m chaos.fuzz --cost`, and that it finds what there is to find."""

from __future__ import annotations

import uuid
from typing import Any, get_args

import pytest

from amqp10.types import SECRETLY_HASHED
from chaos.fuzz.__main__ import main
from chaos.fuzz.cases import cases
from chaos.fuzz.cost import TURN_STEPS, Case, Cost, cost_of, counted, examine, exponent, mixed
from chaos.fuzz.costs import left_out
from chaos.fuzz.neighbour_costs import KINDS, hears, made, neighbour
from router.core.messages import Hello, Message
from router.peers.wire import encode

CASES = {case.name: case for case in cases()}
ALWAYS = (
    "field/open.properties/one-hash",
    "field/flow.properties/one-hash",
    "field/attach.source/source",
    "many/sent/sender-says",
    "many/received/settled-one-by-one",
    "message/data/repeated/nobody",
    "message/message-annotations/map/nobody",
    "message/application-properties/one-hash/selector",
    "message/header/repeated/partition",
    "message/data/repeated/mqtt",
    "websocket/parts",
    "many/received/outcomes",
    "map/subscription/undecided",
    "map/publisher/rejected",
    "mqtt/subscribe/subscriptions/many",
    "mqtt/unsubscribe/topic_filters/many",
    "neighbour/topic/sync/entries",
    "neighbour/queue/hello/subscriptions",
    "packet/link-state",
    "page/metrics/addresses",
    "management/query/onceway.subscription",
)
SAMPLE = [*ALWAYS, *[case.name for case in mixed([*CASES.values()], 1)[:60] if case.name not in ALWAYS]]


@pytest.mark.parametrize("name", SAMPLE)
def test_cost_grows_with_the_input_and_no_faster(name: str) -> None:
    assert examine(CASES[name], 4_096).wrong == ""


def test_every_performative_and_section_is_there() -> None:
    assert left_out() == set()


def test_every_message_between_routers_is_one_that_a_router_takes() -> None:
    """At an address of one kind at least: else what it costs would be that of its refusal."""
    for cls in get_args(Message):
        taken = [hears(neighbour(kind), encode(made(cls, 0))) for kind in KINDS if cls is not Hello]
        assert cls is Hello or any(taken), cls


def test_each_step_of_a_loop_is_counted() -> None:
    def loop(n: int) -> int:
        return sum(i for i in range(n))

    assert counted(lambda: loop(2_000)) - counted(lambda: loop(1_000)) == pytest.approx(2_000, abs=1_010)


@pytest.mark.parametrize(("power", "wrong"), [(1.0, False), (1.1, False), (1.4, True), (1.7, True)])
def test_an_exponent_is_seen(power: float, wrong: bool) -> None:
    def prepare(n: int) -> list[Any]:
        def turn() -> None:
            for _ in range(int(n**power)):
                pass

        return [turn] * 3

    assert examine(Case("x", prepare, 1), 1_024).wrong.startswith("exponent") is wrong


def test_growth_that_ends_at_a_limit_is_none() -> None:
    assert exponent(10_000, 30_000, 30_100) == 0.0
    assert exponent(10_000, 20_000, 40_000) == pytest.approx(1.0)


def test_a_turn_that_is_too_long_is_found() -> None:
    def prepare(n: int) -> list[Any]:
        return [lambda: [None for _ in range(n * 1_000)]]

    assert "a turn of" in examine(Case("x", prepare, 1), 1_024).wrong
    assert cost_of(Case("x", prepare), 1) == Cost(
        pytest.approx(1_005, abs=1_005), pytest.approx(1_005, abs=1_005), pytest.approx(1, abs=1)
    )  # type: ignore[arg-type]


def test_keys_of_one_hash_in_a_dict_are_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("amqp10.decoder.SECRETLY_HASHED", SECRETLY_HASHED | {uuid.UUID})
    assert main(["--cost", "--case", "message/amqp-value/one-hash/mqtt", "--octets", "16384"]) == 1
    assert "rerun: python -m chaos.fuzz --cost --case message/amqp-value/one-hash/mqtt" in capsys.readouterr().out
    assert TURN_STEPS == 200_000
