"""Over a limit: the AMQP error that names it, a count of it, and nobody else is disturbed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from amqp10.events import ConnectionClosed, LinkAttached
from amqp10.frames import AMQP_FRAME, AMQP_HEADER, encode_frame
from amqp10.performatives import Begin, Open
from amqp10.sasl import Plain, server_mechanisms
from amqp10.termini import Source
from router.config import Life, Limits, RouterConfig, UserLimits
from router.links.limits import COUNTED, ENGINE_LIMITS, Bookkeeping
from router.router import Router
from tests.amqp10.pair import frames
from tests.builds import puts_stand_ins
from tests.router.links import Client, Clients, make

LIMIT = "amqp:resource-limit-exceeded"


def network(
    *, users: dict[str, UserLimits] | None = None, config: dict[str, Any] | None = None, **limits: Any
) -> Clients:
    return make(
        RouterConfig("a", routers=("a",), limits=Limits(**limits), users=tuple((users or {}).items()), **(config or {}))
    )


def with_users(users: dict[str, UserLimits], **limits: Any) -> Clients:
    config = RouterConfig("a", routers=("a",), limits=Limits(**limits), users=tuple(users.items()))
    sasl = server_mechanisms(verify=lambda name, password: name == password)
    router = Router(config, Life(1, 1_000.0, True), wall_us=lambda: 1_000_000, sasl=sasl)
    return Clients(router, 1_000.0)


def connect(clients: Clients, user: str, container: str = "client") -> Client:
    return clients.connect(container, sasl=Plain(user, user))


def closed(client: Client) -> Any:
    (event,) = client.seen(ConnectionClosed)
    return event.error


def reached(clients: Clients) -> dict[str, int]:
    return clients.router.status()["limits"]["refused"]  # type: ignore[no-any-return]


def works(client: Client) -> bool:
    link = client.receiver(f"proof {len(client.events)}")
    return bool(client.seen(LinkAttached, link)) and link.attached


def test_a_connection_too_many_is_told_so_and_the_others_go_on() -> None:
    clients = network(connections=2)
    one, two, three = (clients.connect(name) for name in ("one", "two", "three"))
    assert (closed(three).condition, closed(three).description) == (LIMIT, "limit connections: this router takes 2")
    assert reached(clients) == {"connections": 1}
    assert works(one)
    assert works(two)


@pytest.mark.parametrize(
    ("hostname", "taken"), [(None, True), ("", True), ("Two.example", True), ("three.example", False)]
)
def test_an_open_that_names_another_networks_host_is_closed(hostname: str | None, taken: bool) -> None:
    clients = network(config={"hostnames": ("one.example", "two.example")})
    client = clients.connect("one", hostname=hostname)
    if taken:
        assert works(client)
        return
    text = "open.hostname: this network is one.example or two.example, not 'three.example'"
    assert (closed(client).condition, closed(client).description) == ("amqp:not-found", text)


class Crowd:
    """In place of the process's descriptors."""

    def __init__(self, crowded: bool, full: bool) -> None:
        self.says = crowded, full

    def crowded(self) -> bool:
        return self.says[0]

    def full(self) -> bool:
        return self.says[1]


def test_without_descriptors_a_client_is_told_so_and_without_any_it_is_told_nothing() -> None:
    clients = network()
    one = clients.connect("one")
    clients.router.admission.room = Crowd(True, False)
    two = clients.connect("two")
    text = "limit descriptors: this router may open no more files for clients, try another one, or later"
    assert (closed(two).condition, closed(two).description) == (LIMIT, text)
    clients.router.admission.room = Crowd(True, True)
    three = clients.connect("three")
    assert three.served.closed
    assert not three.events
    assert reached(clients) == {"descriptors": 2}
    assert works(one)


def test_a_connection_that_goes_makes_room() -> None:
    clients = network(connections=1)
    one = clients.connect("one")
    one.connection.close()
    clients.exchange()
    assert not clients.connect("two").seen(ConnectionClosed)


def test_a_users_connections_are_counted_apart() -> None:
    clients = with_users({"guest": UserLimits(connections=1)})
    one = connect(clients, "guest")
    assert not connect(clients, "owner").seen(ConnectionClosed)
    two = connect(clients, "guest")
    assert closed(two).description == "limit connections: user 'guest' may have 1"
    assert clients.router.status()["limits"]["connections"] == {"guest": 1, "owner": 1}
    assert works(one)


