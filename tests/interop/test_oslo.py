"""OpenStack's RPC over queues and topics: oslo.messaging's AMQP 1.0 driver, which only `make interop` installs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.test_clients import installed
from tests.live import PATIENT, LiveNetwork
from tests.running import PROGRAMS, Program

__all__ = ["installed"]

pytestmark = pytest.mark.timeout(900)
ADDRESSES = (
    {"match": "openstack.org/om/rpc/multicast/*", "no_subscribers": "accept"},
    {"match": "openstack.org/om/*", "type": "queue"},
)
SERVERS = ("one", "two")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[LiveNetwork]:
    with LiveNetwork(tmp_path, "ab", [("a", "b")], addresses=ADDRESSES, settings=PATIENT) as network:
        yield network.start()


def does(installed: Path, what: str, network: LiveNetwork, *rest: str) -> Program:
    """At any router: the driver chooses."""
    url = f"amqp://{network['a'].address},{network['b'].address}/"
    return Program([str(installed / "oslo" / "bin" / "python"), str(PROGRAMS / "oslo_does.py"), what, url, *rest])


@pytest.fixture
def servers(installed: Path, network: LiveNetwork) -> Iterator[list[Program]]:
    with ExitStack() as stack:
        found = [stack.enter_context(does(installed, "serve", network, name)) for name in SERVERS]
        assert [each.line() for each in found] == ["serving"] * 2
        yield found


def test_openstack_calls_casts_fans_out_and_notifies(
    installed: Path, network: LiveNetwork, servers: list[Program]
) -> None:
    with does(installed, "ask", network, "call:20", "cast:20", "fanout:3", "notify:10", "told:36") as asking:
        answers = asking.rest()
    returned = [answer.split() for answer in answers[:20]]
    assert [int(number) for _, number in returned] == [2 * number for number in range(20)]
    assert {name for name, _ in returned} <= {*SERVERS}  # the nearest, if there is one
    assert answers[20:53] == ["sent"] * 33
    told = Counter(line.split(maxsplit=1)[1] for line in answers[53:])
    once = [f"cast {number}" for number in range(20)] + [f"notify {number}" for number in range(10)]
    assert told == dict.fromkeys(once, 1) | dict.fromkeys([f"fanout {number}" for number in range(3)], 2)


def test_openstack_goes_on_elsewhere_when_routers_are_killed(
    installed: Path, network: LiveNetwork, servers: list[Program]
) -> None:
    """Each router in its turn. A call that fails says so; what is cast when calls are answered again arrives once."""
    with does(installed, "ask", network, "call:60", "cast:10", "told:10") as asking:
        for dies, answered in (("a", 5), ("b", 25)):
            while not asking.line().endswith(f" {2 * answered}"):
                pass
            network.kill(dies)
            if dies == "a":
                network.start("a", fresh=False)
        rest = [line for line in asking.rest() if line != "again"]
    assert rest[-21].endswith(f" {2 * 59}")
    assert rest[-20:-10] == ["sent"] * 10
    assert Counter(line.split(maxsplit=1)[1] for line in rest[-10:]) == {f"cast {number}": 1 for number in range(10)}
