"""One valid conversation, cut and changed at any byte: an AMQP error or an end, no harm, nobody else notices.

What a router makes of octets is tried without processes (tests/fuzz). `make test` looks at some here, `make chaos`
at each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.interop import byhand
from tests.interop.byhand import ATTACH, BEGIN, DISPOSITION, FLOW, TRANSFER, ByHand
from tests.interop.raw import data_section
from tests.interop.witness import Witness
from tests.live import PATIENT, LiveNetwork, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

AT_ONCE = 8  # conversations: each spends its time waiting for an answer that a spoilt step may never get
ANSWER_S = 0.2  # for an answer that may come; what waits for it is one of those at once
LEGITIMATE = ("amqp:connection:", "amqp:session:", "amqp:link:")
_numbers = itertools.count()
CONDITIONS = {
    "amqp:decode-error",
    "amqp:frame-size-too-small",
    "amqp:illegal-state",
    "amqp:invalid-field",
    "amqp:not-allowed",
    "amqp:not-found",
    "amqp:not-implemented",
    "amqp:precondition-failed",
    "amqp:resource-limit-exceeded",
}


@dataclass(frozen=True, slots=True)
class Step:
    octets: bytes
    answered: Callable[[ByHand], object]


def conversation() -> list[Step]:
    """A client that subscribes to what it publishes: every performative a client sends, and a message in two frames.

    Container and address are new ones of the same length each time: no run finds traces of the one before."""
    number = next(_numbers)
    name, address = f"garbage-{number:08}", f"address-{number:08}"
    body = data_section(b"0123456789")
    return [
        Step(
            byhand.sasl_anonymous() + byhand.AMQP_HEADER + byhand.open_(name) + byhand.begin(),
            lambda c: c.all(BEGIN),
        ),
        Step(
            byhand.attach_receiver("in", 1, address, second=True) + byhand.link_flow(1, 0, 100),
            lambda c: c.all(ATTACH),
        ),
        Step(
            byhand.attach_sender("out", 0, address, second=True),
            lambda c: [f for f in c.all(FLOW) if f.fields[4] == 0 and f.fields[6]],
        ),
        Step(
            byhand.transfer(0, 0, body)
            + byhand.transfer(0, 1, body[:7], more=True)
            + byhand.transfer(0, 1, body[7:])
            + byhand.transfer(0, 2, body, settled=True),
            lambda c: len(c.all(TRANSFER)) >= 3,
        ),
        Step(
            byhand.accept(0, 1, settled=False),
            lambda c: [f for f in c.all(DISPOSITION) if f.fields[0] is True],
        ),
        Step(
            byhand.accept(0, 1, role=byhand.SENDER) + byhand.frame(byhand.DETACH, byhand.uint(0), True),
            lambda c: c.all(byhand.DETACH),
        ),
        Step(byhand.frame(byhand.END) + byhand.frame(byhand.CLOSE), lambda c: c.all(byhand.CLOSE)),
    ]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    with LiveNetwork(tmp_path_factory.mktemp("garbage"), ("a", "b"), [("a", "b")], settings=PATIENT) as network:
        yield network.start()


@pytest.fixture
def at(network: LiveNetwork) -> Iterator[str]:
    with Witness(network["a"].address, network["b"].address):
        yield network["a"].address
    wait_until(lambda: not any(router.leftovers() for router in network), f"{network['a'].leftovers()} to be gone")
    for router in network:
        assert router.running
        assert "Traceback" not in router.log_tail(10_000), router.log_tail()


def converse(at: str, steps: list[Step], spoilt: int, octets: bytes) -> ByHand:
    """All steps as they are but one; where no answer comes after that one the client ends the conversation."""
    client = ByHand(at)
    for number, step in enumerate(steps):
        client.send(octets if number == spoilt else step.octets)
        if number < spoilt:
            client.wait(lambda step=step: step.answered(client), f"the answer to step {number}")
        elif not client.wait_maybe(lambda step=step: step.answered(client), ANSWER_S):
            break
    client.finish()
    client.wait_closed()
    client.socket.close()
    return client


def check(client: ByHand, what: str) -> None:
    for frame in client.frames:
        condition = frame.error
        assert condition is None or condition in CONDITIONS or condition.startswith(LEGITIMATE), f"{what}: {frame}"


def places() -> list[tuple[int, int]]:
    """(step, byte) of everything that the client says."""
    return [(number, place) for number, step in enumerate(conversation()) for place in range(len(step.octets))]


def spoil_each(at: str, what: str, spoil: Callable[[bytes, int], bytes], first: int, every: int) -> None:
    """One conversation for each of these bytes: spoil(octets of its step, place) is sent in place of that step."""

    def one(spoilt: tuple[int, int]) -> None:
        number, place = spoilt
        steps = conversation()
        check(converse(at, steps, number, spoil(steps[number].octets, place)), f"step {number} {what} at {place}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(one, places()[first::every]):  # raises what a conversation raised
            pass


def test_the_conversation_itself_is_a_good_one(at: str) -> None:
    steps = conversation()
    client = converse(at, steps, len(steps), b"")
    assert not [frame for frame in client.frames if frame.error]
    assert len(client.all(TRANSFER)) == 3
    assert len(client.all(byhand.CLOSE)) == 1


ALL = pytest.param(0, 1, marks=pytest.mark.long, id="every byte")


@pytest.mark.parametrize(("first", "every"), [pytest.param(0, 16, id="every 16th byte"), ALL])
def test_a_conversation_cut_at_any_byte_harms_nobody(at: str, first: int, every: int) -> None:
    spoil_each(at, "cut", lambda octets, place: octets[:place], first, every)


MASKS = {"all-bits": 0xFF, "lowest-bit": 0x01, "highest-bit": 0x80}
EACH_IN_ONE_WAY = [pytest.param(mask, 8 * number, 24, id=name) for number, (name, mask) in enumerate(MASKS.items())]
EACH_IN_ALL_WAYS = [
    pytest.param(mask, 0, 1, marks=pytest.mark.long, id=f"{name}, every byte") for name, mask in MASKS.items()
]


@pytest.mark.parametrize(("mask", "first", "every"), EACH_IN_ONE_WAY + EACH_IN_ALL_WAYS)
def test_a_conversation_changed_at_any_byte_harms_nobody(at: str, mask: int, first: int, every: int) -> None:
    def changed(octets: bytes, place: int) -> bytes:
        return octets[:place] + bytes([octets[place] ^ mask]) + octets[place + 1 :]

    spoil_each(at, f"changed by {mask:#x}", changed, first, every)
