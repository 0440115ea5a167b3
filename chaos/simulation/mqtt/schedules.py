"""Named schedules of protocol 5.7.8, 6.11, 7.9 and 16.12: each fails when its rule is taken away, and holds with it.

The name says what happens. Everything is delivered in order but what a schedule holds back; at the end all drains.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from chaos.simulation.defects.taking import defective
from chaos.simulation.mqtt.amqp import AmqpPublisher
from chaos.simulation.mqtt.clients import Member, Publisher, Subscriber
from chaos.simulation.mqtt.explore import drain
from chaos.simulation.mqtt.net import CLASHING, Event, Net
from chaos.simulation.world.checker import Violation

# The keeper of B and C is A, with which they have been in session first; that of A is B.
BOOTED_S = 2.0  # after which a router boots that is alone
GOES_ON = ("msg", "read", "client", "notice", "drop")


class Script:
    """A net whose client s subscribes at router B, and publishers with one message at a time."""

    def __init__(self, names: str, publishers: str, members: str, *, named: bool, others: bool) -> None:
        """publishers, members of the shared subscription: the router of each. named: the file names its queue. others:
        s subscribes, too."""
        self.s = Subscriber("s", 4)
        self.members = [Member(f"m{i}", 1 if i else 4) for i in range(len(members))]
        self.publishers = [Publisher(f"p{i}", 3, 1) for i in range(len(publishers))]
        self.net = Net(names, self.publishers, [self.s] if others else [], self.members, named=named)
        self.run()
        clients = [*zip(self.members, members, strict=True), *zip(self.publishers, publishers, strict=True)]
        for client, router in [*((each, "B") for each in self.net.subscribers), *clients]:
            self.connect(client.name, router)
        for publisher in self.publishers:
            self.publish(publisher)

    def run(self, *held: Event) -> None:
        """What goes on by itself, except these: ("msg", from, to), ("read", "client" or "notice", name)."""
        while events := [each for each in self.net.enabled() if each[0] in GOES_ON and self._named(each) not in held]:
            self.net.happen(events[0])

    def _named(self, event: Event) -> Event:
        if event[0] in ("read", "client", "notice"):
            return (event[0], self.net.connections[event[1]].client.name)
        return event

    def connect(self, name: str, router: str, *held: Event) -> None:
        self.net.happen(("connect", name, router))
        self.run(*held)

    def publish(self, publisher: Publisher, *held: Event) -> None:
        """Publishes, if that publisher has an identifier free."""
        if publisher.can_publish():
            self.net.happen(("publish", publisher.name))
        self.run(*held)

    def crash(self, router: str, *held: Event) -> None:
        self.net.happen(("crash", router))
        self.run(*held)

    def start_alone(self, router: str, other: str) -> None:
        """The router is killed, started again, and boots without having heard of the other one."""
        self.crash(router)
        for event in (("restart", router), ("separate", router, other), ("wait", BOOTED_S)):
            self.net.happen(event)

    def publish_amqp(self, router: str) -> None:
        """A publisher of AMQP comes, and sends its one message."""
        self.net.amqp["a"] = publisher = AmqpPublisher("a", 1)
        publisher.net = self.net
        self.net.happen(("amqp", "a", "attach", router))
        self.net.happen(("amqp", "a", "send", "-"))


def identifier_comes_again_before_all_have_settled(script: Script) -> None:
    """Protocol 6.11.1."""
    (p,) = script.publishers
    script.publish(p, ("client", "p0"))
    script.run(("msg", "A", "B"))  # PUBREL comes, and B does not read SETTLE
    script.publish(p, ("msg", "A", "B"))
    script.crash("B")
    script.connect("s", "C")


def identifier_comes_again_while_its_subscriber_is_away(script: Script) -> None:
    """Protocol 6.11.3."""
    (p,) = script.publishers
    script.publish(p, ("client", "p0"))
    script.crash("B", ("client", "p0"))
    script.run()
    script.publish(p)
    script.connect("s", "C")


def released_where_nobody_knows_the_identifier(script: Script) -> None:
    """Protocol 6.11.4."""
    (p,) = script.publishers
    script.publish(p, ("client", "p0"))
    script.run(("read", "p0"))  # A does not read PUBREL
    script.crash("A")
    script.net.happen(("restart", "A"))
    script.run()
    script.crash("B")
    script.connect("p0", "C")
    script.publish(p)
    script.connect("s", "A")


def released_by_its_client_and_not_settled(script: Script) -> None:
    """Protocol 7.9.2, 7.9.4."""
    (p,) = script.publishers
    script.publish(p, ("msg", "B", "C"))  # which does not hear that s has accepted
    script.crash("B")
    script.connect("s", "A")


def a_router_before_has_an_older_map(script: Script) -> None:
    """Protocol 7.9.3."""
    p, q = script.publishers
    quiet = ("client", "p0"), ("client", "p1")
    script.net.happen(("drop", "s"))
    script.connect("s", "C")
    script.publish(p, *quiet)
    script.net.happen(("drop", "s"))
    script.connect("s", "B", *quiet)
    script.publish(q, *quiet, ("msg", "B", "D"))
    script.crash("B", *quiet)
    script.connect("s", "A", *quiet)  # which has the later map, and hears of the older one at last


def its_router_dies_before_the_keeper_knows(script: Script) -> None:
    """Protocol 7.9.5."""
    p, q = script.publishers
    held = ("msg", "B", "C"), ("msg", "C", "B"), ("msg", "B", "A")
    script.publish(q, *held)
    script.publish(p, *held)
    script.crash("B")
    script.connect("s", "C", ("client", "p0"))  # it gets what q has published first


def its_client_works_elsewhere(script: Script, receiver: str = "s") -> None:
    """A has a publisher whose connection is half open, and what that one has published, which s has got through B
    (protocol 5.7.8)."""
    (p,) = script.publishers
    script.publish(p, ("msg", "A", "B"))
    script.net.happen(("separate", "A", "B"))
    script.net.happen(("drop", "p0"))
    half_open = ("notice", "p0")
    script.connect("p0", "B", half_open)
    assert not p.unfinished
    script.net.happen(("drop", receiver))
    script.connect(receiver, "A", half_open)
    script.net.happen(("join", "A", "B"))


def tag_comes_again_that_a_member_had_accepted_who_left(script: Script) -> None:
    """Protocol 16.7.6."""
    (p,) = script.publishers
    script.publish(p, ("client", "p0"))
    script.net.happen(("leave", "m0"))  # it is done with the message: B remembers that it was accepted
    script.run(("client", "p0"))
    script.run(("read", "p0"))  # A does not read PUBREL
    script.crash("A")
    script.connect("p0", "C")  # which reads PUBREL, and is told by B what was accepted there
    script.publish(p)


def given_back_while_the_keeper_has_it(script: Script) -> None:
    """Protocol 7.9.11."""
    (p,) = script.publishers
    p.most, p.total = 2, 4
    keeps, quiet = ("msg", "A", "B"), (("client", "p0"), ("client", "m1"))
    script.net.happen(("drop", "p0"))
    script.connect("p0", "A")
    script.publish(p)
    for _ in range(2):
        script.publish(p, keeps, *quiet)  # they are m0's, who is not sent them before B has their identifiers
    script.net.happen(("drop", "m0"))
    script.connect("m0", "B", keeps, ("notice", "m0"), *quiet)  # A hears of that first
    (place,) = [i for i, each in enumerate(script.net.connections) if each.client.name == "m1"]
    if script.net.connections[place].to_client:
        script.net.happen(("client", place))  # m1 gets one of them, and accepts it
        script.run(keeps, *quiet)
    script.run(*quiet)


def told_before_a_member_has_it(script: Script) -> None:
    """Protocol 16.12.3."""
    (p,) = script.publishers
    script.publish(p, ("client", "m0"))  # s accepts
    script.crash("B")
    script.connect("s", "C")
    script.connect("m0", "C")


def identifier_comes_again_before_a_member_has_settled(script: Script) -> None:
    """Protocol 16.12.3."""
    (p,) = script.publishers
    script.publish(p, ("client", "p0"))
    unread = ("msg", "A", "C")
    script.run(unread)  # PUBREL comes, and m0's router does not read SETTLE
    script.net.happen(("drop", "p0"))
    script.connect("p0", "B", unread)
    script.publish(p, unread)


def identifier_comes_again_after_all_members_had_left(script: Script) -> None:
    """Protocol 16.12.4."""
    (p,) = script.publishers
    gone = ("client", "m0")  # who does not join again before it reads that it has left
    script.publish(p, ("client", "p0"))
    script.net.happen(("leave", "m0"))  # B remembers that the message was accepted
    script.run(("client", "p0"), gone)
    script.run(("read", "p0"), gone)  # A does not read PUBREL
    script.crash("A", gone)
    script.connect("p0", "C", gone)
    script.run()
    script.publish(p)


def identifier_comes_again_before_its_router_is_ready(script: Script) -> None:
    """B settles, and dies before C hears of it. A settles again, before B is back and has answered its claim (protocol
    6.11.5)."""
    (p,) = script.publishers
    script.publish(p, ("client", "p0"))
    script.run(("msg", "B", "C"))
    script.crash("B")
    script.connect("p0", "A", ("client", "p0"))
    script.run(("msg", "A", "C"))  # A reads PUBREL, and claims
    script.net.happen(("restart", "B"))
    script.run(("msg", "B", "A"))
    script.publish(p, ("msg", "B", "A"))
    script.run()


def its_client_works_elsewhere_and_a_member_comes(script: Script) -> None:
    """As `its_client_works_elsewhere`, with a member in the place of s (protocol 16.12.6)."""
    its_client_works_elsewhere(script, "m0")


def router_that_has_started_learns_late_of_members(script: Script) -> None:
    """Protocol 16.12.4."""
    script.start_alone("A", "B")
    script.publish_amqp("A")
    script.net.happen(("join", "A", "B"))


def file_closes_the_topic_and_a_member_is_there(script: Script) -> None:
    """A has read a file by which the topic has no other subscriptions than declared ones; the member is from before
    (protocol 16.12.5)."""
    script.net.address = replace(script.net.address, other_subscriptions="refuse", no_subscribers="accept")
    script.start_alone("A", "B")
    script.publish_amqp("A")
    script.net.happen(("join", "A", "B"))


def only_members_subscribe(script: Script) -> None:
    """Their topic holds what nobody has subscribed to (protocol 16.12.5)."""
    script.publish_amqp("A")


def a_member_waits_for_a_publisher_that_is_away(script: Script) -> None:
    """What it may hold comes again when p0 is back. What p1 publishes meanwhile goes out, and its router
    to other work."""
    p, q = script.publishers
    script.publish(p, ("client", "m0"))
    script.net.happen(("drop", "p0"))
    script.crash("B")
    script.connect("m0", "C")
    script.publish(q)


def its_next_router_has_a_clock_that_is_behind(script: Script) -> None:
    (p,) = script.publishers
    script.net.ahead_s["C"] = 60.0
    for router in "CA":
        script.net.happen(("drop", "s"))
        script.connect("s", router)
    script.publish(p)


def two_routers_take_its_session_while_they_are_apart(script: Script) -> None:
    """s connects to B, gives up before CONNACK, and connects to A. B does not know, and attaches its subscription
    later."""
    (p,) = script.publishers
    away = ("msg", "A", "B"), ("msg", "B", "A")
    script.net.happen(("drop", "s"))
    script.connect("s", "A")
    script.net.happen(("drop", "s"))
    script.connect("s", "B", *away)
    script.net.happen(("drop", "s"))
    script.connect("s", "A", ("notice", "s"), *away)
    script.net.happen(("separate", "A", "B"))
    script.run(("notice", "s"))
    script.net.happen(("join", "A", "B"))
    script.run(("notice", "s"))
    script.publish(p)


# name -> the schedule, routers, the router of each publisher, and of each member
SCHEDULES: dict[str, tuple[Callable[[Script], None], str, str, str]] = {
    each.__name__: (each, names, publishers, "".join(members))
    for each, names, publishers, *members in (
        (identifier_comes_again_before_all_have_settled, "ABC", "A"),
        (identifier_comes_again_while_its_subscriber_is_away, "ABC", "A"),
        (released_where_nobody_knows_the_identifier, "ABC", "A"),
        (released_by_its_client_and_not_settled, "ABC", "C"),
        (a_router_before_has_an_older_map, "ABCD", "DD"),
        (its_router_dies_before_the_keeper_knows, "ABCD", "AC"),
        (its_client_works_elsewhere, "AB", "A"),
        (tag_comes_again_that_a_member_had_accepted_who_left, "ABC", "A", "B"),
        (given_back_while_the_keeper_has_it, "ABC", "C", "AC"),
        (told_before_a_member_has_it, "ABC", "A", "B"),
        (identifier_comes_again_before_a_member_has_settled, "ABC", "A", "C"),
        (identifier_comes_again_after_all_members_had_left, "ABC", "A", "B"),
        (identifier_comes_again_before_its_router_is_ready, "ABC", "B", "C"),
        (its_client_works_elsewhere_and_a_member_comes, "AB", "A", "B"),
        (a_member_waits_for_a_publisher_that_is_away, "ABC", "AC", "B"),
        (its_next_router_has_a_clock_that_is_behind, "ABC", "B"),
        (two_routers_take_its_session_while_they_are_apart, "AB", "A"),
        (router_that_has_started_learns_late_of_members, "AB", "", "B"),
        (file_closes_the_topic_and_a_member_is_there, "AB", "", "B"),
        (only_members_subscribe, "AB", "", "B"),
    )
}
NAMED = {
    "tag_comes_again_that_a_member_had_accepted_who_left",
    "given_back_while_the_keeper_has_it",
    "identifier_comes_again_before_its_router_is_ready",
}
"""Whose shared subscription the file names."""
MEMBERS_ONLY = {
    "file_closes_the_topic_and_a_member_is_there",
    "only_members_subscribe",
    "identifier_comes_again_before_its_router_is_ready",
}


def follow(name: str) -> Violation | None:
    """Plays one schedule. Returns what was violated."""
    schedule, names, publishers, members = SCHEDULES[name]
    try:
        with defective(CLASHING):
            script = Script(names, publishers, members, named=name in NAMED, others=name not in MEMBERS_ONLY)
            schedule(script)
            for router in names:
                if router not in script.net.routers:
                    script.net.happen(("restart", router))
            script.run()
            drain(script.net, random.Random(name))
    except Violation as violation:
        return violation
    except AssertionError as error:
        return Violation(f"I {error}")
    return None
