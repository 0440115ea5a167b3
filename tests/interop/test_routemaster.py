"""Routemaster's own client, command line and drain, as they were released, with a bus (docs/event-bus.md)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.live.ports import free_port
from tests.edges.bus.world import CERTIFICATE, ROOT_KEY, BusNetwork, BusProcess
from tests.interop import debian
from tests.running import BOUND_S, PROGRAMS, Program

LONGEST = "topic_" + "x" * 58  # what the client takes
TOKEN = "2bf959d1-04fb-4912-8450-ab646888d476"  # as its documentation shows one
UUID = "secret"


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusProcess]:
    made = BusNetwork(tmp_path_factory.mktemp("bus"))
    try:
        yield made.start_all().bus
    finally:
        made.close()


@pytest.fixture(scope="module")
def ruby() -> tuple[list[str], dict[str, str]]:
    """The command that runs the program, and its environment."""
    here, gems = debian.found("ruby"), debian.gems("routemaster-client", "routemaster-drain")
    if here is None or gems is None:
        pytest.skip("make interop installs Ruby, routemaster-client and routemaster-drain")
    command, environment = here
    return [command, *(f"-I{each}" for each in gems), str(PROGRAMS / "routemaster.rb")], environment


class Callers:
    """The client, with any token."""

    def __init__(self, ruby: tuple[list[str], dict[str, str]], bus: BusProcess) -> None:
        self._command, self._environment = [*ruby[0], "client", f"localhost:{bus.port}"], ruby[1]

    def __call__(self, *calls: list[Any]) -> list[Any]:
        """What each call has returned."""
        done = subprocess.run(
            [*self._command, *map(json.dumps, calls)], env=self._environment, capture_output=True, text=True,
            timeout=BOUND_S, check=True,
        )  # fmt: skip
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def asks(ruby: tuple[list[str], dict[str, str]], bus: BusProcess) -> Callers:
    return Callers(ruby, bus)


@pytest.fixture
def drain(ruby: tuple[list[str], dict[str, str]]) -> Iterator[tuple[str, Program]]:
    """Its call-back, and what it has taken, a batch a line."""
    port = free_port()
    with Program([*ruby[0], "drain", str(port), str(CERTIFICATE), UUID], ruby[1]) as program:
        assert program.line() == "listening"
        yield f"https://localhost:{port}/", program


def taken(program: Program, count: int) -> list[tuple[str, str, str]]:
    """(topic, type, url) of so many events."""
    found: list[tuple[str, str, str]] = []
    while len(found) < count:
        found += [(each["topic"], each["type"], each["url"]) for each in json.loads(program.line())]
    return found


def test_routemasters_client_and_drain(bus: BusProcess, asks: Callers, drain: tuple[str, Program]) -> None:
    callback, program = drain
    shop, mail, short = asks(
        [ROOT_KEY, "token_add", [], {"name": "shop"}],
        [ROOT_KEY, "token_add", [], {"name": "mail", "token": TOKEN}],
        [ROOT_KEY, "token_add", [], {"name": "s" * 64, "token": "demo"}],
    )
    assert (mail, short) == (TOKEN, "demo")
    wish = {"topics": [LONGEST, "orders"], "callback": callback, "uuid": UUID, "timeout": 0, "max": 10}
    tokens, *nothing, before = asks(
        [ROOT_KEY, "token_list"],
        [mail, "subscribe", [], {**wish, "timeout": None}],
        [mail, "subscribe", [], wish],
        [mail, "monitor_topics"],
    )
    assert tokens == {shop: "shop", mail: "mail", short: "s" * 64}
    assert nothing == [None, None]
    assert {"name": LONGEST, "publisher": None, "events": 0} in before
    url = "https://shop.example/orders"
    pushed = asks(
        [shop, "created", [LONGEST, f"{url}/1"]],
        [shop, "updated", [LONGEST, f"{url}/2"], {"t": 1_473_080_555_409, "data": {"color": "teal"}}],
        [shop, "deleted", [LONGEST, f"{url}/3"]],
        [short, "noop", ["orders", f"{url}/4"]],
    )
    assert pushed == [True] * 4
    kinds = [(LONGEST, kind, f"{url}/{number}") for number, kind in enumerate(("create", "update", "delete"), 1)]
    got = taken(program, 4)
    assert [each for each in got if each[0] == LONGEST] == kinds
    assert ("orders", "noop", f"{url}/4") in got
    own, others, topics, *ended = asks(
        [mail, "monitor_subscriptions"],
        [shop, "monitor_subscriptions"],
        [shop, "monitor_topics"],
        [mail, "unsubscribe", ["orders"]],
        [mail, "unsubscribe_all"],
        [shop, "delete_topic", [LONGEST]],
        [ROOT_KEY, "token_del", [], {"token": mail}],
    )
    shown = {"subscriber": "mail", "callback": callback, "max_events": 10, "timeout": 0}
    assert [{key: value for key, value in each.items() if key in shown} for each in own] == [shown]
    assert (own[0]["uuid"], others[0]["uuid"]) == (UUID, None)
    assert sorted(own[0]["topics"]) == sorted([LONGEST, "orders"])
    assert {"name": LONGEST, "publisher": "shop", "events": 3} in topics
    assert ended == [["orders"], None, None, None]
    (refused,) = asks([mail, "monitor_topics"])
    assert "401" in refused["error"]


def test_routemasters_command_line(bus: BusProcess, asks: Callers, drain: tuple[str, Program]) -> None:
    """Its help asks for a user in the call-back's URL; it sends its token as the uuid all the same."""
    callback, program = drain
    asks([ROOT_KEY, "token_add", [], {"name": "first"}])  # which sets what rtm has no option for
    publisher = "publisher-token-1"
    with_user = callback.replace("https://", f"https://{UUID}@")
    said = asks(
        [ROOT_KEY, "token_list"],
        [ROOT_KEY, "rtm", ["token", "add", "reader", UUID]],
        [ROOT_KEY, "rtm", ["token", "add", "writer", publisher]],
        [ROOT_KEY, "rtm", ["token", "list"]],
        [UUID, "rtm", ["sub", "add", with_user, "things", "--latency", "0", "--batch-size", "5"]],
        [publisher, "rtm", ["pub", "created", "things", "https://example.com/1"]],
        [UUID, "rtm", ["sub", "list"]],
        [UUID, "rtm", ["sub", "del", "things"]],
        [UUID, "rtm", ["sub", "del"]],
        [ROOT_KEY, "rtm", ["token", "del", UUID]],
    )
    assert not [each for each in said if isinstance(each, dict) and "error" in each]
    assert said[1:3] == [f"{UUID}\n", f"{publisher}\n"]
    assert f"{UUID}\treader\n" in said[3]
    assert f":uuid: {UUID}\n" in said[6]
    assert f":callback: {callback}\n" in said[6]
    assert taken(program, 1) == [("things", "create", "https://example.com/1")]