def test_of_too_many_half_open_connections_the_oldest_is_dropped() -> None:
    clients = network(half_open=3)
    strangers = [clients.router.connect(clients.now) for _ in range(4)]
    assert [stranger.closed for stranger in strangers] == [True, False, False, False]
    assert reached(clients) == {"half_open": 1}
    assert works(clients.connect("honest"))
    assert clients.router.status()["limits"]["half_open"] == 2


def test_a_flood_of_one_address_drops_its_own_and_nobody_from_elsewhere() -> None:
    clients = network(half_open=4)
    honest = clients.router.connect(clients.now, "10.0.0.2:1")
    flood = [clients.router.connect(clients.now, f"10.0.0.1:{n}") for n in range(20)]
    assert [each.closed for each in flood] == [True] * 17 + [False] * 3
    assert not honest.closed
    more = [clients.router.connect(clients.now, f"10.0.{n}.1:1") for n in range(2)]
    assert [each.closed for each in flood[17:]] == [True, True, False]
    assert not any(each.closed for each in (honest, *more))
    assert reached(clients) == {"half_open": 19}


def test_a_handshake_has_a_time_to_end_in() -> None:
    clients = network(handshake_timeout_s=5.0)
    stranger = clients.router.connect(clients.now)
    stranger.receive_data(AMQP_HEADER, clients.now)
    assert stranger.next_deadline() == clients.now + 5.0
    clients.now += 5.0
    stranger.handle_timer(clients.now)
    error = frames(stranger.data_to_send())[-1][0].error
    assert (error.condition, error.description) == (LIMIT, "not opened in time: handshake-timeout 5 s")
    assert reached(clients) == {"handshake_timeout": 1}


def test_sessions_are_limited_by_channel_max() -> None:
    clients = network(sessions=2)
    client = clients.connect()
    assert client.connection.remote_open is not None
    assert client.connection.remote_open.channel_max == 1
    client.served.receive_data(encode_frame(AMQP_FRAME, 2, Begin(None, 0, 1, 1).encode()), clients.now)
    clients.exchange()
    error = closed(client)
    assert (error.condition, error.description) == ("amqp:connection:framing-error", "channel 2 is above channel-max 1")
    assert reached(clients) == {"sessions": 1}


def test_a_link_too_many_is_refused_and_the_others_stay() -> None:
    clients = network(links=2)
    client = clients.connect()
    kept = [client.receiver("one")]
    other = client.connection.begin()
    clients.exchange()
    client.session = other
    kept.append(client.receiver("two"))
    third = client.receiver("three")
    error = client.detached(third).error
    assert error is not None
    assert (error.condition, error.description) == (LIMIT, "limit links: a connection may have 2 of them")
    assert all(link.attached for link in kept)
    assert reached(clients) == {"links": 1}
    kept[0].detach()
    clients.exchange()
    assert client.receiver("four").attached


def test_a_users_own_limits_hold_in_place_of_the_listeners() -> None:
    small = UserLimits(
        links=1, sessions=3, max_frame_size=600, max_message_size=1_000, unsettled_window=5, idle_timeout_s=4.0
    )
    clients = with_users({"guest": small}, links=2)
    guest, owner = connect(clients, "guest", "g"), connect(clients, "owner", "o")
    for client, sessions, frame, idle in ((guest, 3, 600, 2_000), (owner, 256, 8 << 20, 8_000)):
        remote = client.connection.remote_open
        assert remote is not None
        assert (remote.channel_max, remote.max_frame_size, remote.idle_time_out) == (sessions - 1, frame, idle)
    owner.receiver("in", credit=10)
    link = guest.sender()
    assert link.remote_max_message_size == 1_000
    assert link.credit == 5
    guest.session = guest.connection.begin()
    clients.exchange()
    assert not guest.sender("another").attached


