"""Input that has ended a router is refused for a minute, and nobody else is."""

from __future__ import annotations

from amqp10.errors import INTERNAL_ERROR
from amqp10.events import ConnectionClosed
from amqp10.sasl import Success
from amqp10.termini import Source, Target
from mqtt import Connack, Connect, Reason
from router.config import Life, RouterConfig
from router.router import Router
from router.suspects import MOST, REFUSED_S, Suspect, Suspects, digest_of, sender_of
from tests.router.borders import Site, Told, Tracer

ANN = "user ann"


def suspects(*found: tuple[bytes, str]) -> Suspects:
    one = Suspects()
    for octets, sender in found:
        one.add(Suspect(digest_of(octets) if octets else b"", sender), REFUSED_S)
    return one


def test_the_same_input_is_refused_whoever_sends_it() -> None:
    one = suspects((b"bad", ANN))
    assert one.refuses(b"bad", "bob", "1.2.3.4:5", 0.0)
    assert not one.refuses(b"good", "bob", "1.2.3.4:5", 0.0)


def test_the_same_sender_is_refused_and_nobody_else() -> None:
    one = suspects((b"bad", ANN), (b"", "host 9.9.9.9"))
    assert one.refuses(b"good", "ann", "1.2.3.4:5", 0.0)
    assert one.refuses(object(), "ann", "1.2.3.4:5", 0.0)
    assert one.refuses(b"good", None, "9.9.9.9:5", 0.0)
    assert not one.refuses(b"good", "bob", "9.9.9.9:5", 0.0)
    assert not one.refuses(b"good", None, "1.2.3.4:5", 0.0)
    assert not one.refuses(object(), "bob", "1.2.3.4:5", 0.0)


def test_a_minute_later_nothing_is_refused() -> None:
    one = suspects((b"bad", ANN), (b"worse", ANN))
    assert not one.refuses(b"bad", "ann", "1.2.3.4:5", REFUSED_S)
    assert not one.until


def test_who_has_not_said_who_it_is_is_known_by_its_host_and_not_by_a_name_that_it_chooses() -> None:
    assert sender_of(None, "1.2.3.4:5") == sender_of("anonymous", "1.2.3.4:6") == "host 1.2.3.4"
    assert sender_of("host 1.2.3.4", "9.9.9.9:1") != "host 1.2.3.4"


def test_only_so_many_are_remembered() -> None:
    one = suspects(*((b"%d" % number, ANN) for number in range(1, MOST + 50)))
    assert len(one.until) == MOST


def test_a_router_that_is_back_tells_the_others_what_has_ended_it() -> None:
    """Protocol 3.4.6."""
    routers = {
        name: Router(RouterConfig(name, ("a", "b")), Life(1, 0.0, True), wall_us=lambda: 1, log=Told()) for name in "ab"
    }
    routers["a"].was_ended_by(digest_of(b"bad"), "ann", "1.2.3.4:5", 0.0)
    routers["a"].peer_up("b", 20.0)
    routers["b"].peer_up("a", 20.0)
    for _, message in routers["a"].take_messages():
        routers["b"].peer_message("a", message, 20.0)
    told = routers["b"].border.suspects
    assert list(told.until.items()) == [(Suspect(digest_of(b"bad"), ANN), REFUSED_S)]


def test_refused_input_ends_its_connection_and_reaches_nobody() -> None:
    site = Site(Tracer())
    client, other = site.connect("c"), site.connect("other")
    client.session.receiver("in").attach(source=Source("t"), target=Target())
    octets = client.connection.data_to_send()
    site.router.was_ended_by(digest_of(octets), None, "1.2.3.4:5", site.now)
    site.input(client.served, octets)
    site.exchange()
    (closed,) = client.seen(ConnectionClosed)
    assert closed.error.condition == INTERNAL_ERROR
    assert site.router.border.suspects.refused == 1
    assert other.receiver("in").attached
    site.check_honest()


def test_sender_is_refused_with_what_it_says_who_it_is() -> None:
    """All that follows may be in the same read."""
    site = Site(Tracer())
    site.router.was_ended_by(b"", "ann", "1.2.3.4:5", site.now)
    client = site.client(step=Success("ann"))
    (connack,) = client.send(Connect("c"))
    assert isinstance(connack, Connack)
    assert connack.reason is Reason.QUOTA_EXCEEDED
    assert isinstance(site.client(step=Success("bob")).send(Connect("c"))[0], Connack)
