"""Attach and detach, settle modes, maps in parts; and the table of what may come next."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10 import (
    ACCEPTED,
    RELEASED,
    Coordinator,
    DeliveryState,
    Error,
    FrameTooLarge,
    Link,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    LocalProtocolError,
    Received,
    SenderLink,
    SessionEnded,
    Source,
    Target,
)
from amqp10.errors import RESOURCE_LIMIT_EXCEEDED
from amqp10.frames import AMQP_HEADER
from amqp10.link import TRANSITIONS, LinkState, Step
from amqp10.performatives import Attach, Begin, Detach, Open
from tests.amqp10.pair import Pair, Wire, kinds, only

# Attach -----------------------------------------------------------------------------------------------------------------


def test_attach_carries_termini_modes_and_properties() -> None:
    pair = Pair(on_attaching=None)
    receiver = pair.client.begin().receiver("name")
    source = Source(
        "topic",
        durable=2,
        expiry_policy="never",
        timeout=60,
        distribution_mode="copy",
        filter={"f": "x"},
        default_outcome=RELEASED,
        outcomes=("amqp:accepted:list", "amqp:rejected:list"),
        capabilities=("topic",),
    )
    unsettled: dict[bytes, DeliveryState | None] = {b"1": None, b"2": ACCEPTED, b"3": Received(2, 500)}
    receiver.attach(
        source=source,
        target=Target("here", timeout=5),
        unsettled=unsettled,
        incomplete_unsettled=True,
        properties={"onceway:epoch": 7},
        rcv_settle_mode=1,
        max_message_size=1000,
        offered_capabilities=("a", "b"),
        desired_capabilities=("c",),
    )
    _, at_server = pair.pump()
    link = only(at_server, LinkAttaching).link
    attach = link.remote_attach
    assert isinstance(link, SenderLink)
    assert attach.source == source
    assert attach.target == Target("here", timeout=5)
    assert attach.unsettled == unsettled
    assert attach.incomplete_unsettled
    assert attach.properties == {"onceway:epoch": 7}
    assert (attach.offered_capabilities, attach.desired_capabilities) == (("a", "b"), ("c",))
    assert link.remote_max_message_size == 1000
    assert link.rcv_settle_mode == 1
    assert not link.attached


def test_attach_is_answered_now_or_later() -> None:
    pair = Pair(on_attaching=None)
    sender = pair.client.begin().sender("x")
    sender.attach(source=Source("a"), target=Target("b"))
    _, at_server = pair.pump()
    assert not sender.attached
    link = only(at_server, LinkAttaching).link
    link.attach(source=Source("a"), target=Target("b"), properties={"onceway:term": 3})
    at_client, _ = pair.pump()
    assert at_client == [LinkAttached(sender)]
    assert sender.attached
    assert link.attached
    assert sender.remote_attach.properties == {"onceway:term": 3}


@pytest.mark.parametrize("snd", [0, 1, 2])
@pytest.mark.parametrize("rcv", [0, 1])
def test_modes_are_the_peers_wish_unless_told_otherwise(snd: int, rcv: int) -> None:
    pair = Pair()
    sender, link = pair.publishing(snd_settle_mode=snd, rcv_settle_mode=rcv)
    for end in (sender, link):
        assert (end.snd_settle_mode, end.rcv_settle_mode) == (snd, rcv)


def test_each_side_decides_its_own_mode() -> None:
    def answer(link: Link) -> None:
        link.attach(source=Source("a"), target=Target("b"), rcv_settle_mode=0)

    pair = Pair(on_attaching=answer)
    sender = pair.client.begin().sender("x")
    sender.attach(source=Source("a"), target=Target("b"), snd_settle_mode=0, rcv_settle_mode=1)
    pair.pump()
    assert (sender.snd_settle_mode, sender.rcv_settle_mode) == (0, 0)


def test_a_refused_link_shows_a_null_terminus_then_the_error() -> None:
    pair = Pair(on_attaching=lambda link: link.refuse("amqp:not-found", "no such topic", {"address": "x"}))
    session = pair.client.begin()
    sender, receiver = session.sender("s"), session.receiver("r")
    for link in (sender, receiver):
        link.attach(source=Source("a"), target=Target("b"))
    at_client, at_server = pair.pump()
    assert kinds(at_client) == ["SessionBegun", "LinkAttached", "LinkDetached", "LinkAttached", "LinkDetached"]
    assert sender.remote_attach.target is None
    assert sender.remote_attach.source == Source("a")
    assert receiver.remote_attach.source is None
    error = Error("amqp:not-found", "no such topic", {"address": "x"})
    assert [event for event in at_client if isinstance(event, LinkDetached)] == [
        LinkDetached(sender, True, error, False),
        LinkDetached(receiver, True, error, False),
    ]
    assert [event.error for event in at_server if isinstance(event, LinkDetached)] == [error, error]


def test_a_coordinator_can_be_told_from_a_target() -> None:
    wire = Wire(on_attaching=None)
    events = wire.send(
        Attach("tx", 0, False, target=Coordinator(("amqp:local-transactions",)), initial_delivery_count=0)
    )
    link = only(events, LinkAttaching).link
    assert isinstance(link.remote_attach.target, Coordinator)
    link.refuse("amqp:not-implemented", "no transactions")
    assert [type(performative) for performative in wire.read()] == [Attach, Detach]


def test_attaching_twice_is_our_error() -> None:
    pair = Pair()
    sender, _ = pair.publishing()
    with pytest.raises(LocalProtocolError):
        sender.attach(source=Source("a"), target=Target("b"))


def test_an_attach_above_the_peers_frame_size_is_not_sent() -> None:
    pair = Pair(server={"max_frame_size": 512})
    receiver = pair.client.begin().receiver("x")
    pair.pump()
    unsettled: dict[bytes, DeliveryState | None] = {b"%04d" % number: None for number in range(100)}
    with pytest.raises(FrameTooLarge):
        receiver.attach(source=Source("a"), target=Target("b"), unsettled=unsettled)
    assert pair.client.data_to_send() == b""
    receiver.attach(source=Source("a"), target=Target("b"))
    pair.pump()
    assert receiver.attached


def test_a_map_above_the_frame_size_goes_in_parts() -> None:
    pair = Pair(server={"max_frame_size": 1024})
    session, _ = pair.begin()
    unsettled: dict[bytes, DeliveryState | None] = {
        b"tag%04d" % number: (None, ACCEPTED, Received(1, 2))[number % 3] for number in range(500)
    }
    arguments: dict[str, Any] = {"source": Source("a"), "target": Target("b"), "properties": {"onceway:epoch": 2**40}}
    parts = session.receiver("x").split_unsettled(unsettled, **arguments)
    assert len(parts) > 3
    assert {tag: state for part in parts for tag, state in part.items()} == unsettled
    collected: dict[bytes, DeliveryState | None] = {}
    for number, part in enumerate(parts):
        receiver = session.receiver("x")
        receiver.attach(unsettled=part, incomplete_unsettled=number < len(parts) - 1, **arguments)
        _, at_server = pair.pump()
        attach = only(at_server, LinkAttaching).link.remote_attach
        assert attach.incomplete_unsettled == (number < len(parts) - 1)
        assert attach.unsettled is not None
        collected.update(attach.unsettled)
        receiver.detach(closed=False)
        pair.pump()
    assert collected == unsettled


def test_a_map_that_fits_is_one_part() -> None:
    pair = Pair()
    session, _ = pair.begin()
    parts = session.receiver("x").split_unsettled({b"1": None}, source=Source("a"), target=Target("b"))
    assert parts == [{b"1": None}]
    assert session.receiver("x").split_unsettled({}, source=None, target=None) == [{}]


# Detach -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [True, False])
def test_detach_is_answered_in_kind(closed: bool) -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.detach(closed=closed)
    at_client, at_server = pair.pump()
    assert at_client == [LinkDetached(sender, closed, None, True)]
    assert at_server == [LinkDetached(link, closed, None, False)]
    assert sender.session.links == []
    assert link.session.links == []


def test_detaches_that_cross_end_the_link_once() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.detach(Error("amqp:link:detach-forced"))
    link.detach(Error("amqp:link:stolen"))
    at_client, at_server = pair.pump()
    assert at_client == [LinkDetached(sender, True, Error("amqp:link:stolen"), True)]
    assert at_server == [LinkDetached(link, True, Error("amqp:link:detach-forced"), True)]


def test_an_attach_that_was_given_up_is_still_answered() -> None:
    wire = Wire(on_attaching=None)
    link = only(wire.send(Attach("x", 0, True, source=Source("a"))), LinkAttaching).link
    assert only(wire.send(Detach(0, True)), LinkDetached) == LinkDetached(link, True, None, False)
    attach, detach = wire.read()
    assert (attach.name, attach.source) == ("x", None)
    assert detach == Detach(0, True)
    link.attach(source=Source("a"), target=Target("b"))  # too late: nothing
    assert wire.read() == []


def test_a_link_detached_before_its_answer_came() -> None:
    pair = Pair()
    session = pair.client.begin()
    sender = session.sender("x")
    sender.attach(source=Source("a"), target=Target("b"))
    sender.detach(closed=False)
    at_client, at_server = pair.pump()
    assert kinds(at_client) == ["SessionBegun", "LinkDetached"]
    assert kinds(at_server) == ["SessionBegun", "LinkAttaching", "LinkDetached"]


def test_detach_and_attach_may_be_written_together() -> None:
    pair = Pair()
    sender, _ = pair.publishing()
    sender.detach(closed=False)
    again = sender.session.sender(sender.name)
    again.attach(source=Source("a"), target=Target("b"), unsettled={b"1": None})
    at_client, at_server = pair.pump()
    assert kinds(at_server) == ["LinkDetached", "LinkAttaching"]
    assert kinds(at_client) == ["LinkDetached", "LinkAttached", "LinkFlow"]
    assert again.attached
    assert not sender.attached


def test_dispositions_go_out_before_the_detach() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.send([b"1"], [b""])
    pair.pump()
    link.dispose(0, 0, ACCEPTED, True)
    link.detach()
    at_client, _ = pair.pump()
    assert kinds(at_client) == ["Dispositions", "LinkDetached"]


def test_nothing_happens_on_a_link_that_is_gone() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.send([b"1"], [b""])
    pair.pump()
    sender.detach()
    pair.pump()
    link.dispose(0, 0, ACCEPTED, True)
    link.grant(5)
    link.detach()
    sender.settle(0, 0)
    sender.flow()
    sender.drained()
    assert pair.pump() == ([], [])
    assert sender.capacity() == 0


def test_every_state_of_a_link_knows_every_step_that_can_come() -> None:
    reachable = {LinkState.NEW}
    while True:
        more = reachable | {after for (before, _), after in TRANSITIONS.items() if before in reachable}
        if more == reachable:
            break
        reachable = more
    assert reachable == set(LinkState)
    never = {
        (LinkState.NEW, Step.SEND_DETACH),
        (LinkState.NEW, Step.RECEIVE_DETACH),
        (LinkState.ATTACH_SENT, Step.SEND_ATTACH),
        (LinkState.ATTACH_SENT, Step.RECEIVE_DETACH),  # its handle is unknown until the attach
        (LinkState.ATTACH_RECEIVED, Step.RECEIVE_ATTACH),
        (LinkState.ATTACH_RECEIVED, Step.SEND_DETACH),  # an attach goes first
        (LinkState.ATTACHED, Step.SEND_ATTACH),
        (LinkState.ATTACHED, Step.RECEIVE_ATTACH),
        (LinkState.DETACH_SENT, Step.SEND_ATTACH),
        (LinkState.DETACH_SENT, Step.SEND_DETACH),
        *((LinkState.DETACHED, step) for step in Step),
    }
    assert set(TRANSITIONS) | never == {(state, step) for state in LinkState for step in Step}
    assert not set(TRANSITIONS) & never


def test_more_links_than_the_peer_takes_itself_end_the_session() -> None:
    wire = Wire(begun=False)
    wire.feed(AMQP_HEADER)
    wire.send(Open("x"))
    wire.send(Begin(None, 0, 2048, 2048, handle_max=0))
    wire.attach_sender()
    error = only(wire.send(Attach("y", 1, True)), SessionEnded).error
    assert error.condition == RESOURCE_LIMIT_EXCEEDED
