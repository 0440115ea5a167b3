"""What clients of AMQP make is counted in octets, by connection and user, and bounded by `memory_limit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from amqp10.events import ConnectionClosed, LinkDetached
from amqp10.link import Link
from amqp10.outcomes import ACCEPTED, Accepted, Error, Rejected
from amqp10.performatives import RCV_FIRST, Coordinator, Disposition, Flow, Transfer
from amqp10.runs import Dispositions, Transfers
from amqp10.sasl import Plain, server_mechanisms
from amqp10.sections import Message, Properties
from amqp10.termini import Source, Target
from amqp10.types import Described, Symbol, ULong
from router.config import AddressConfig, Life, RouterConfig
from router.links.limits import PORT
from router.router import Router
from tests.router.links import BODY, Client, Clients
from tests.router.sizes import Size

LIMIT = "amqp:resource-limit-exceeded"
KIB = 1 << 10
MIB = 1 << 20
WAIT_S = 4.0


class World(Clients):
    """One router, whose clients have users; each has checked what it counts when it is left."""

    def __init__(self, memory_limit: int) -> None:
        address = AddressConfig("*", subscription_timeout_s=WAIT_S, publisher_timeout_s=2 * WAIT_S)
        config = RouterConfig("a", ("a",), (address,), memory_limit=memory_limit, max_message_size=memory_limit // 4)
        sasl = server_mechanisms(verify=lambda name, password: name == password)
        super().__init__(Router(config, Life(1, 1_000.0, True), wall_us=lambda: 1_000_000, sasl=sasl), 1_000.0)

    def client(self, user: str, container: str = "client", **settings: Any) -> Client:
        return self.connect(container, sasl=Plain(user, user), **settings)

    @property
    def by_user(self) -> dict[str, int]:
        return self.router.core.memory.holding.by_user


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(getattr(request, "param", MIB))
    yield made
    made.exchange()
    made.router.check_invariants()
    for client in list(made.clients):
        client.lose()
    made.router.check_invariants()
    made.sleep(20 * WAIT_S)
    made.router.check_invariants()
    assert made.router.core.memory.holding.total == 0


def error_of(client: Client, link: Link) -> Error | None:
    events = [each for each in client.seen(LinkDetached, link) if each.error is not None]
    return events[0].error if events else None


def receivers_until_refused(client: Client, name: str = "s", **attach: Any) -> int:
    for number in range(2_000):
        link = client.receiver(f"{name}{number}", **attach)
        error = error_of(client, link)
        if error is not None:
            assert error.condition == LIMIT
            assert error.description.startswith("limit memory_limit: ")
            return number
    raise AssertionError("it is not refused")


def test_a_connection_has_half_of_what_is_free_and_a_user_as_much_as_all_leave(world: World) -> None:
    one, also, two = world.client("one"), world.client("one", "also"), world.client("two")
    first = receivers_until_refused(one)
    assert MIB // 4 < one.served.held.octets < MIB // 3
    assert receivers_until_refused(also) < first
    assert world.by_user["one"] <= MIB // 2
    assert all(link.attached for link in one.session.links)
    assert receivers_until_refused(two) > 10
    assert world.by_user["two"] <= MIB // 4
    assert world.router.status()["limits"]["refused"] == {"memory_limit": 3}


def test_links_that_go_make_room(world: World) -> None:
    client = world.client("one")
    number = receivers_until_refused(client)
    for link in list(client.session.links)[:10]:
        link.detach()
    world.exchange()
    world.sleep(20 * WAIT_S)
    assert 8 <= receivers_until_refused(client, "again") <= number


def test_names_count_with_what_they_take_in_memory(world: World) -> None:
    short = receivers_until_refused(world.client("one"))
    wide = receivers_until_refused(world.client("two"), "s" * 1_000 + "\N{GRINNING FACE}")
    assert wide * 2 < short


SELECTOR = ULong(0x0000468C00000004)
PROPERTIES = Symbol("amqp:application-properties-filter")


@pytest.mark.parametrize("world", [16 * MIB], indirect=True)
@pytest.mark.parametrize(
    "made_of",
    [
        Described(SELECTOR, " OR ".join(f"a{i} = {i}" for i in range(200))),
        Described(SELECTOR, f"{'a+' * 300}a = 1"),
        Described(SELECTOR, f"a = '{'a' * 4_000}\N{GRINNING FACE}'"),
        Described(PROPERTIES, {f"k{i}": "v" for i in range(400)}),
        Described(PROPERTIES, {f"{i:x}": True for i in range(400)}),
        Described(PROPERTIES, {f"{i:x}": [] for i in range(400)}),
        Described(PROPERTIES, {"a": {f"{i:x}": [[], []] for i in range(200)}}),
    ],
)
def test_a_filter_counts_for_what_is_made_of_it(world: World, made_of: Described) -> None:
    client, filters = world.client("one"), {Symbol("f"): made_of}
    client.receiver("first", source=Source("orders", filter=filters))
    counted, before = client.served.held.octets, Size(world.router, without=(world,)).octets
    assert client.receiver("second", source=Source("orders", filter=filters)).attached
    made = Size(world.router, without=(world,)).octets - before
    assert made < client.served.held.octets - counted < 5 * made


def test_what_links_and_sessions_take_is_what_is_counted() -> None:
    world = World(64 * MIB)
    client = world.client("one")
    client.receiver("before")
    client.sender("also before")
    counted, before = client.served.held.octets, Size(world.router, without=(world,)).octets
    for number in range(20):
        client.receiver(f"s{number}{'s' * 500}")
        client.sender(f"p{number}{'p' * 500}")
        client.connection.begin()
        world.exchange()
    made = Size(world.router, without=(world,)).octets - before
    assert 0.8 * made < client.served.held.octets - counted < 2 * made


def test_a_map_counts_for_as_long_as_its_link(world: World) -> None:
    client = world.client("one")
    unsettled: dict[bytes, Any] = {b"%032d" % number: ACCEPTED for number in range(500)}
    link = client.receiver("s", source=Source("orders", timeout=10), unsettled=unsettled)
    assert link.attached
    assert client.served.held.octets > 500 * 256
    refused = client.receiver("t", source=Source("orders", timeout=10), unsettled=unsettled)
    error = error_of(client, refused)
    assert error.condition == LIMIT
    link.detach()
    refused.detach()
    world.exchange()
    assert client.served.held.octets < 32 * KIB


def test_links_that_are_refused_and_not_detached_end_the_connection(world: World) -> None:
    client, other = world.client("one", handle_max=1_023), world.client("two")
    links = 0
    while not client.served.connection.closing:
        client.session.sender(f"p{links}").attach(source=Source(), target=Coordinator())
        client.served.receive_data(client.connection.data_to_send(), world.now)  # and it reads no answer
        links += 1
    assert 300 < links < 600
    world.exchange()
    (event,) = client.seen(ConnectionClosed)
    assert event.error.condition == LIMIT
    assert other.sender().attached


def test_subscriptions_whose_connection_is_waited_for_count(world: World) -> None:
    client = world.client("one")
    counted = client.served.held.octets
    for number in range(50):
        source = Source("orders", expiry_policy=Symbol("connection-close"))
        client.receiver(f"s{number}", source=source).detach(None, closed=False)
        world.exchange()
    assert client.served.pending_expiries.octets > 50 * KIB
    assert client.served.held.octets >= counted + 50 * KIB


def test_sessions_count(world: World) -> None:
    client = world.client("one")
    for _ in range(200):
        client.connection.begin()
        world.exchange()
        if client.seen(ConnectionClosed):
            break
    (event,) = client.seen(ConnectionClosed)
    assert event.error.condition == LIMIT
    assert event.error.description.startswith("limit memory_limit: ")


def test_addresses_that_messages_name_count_and_are_refused_alone(world: World) -> None:
    client = world.client("one")
    link = client.sender("p", target=Target(), rcv_settle_mode=RCV_FIRST)
    outcomes: list[type] = []
    for number in range(100):
        payload = Message(b"x", properties=Properties(to=f"t{number}")).encode()
        link.send([b"%d" % number], [payload])
        world.exchange()
    for event in client.seen(Dispositions, link):
        outcomes += [type(event.state)] * (event.last_id - event.first_id + 1)
    assert len(outcomes) == 100
    assert Rejected in outcomes
    assert len(world.router.core.addresses) < 64
    assert link.attached
    assert client.served.held.octets < MIB // 3


def test_large_frames_are_not_remembered() -> None:
    """Flows and outcomes are read by their shapes, which are kept until links change: not those of any size."""
    world = World(64 * MIB)
    client = world.client("one", max_frame_size=MIB)
    receiver = client.receiver("s", credit=100, source=Source("orders"))
    sender = client.sender("p", target=Target("orders"))
    for first in (0, 25):
        sender.send([b"%d" % (first + number) for number in range(25)], [BODY] * 25)
        world.exchange()
    assert sum(len(event.payloads) for event in client.seen(Transfers, receiver)) == 50
    before = Size(world.router, without=(world,)).octets
    for number in range(50):
        error = Error(Symbol("x"), "y" * 10_000 + str(number))
        client.session._write(Disposition(True, number, number, False, Rejected(error)).encode())
        properties = {Symbol("k"): "v" * (10_000 + number)}
        client.session._write(Flow(0, 100, 0, 100, handle=receiver.handle, properties=properties).encode())
        world.exchange()
    assert Size(world.router, without=(world,)).octets - before < 100 * KIB
    assert client.served.connection.reader.shapes < 10


def test_what_is_remembered_of_frames_is_bounded_and_counted(world: World) -> None:
    client = world.client("one")
    receiver = client.receiver("s", credit=100, source=Source("orders"))
    counted, most = client.served.held.octets, 0
    for number in range(8_000):
        state = Accepted() if number % 2 else Rejected(Error(Symbol("x"), "y" * (number % 150) + str(number)))
        client.session._write(Disposition(True, 5, 5, False, state).encode())
        world.exchange()
        most = max(most, client.served.held.octets - counted)
    assert 2_000 * KIB < most < 3_100 * KIB
    assert receiver.attached


def test_the_state_of_a_transfer_that_does_not_end_is_not_kept(world: World) -> None:
    client = world.client("one", max_frame_size=MIB)
    link = client.sender("p", target=Target("orders"))
    client.receiver("s", credit=10, source=Source("orders"))
    world.exchange()
    before = Size(world.router, without=(world,)).octets
    state = Described(ULong(0x34), [b"x" * 100_000])
    transfer = Transfer(link.handle or 0, 0, b"t", 0, more=True, state=state)
    client.session._write(transfer.encode() + BODY[:2])
    world.exchange()
    assert client.served.connection.incomplete_size < KIB
    assert Size(world.router, without=(world,)).octets - before < 20 * KIB


def test_maps_that_wait_until_the_router_has_booted_count() -> None:
    config = RouterConfig("a", ("a", "b"))
    clients = Clients(Router(config, Life(1, 1_000.0, False), wall_us=lambda: 1_000_000), 1_000.0)
    client = clients.connect()
    unsettled = {b"%032d" % number: ACCEPTED for number in range(100)}
    client.receiver("s", source=Source("orders", timeout=10), unsettled=unsettled)
    assert not clients.router.core.recovery.times.booted
    clients.now += 10.0
    assert clients.router.bookkeeping.entries(clients.now) >= 100
    assert client.served.held.octets > PORT + 100 * 256


def unfinished(client: Client, size: int, sent: int) -> None:
    link = client.sender(f"p{size}")
    link.send([b"1"], [Message(bytes(size)).encode()])
    client.served.receive_data(client.connection.data_to_send()[:sent], client.clients.now)


def test_of_what_is_incomplete_the_user_who_has_most_loses_first() -> None:
    """memory_limit holds for all: one user's messages that never end cost another user nothing."""
    world = World(2 * MIB)
    attackers = [world.client("one", f"c{number}") for number in range(6)]
    honest, also = world.client("two"), world.client("two", "also")
    honest.receiver(credit=10)
    unfinished(honest, 300 * KIB, 200 * KIB)
    for attacker in attackers:
        unfinished(attacker, 500 * KIB, 450 * KIB)
    assert world.router.buffers.incomplete.total <= 2 * MIB
    world.router.check_invariants()
    unfinished(also, 310 * KIB, 300 * KIB)
    world.exchange()
    assert not honest.seen(ConnectionClosed)
    assert not also.seen(ConnectionClosed)
    errors = [event.error for attacker in attackers for event in attacker.seen(ConnectionClosed)]
    assert {error.condition for error in errors} == {LIMIT}
    assert 2 <= len(errors) < 6
    assert world.router.buffers.incomplete.by_user["two"] >= 500 * KIB
    for client in list(world.clients):
        client.lose()
    assert world.router.buffers.incomplete.total == 0