def test_a_message_too_large_detaches_its_link_only() -> None:
    clients = network(max_message_size=1_000)
    client = clients.connect()
    other = client.receiver(credit=10)
    link = client.sender()
    link.send([b"t"], [bytes(1_001)])
    clients.exchange()
    error = client.detached(link).error
    assert error is not None
    assert error.condition == "amqp:link:message-size-exceeded"
    assert "1000" in (error.description or "")
    assert reached(clients) == {"max_message_size": 1}
    assert other.attached


def test_a_frame_too_large_closes_the_connection() -> None:
    clients = network(max_frame_size=1_000)
    client = clients.connect()
    client.served.receive_data(b"\x00\x00\x03\xe9\x02\x00\x00\x00", clients.now)
    clients.exchange()
    assert closed(client).condition == "amqp:connection:framing-error"
    assert "max-frame-size 1000" in closed(client).description
    assert reached(clients) == {"max_frame_size": 1}


def test_silence_closes_the_connection() -> None:
    clients = network(idle_timeout_s=4.0)
    client = clients.connect()
    clients.now += 4.0
    client.served.handle_timer(clients.now)
    (closing, _) = frames(client.served.data_to_send())[-1]
    assert (closing.error.condition, closing.error.description) == (LIMIT, "nothing heard for 4.0 s: idle-time-out 4 s")
    assert reached(clients) == {}, "its machine has failed: no limit was reached"
    assert clients.router.status()["limits"]["silent"] == 1


def test_an_unsettled_map_too_large_is_refused() -> None:
    clients = network(unsettled_map=2)
    client = clients.connect()
    link = client.receiver(unsettled={b"%d" % n: None for n in range(3)}, source=Source("orders", timeout=10))
    error = client.detached(link).error
    assert error is not None
    assert error.condition == LIMIT
    assert error.description == "limit unsettled_map: a map may have 2 entries, all its parts together"
    assert reached(clients) == {"unsettled_map": 1}


def test_frames_before_open_are_small_ones() -> None:
    clients = network()
    stranger = clients.router.connect(clients.now)
    stranger.receive_data(AMQP_HEADER + b"\x00\x02\x00\x00\x02\x00\x00\x00", clients.now)
    assert frames(stranger.data_to_send())[-1][0].error.condition == "amqp:connection:framing-error"
    honest = clients.connect(properties={"large": "x" * 50_000})
    assert works(honest)


def test_what_a_client_says_of_itself_is_not_kept() -> None:
    clients = network()
    client = clients.connect(properties={"large": "x" * 50_000})
    link = client.receiver(properties={"large": "x" * 50_000}, source=Source("orders", filter={"f": "x" * 50_000}))
    assert link.attached
    (port,) = client.served.ports
    assert port.link.remote_attach is not None
    assert len(port.link.remote_attach.encode()) < 200
    assert client.served.connection.remote_open is not None
    assert client.served.connection.remote_open.properties is None


@pytest.mark.parametrize("limit", ENGINE_LIMITS.values())
def test_what_the_engine_says_of_limits_is_counted_under_our_names(limit: str) -> None:
    assert limit in COUNTED


def test_an_open_is_an_open_whatever_comes_with_it() -> None:
    clients = network()
    stranger = clients.router.connect(clients.now)
    stranger.receive_data(AMQP_HEADER + encode_frame(AMQP_FRAME, 0, Open("n" * 2_000).encode()), clients.now)
    error = frames(stranger.data_to_send())[-1][0].error
    assert (error.condition, "at most 1024" in error.description) == ("amqp:invalid-field", True)
    stranger.receive_eof(clients.now)
    assert clients.router.status()["limits"] == {"half_open": 0, "connections": {}, "refused": {}, "silent": 0}


class Counted(Bookkeeping):
    """Says how often everything was counted."""

    __slots__ = ("counts",)

    def _count(self) -> int:
        self.counts += 1
        return 0


@puts_stand_ins
def test_names_are_counted_anew_less_often_where_addresses_are_many() -> None:
    core = SimpleNamespace(addresses=dict.fromkeys(range(100_000)))
    bookkeeping = Counted(cast(Any, core), 1 << 40)
    bookkeeping.counts = 0
    for second in range(30):
        assert bookkeeping.add(10, float(second))
    assert bookkeeping.counts == 3
    core.addresses.clear()
    for second in range(30, 40):
        assert bookkeeping.add(10, float(second))
    assert bookkeeping.counts == 13
