"""Attach and detach, settle modes, credit, drain, echo, multi-frame deliveries, resumption; and faults of one link."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10 import (
    ACCEPTED,
    RELEASED,
    Coordinator,
    DeliveryState,
    Dispositions,
    Error,
    FrameTooLarge,
    Link,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    LinkFlow,
    LocalProtocolError,
    Modified,
    Received,
    ReceiverLink,
    Rejected,
    ResumedTransfer,
    SenderLink,
    SessionEnded,
    Source,
    Target,
    Transfers,
)
from amqp10.errors import (
    FRAME_SIZE_TOO_SMALL,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
)
from amqp10.frames import AMQP_HEADER, encode_frame
from amqp10.link import TRANSITIONS, LinkState, Step
from amqp10.performatives import Attach, Begin, Detach, Disposition, Flow, Open, Transfer
from tests.amqp10.pair import Pair, Wire, flow, frames, kinds, only, transfer


def detached_with(events: list[Any], condition: str) -> LinkDetached:
    detached = only(events, LinkDetached)
    assert detached.local
    assert detached.closed
    assert detached.error is not None
    assert detached.error.condition == condition
    return detached


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
    assert attach is not None
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
    assert sender.remote_attach is not None
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
    assert sender.remote_attach is not None
    assert receiver.remote_attach is not None
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
    assert link.remote_attach is not None
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
        assert attach is not None
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


# Credit -----------------------------------------------------------------------------------------------------------------


def test_credit_is_what_the_receiver_granted() -> None:
    pair = Pair()
    sender, link = pair.publishing(credit=5)
    assert sender.capacity() == 5
    sender.send([b"1", b"2"], [b"", b""])
    assert sender.capacity() == 3
    with pytest.raises(LocalProtocolError):
        sender.send([b"x"] * 4, [b""] * 4)
    pair.pump()
    assert (link.delivery_count, link.limit, link.credit) == (2, 5, 3)


def test_a_grant_replaces_the_one_before() -> None:
    pair = Pair()
    sender, link = pair.publishing(credit=5)
    link.grant(50)
    link.grant(2)
    at_client, _ = pair.pump()
    only(at_client, LinkFlow)
    assert sender.credit == 2


def test_credit_counts_from_what_the_receiver_had_seen() -> None:
    pair = Pair()
    sender, link = pair.publishing(credit=5)
    link.grant(5)
    grant = pair.server.data_to_send()
    sender.send([b"1", b"2", b"3"], [b""] * 3)
    pair.client.receive_data(grant, 0.0)
    assert sender.credit == 2


def test_credit_may_be_granted_with_the_attach() -> None:
    pair = Pair()
    receiver = pair.client.begin().receiver("x")
    receiver.attach(source=Source("a"), target=Target("b"))
    receiver.grant(7)
    _, at_server = pair.pump()
    link = only(at_server, LinkAttaching).link
    assert isinstance(link, SenderLink)
    assert link.credit == 7
    link.send([b"1"], [b""])
    pair.pump()
    assert receiver.credit == 6


@pytest.mark.parametrize("initial", [5, 2**32 - 3])
def test_delivery_counts_start_where_the_sender_says_and_wrap(initial: int) -> None:
    pair = Pair()
    sender = pair.client.begin().sender("x")
    sender.attach(source=Source("a"), target=Target("b"), initial_delivery_count=initial)
    _, at_server = pair.pump()
    link = only(at_server, LinkAttaching).link
    assert isinstance(link, ReceiverLink)
    assert link.delivery_count == initial
    sender.send([b"%d" % n for n in range(10)], [b""] * 10)
    pair.pump()
    assert link.delivery_count == initial + 10
    link.grant(20)
    pair.pump()
    assert sender.credit == 20
    sender.send([b"%d" % n for n in range(20)], [b""] * 20)
    _, at_server = pair.pump()
    assert len(only(at_server, Transfers).tags) == 20


@pytest.mark.parametrize("start", [0, 1, 300])
def test_transfers_without_credit_detach_the_link_alone(start: int) -> None:
    wire = Wire()
    link = wire.attach_sender(credit=3)
    other = wire.attach_sender(name="other", handle=1)
    for number in range(3):
        wire.send(transfer(start + number), b"")
    events = wire.send(transfer(start + 3), b"")
    assert detached_with(events, TRANSFER_LIMIT_EXCEEDED).link is link
    assert [type(performative) for performative in wire.read()] == [Detach]
    assert wire.send(transfer(start + 4), b"") == []
    assert only(wire.send(transfer(start + 5, handle=1), b""), Transfers).link is other
    assert wire.send(Detach(0)) == []


def test_credit_that_is_taken_back_may_cross_transfers() -> None:
    wire = Wire()
    link = wire.attach_sender(credit=10)
    link.grant(0)
    wire.read()
    assert [kinds(wire.send(transfer(number), b"")) for number in range(10)] == [["Transfers"]] * 10
    assert link.credit == -10
    detached_with(wire.send(transfer(10), b""), TRANSFER_LIMIT_EXCEEDED)


def test_a_grant_that_was_never_written_is_no_credit() -> None:
    wire = Wire()
    link = wire.attach_sender(credit=1)
    link.grant(10)
    wire.send(transfer(0), b"")
    detached_with(wire.send(transfer(1), b""), TRANSFER_LIMIT_EXCEEDED)


def test_a_run_stops_where_the_credit_ends() -> None:
    wire = Wire()
    wire.attach_sender(credit=20)
    events = wire.feed(b"".join(encode_frame(0, 0, transfer(300 + n).encode() + b"x") for n in range(30)))
    assert kinds(events) == ["Transfers", "LinkDetached"]
    assert len(only(events, Transfers).tags) == 20


def test_a_transfer_on_a_link_not_answered_yet_refuses_it() -> None:
    wire = Wire(on_attaching=None)
    wire.send(Attach("x", 0, False, target=Target("b"), initial_delivery_count=0))
    detached_with(wire.send(transfer(0), b""), TRANSFER_LIMIT_EXCEEDED)
    attach, detach = wire.read()
    assert attach.target is None
    assert detach.error.condition == TRANSFER_LIMIT_EXCEEDED


def test_drain_asks_for_all_that_there_is() -> None:
    pair = Pair()
    receiver, link = pair.subscribing(credit=0)
    receiver.grant(10, drain=True)
    _, at_server = pair.pump()
    assert only(at_server, LinkFlow).link is link
    assert link.drain
    link.send([b"1", b"2"], [b"a", b"b"])
    link.drained()
    assert link.capacity() == 0
    at_client, _ = pair.pump()
    assert kinds(at_client) == ["Transfers", "LinkFlow"]
    assert (receiver.credit, receiver.delivery_count) == (0, 10)
    receiver.grant(5)
    pair.pump()
    assert not link.drain
    assert link.credit == 5


def test_drained_sender_sends_no_transfer() -> None:
    pair = Pair()
    receiver, link = pair.subscribing(credit=3)
    receiver.grant(3, drain=True)
    pair.pump()
    link.drained()
    with pytest.raises(LocalProtocolError):
        link.send([b"1"], [b""])


def test_an_echo_is_answered_with_our_state() -> None:
    wire = Wire()
    link = wire.attach_receiver(credit=10)
    link.send([b"1"], [b""])
    link.set_available(4)
    wire.read()
    wire.send(flow(handle=0, delivery_count=0, link_credit=10, echo=True))
    (answer,) = wire.read()
    assert isinstance(answer, Flow)
    assert (answer.handle, answer.delivery_count, answer.link_credit, answer.available) == (0, 1, 9, 4)
    assert not answer.echo


def test_an_echo_before_our_attach_is_answered_with_it() -> None:
    wire = Wire(on_attaching=None)
    link = only(wire.send(Attach("x", 0, True, source=Source("a"))), LinkAttaching).link
    wire.send(flow(handle=0, link_credit=10, echo=True))
    assert wire.read() == []
    link.attach(source=Source("a"), target=Target("b"))
    assert [type(performative) for performative in wire.read()] == [Attach, Flow]
    assert isinstance(link, SenderLink)
    assert link.credit == 10


def test_an_echo_can_be_asked_for_with_and_without_credit() -> None:
    pair = Pair()
    sender, link = pair.publishing(credit=10)
    link.grant(0, echo=True)
    at_client, at_server = pair.pump()
    assert only(at_client, LinkFlow).flow.echo
    assert only(at_server, LinkFlow).flow.link_credit == 0
    sender.flow(echo=True)
    at_client, _ = pair.pump()
    assert only(at_client, LinkFlow).link is sender


def test_available_is_passed_on() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.set_available(17)
    sender.flow()
    pair.pump()
    assert link.available == 17


# Transfers --------------------------------------------------------------------------------------------------------------


def test_a_multi_frame_message_is_put_together() -> None:
    wire = Wire()
    link = wire.attach_sender()
    assert wire.send(transfer(0, more=True, message_format=7), b"one ") == []
    assert wire.send(Transfer(0, more=True), b"two ") == []
    assert wire.send(Transfer(0, settled=True), b"three") == [Transfers(link, 0, [b"tag"], [b"one two three"], True, 7)]
    assert link.delivery_count == 1


def test_frames_of_two_links_may_be_interleaved() -> None:
    wire = Wire()
    one, two = wire.attach_sender(), wire.attach_sender("two", 1)
    wire.send(transfer(300, more=True), b"a")
    wire.send(transfer(301, handle=1), b"x")
    wire.send(transfer(302, handle=1), b"y")
    wire.send(Transfer(0), b"b")
    assert [(event.link, event.first_id, event.payloads) for event in wire.events if isinstance(event, Transfers)] == [
        (two, 301, [b"x"]),
        (two, 302, [b"y"]),
        (one, 300, [b"ab"]),
    ]
    wire.events.clear()
    wire.send(Disposition(False, 300, 302, True))
    assert [
        (event.link, event.first_id, event.last_id) for event in wire.events if isinstance(event, Dispositions)
    ] == [
        (one, 300, 300),
        (two, 301, 302),
    ]


def test_an_aborted_delivery_is_as_if_it_had_never_been() -> None:
    wire = Wire()
    link = wire.attach_sender()
    wire.send(transfer(0, more=True), b"a")
    wire.send(Transfer(0, aborted=True), b"")
    assert link.delivery_count == 1
    wire.send(transfer(1), b"next")
    assert only(wire.events, Transfers).payloads == [b"next"]
    assert len(link.session.incoming.unsettled) == 1


def test_a_delivery_that_begins_inside_another_detaches_the_link() -> None:
    wire = Wire()
    wire.attach_sender()
    wire.send(transfer(0, more=True), b"a")
    detached_with(wire.send(transfer(1, b"other"), b"b"), NOT_ALLOWED)


@pytest.mark.parametrize(
    "fields",
    [
        Transfer(0, None, b"tag", 0),
        Transfer(0, 0, None, 0),
        Transfer(0, 0, b"tag", 0, rcv_settle_mode=1),
    ],
)
def test_a_transfer_that_lacks_what_it_needs_detaches_the_link(fields: Transfer) -> None:
    wire = Wire()
    wire.attach_sender()
    detached_with(wire.send(fields, b""), INVALID_FIELD)


def test_a_sender_that_said_settled_is_held_to_it() -> None:
    wire = Wire()
    wire.attach_sender(snd_settle_mode=1)
    assert kinds(wire.send(transfer(0, settled=True), b"")) == ["Transfers"]
    detached_with(wire.send(transfer(1, settled=False), b""), INVALID_FIELD)


def test_a_sender_that_settles_early_may_write_settled_in_any_mode() -> None:
    wire = Wire()
    wire.attach_sender(snd_settle_mode=0)
    assert only(wire.send(transfer(0, settled=True), b""), Transfers).settled


def test_rcv_settle_mode_of_a_transfer_is_told() -> None:
    wire = Wire()
    wire.attach_sender(rcv_settle_mode=1)
    wire.send(transfer(0, rcv_settle_mode=0), b"")
    wire.send(transfer(1), b"")
    assert [event.rcv_settle_mode for event in wire.events if isinstance(event, Transfers)] == [0, None]


@pytest.mark.parametrize("start", [0, 300])
@pytest.mark.parametrize("pieces", [1, 4])
def test_a_message_above_max_message_size_detaches_the_link(start: int, pieces: int) -> None:
    wire = Wire(max_message_size=1000)
    link = wire.attach_sender()
    wire.send(transfer(start), b"x" * 1000)
    wire.send(transfer(start + 1), b"x" * 1000)
    assert link.delivery_count == 2
    wire.events.clear()
    if pieces == 1:
        wire.send(transfer(start + 2), b"x" * 1001)
    else:
        wire.send(transfer(start + 2, more=True), b"x" * 400)
        wire.send(Transfer(0, more=True), b"x" * 400)
        wire.send(Transfer(0), b"x" * 400)
    detached_with(wire.events, MESSAGE_SIZE_EXCEEDED)
    assert link._partial is None


def test_max_message_size_is_advertised() -> None:
    pair = Pair(server={"max_message_size": 12345})
    sender, _ = pair.publishing()
    assert sender.remote_max_message_size == 12345


@pytest.mark.parametrize("size", [0, 100, 400, 505, 506, 507, 512, 513, 5000])
def test_messages_are_cut_to_the_peers_frame_size(size: int) -> None:
    pair = Pair(server={"max_frame_size": 512})
    sender, _ = pair.publishing()
    sender.send([b"a", b"b"], [b"x" * size, b"y" * size], message_format=9, settled=True)
    data = pair.client.data_to_send()
    offset = 0
    while offset < len(data):
        frame = int.from_bytes(data[offset : offset + 4], "big")
        assert frame <= 512
        offset += frame
    run = only(pair.server.receive_data(data, 0.0), Transfers)
    assert (run.payloads, run.message_format, run.settled) == ([b"x" * size, b"y" * size], 9, True)


def test_large_and_small_messages_mix_in_one_run() -> None:
    pair = Pair(server={"max_frame_size": 600}, client={"max_frame_size": 600})
    sender, _ = pair.publishing()
    payloads = [b"s" * 10, b"L" * 5000, b"s" * 20, b"M" * 600, b"s" * 30]
    first = sender.send([b"%d" % n for n in range(5)], payloads)
    _, at_server = pair.pump()
    run = only(at_server, Transfers)
    assert (run.first_id, run.payloads) == (first, payloads)


# Resumption -------------------------------------------------------------------------------------------------------------


def test_a_resumed_delivery_comes_alone() -> None:
    pair = Pair()
    receiver, link = pair.subscribing()
    link.send([b"0"], [b"new"])
    resumed = link.resume(b"1", ACCEPTED)
    settled = link.resume(b"2", settled=True)
    again = link.resume(b"3", payload=b"again", message_format=5)
    aborted = link.resume(b"4", aborted=True)
    link.send([b"5"], [b"newer"])
    assert link.credit == 94
    at_client, _ = pair.pump()
    assert at_client == [
        Transfers(receiver, 0, [b"0"], [b"new"], False, 0),
        ResumedTransfer(receiver, resumed, b"1", None, ACCEPTED, False, False, True, 0),
        ResumedTransfer(receiver, settled, b"2", None, None, True, False, True, 0),
        ResumedTransfer(receiver, again, b"3", b"again", None, False, False, True, 5),
        ResumedTransfer(receiver, aborted, b"4", None, None, True, True),
        Transfers(receiver, 5, [b"5"], [b"newer"], False, 0),
    ]
    receiver.dispose(0, 5, ACCEPTED, True)
    _, at_server = pair.pump()
    assert [(event.first_id, event.last_id) for event in at_server if isinstance(event, Dispositions)] == [
        (0, 1),
        (3, 3),
        (5, 5),
    ]


def test_a_large_resumed_delivery_is_cut_and_put_together() -> None:
    pair = Pair(client={"max_frame_size": 512})
    receiver, link = pair.subscribing()
    link.resume(b"1", payload=b"z" * 3000)
    at_client, _ = pair.pump()
    assert at_client == [ResumedTransfer(receiver, 0, b"1", b"z" * 3000, None, False, False, True, 0)]


def test_a_transfer_with_a_state_comes_alone() -> None:
    wire = Wire()
    link = wire.attach_sender()
    events = wire.send(transfer(0, state=Received(0, 0)), b"x")
    assert events == [ResumedTransfer(link, 0, b"tag", b"x", Received(0, 0), False, False, False, 0)]


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        RELEASED,
        Rejected(Error("amqp:internal-error", "d" * 400, {"n": 1})),
        Modified(True, False, {"x-opt-a": 1}),
        Received(1, 2),
        None,
    ],
)
@pytest.mark.parametrize("settled", [True, False])
def test_states_of_all_kinds_pass_both_ways(state: DeliveryState | None, settled: bool) -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.send([b"1", b"2", b"3"], [b""] * 3)
    pair.pump()
    link.dispose(0, 1, state, False)
    sender.dispose(2, 2, state, settled)
    at_client, at_server = pair.pump()
    assert at_client == [Dispositions(sender, 0, 1, state, False)]
    assert at_server == [Dispositions(link, 2, 2, state, settled)]


def test_adjacent_equal_dispositions_are_one_range() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    sender.send([b"x"] * 20, [b""] * 20)
    pair.pump()
    for number in (3, 4, 5, 0, 1, 2, 8, 7, 6):
        link.dispose(number, number, ACCEPTED, False)
    link.dispose(9, 9, RELEASED, True)
    link.dispose(0, 3, None, True)
    found = [performative for performative, _ in frames(pair.server.data_to_send())]
    assert found == [
        Disposition(True, 0, 8, False, ACCEPTED),
        Disposition(True, 9, None, True, RELEASED),
        Disposition(True, 0, 3, True, None),
    ]


# A peer that takes only small frames ---------------------------------------------------------------------------------


def small_wire(**fields: Any) -> Wire:
    wire = Wire(begun=False, **fields)
    wire.feed(AMQP_HEADER)
    wire.send(Open("small", max_frame_size=512))
    wire.send(Begin(None, 0, 2048, 2048))
    wire.read()
    return wire


def largest_frame(data: bytes) -> int:
    offset = largest = 0
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 4], "big")
        largest = max(largest, size)
        offset += size
    return largest


def test_a_refusal_fits_the_peers_frames() -> None:
    wire = small_wire(on_attaching=None)
    target = Target("t" * 1000)
    link = only(
        wire.send(Attach("x", 0, False, target=target, source=Source("s" * 1000), initial_delivery_count=0)),
        LinkAttaching,
    ).link
    link.refuse("amqp:not-found", "no topic of that name: " + "t" * 1000, {"name": "t" * 1000})
    data = wire.server.data_to_send()
    assert largest_frame(data) <= 512
    (attach, _), (detach, _) = frames(data)
    assert attach.target is None
    assert detach.error.condition == "amqp:not-found"
    assert detach.error.description.startswith("no topic of that name")


def test_a_name_that_no_answer_can_carry_ends_the_session() -> None:
    wire = small_wire(on_attaching=None)
    error = only(wire.send(Attach("n" * 500, 0, True)), SessionEnded).error
    assert error is not None
    assert error.condition == FRAME_SIZE_TOO_SMALL
    assert largest_frame(wire.server.data_to_send()) <= 512


def test_errors_of_session_and_connection_fit_the_peers_frames() -> None:
    wire = small_wire()
    error = Error("amqp:internal-error", "why " * 500, {"what": "x" * 1000})
    wire.server.sessions[0].end(error)
    wire.server.close(error)
    data = wire.server.data_to_send()
    assert largest_frame(data) <= 512
    assert [performative.error.condition for performative, _ in frames(data)] == ["amqp:internal-error"] * 2


@pytest.mark.parametrize(
    "state", [Rejected(Error("amqp:internal-error", "why " * 500, {"n": 3})), Modified(True, False, {"x": "y" * 600})]
)
def test_states_fit_the_peers_frames(state: DeliveryState) -> None:
    wire = small_wire()
    link = wire.attach_sender()
    wire.send(transfer(0), b"")
    sender = wire.attach_receiver("out", 1)
    link.dispose(0, 0, state, False)
    sender.resume(b"tag", state, b"payload")
    data = wire.server.data_to_send()
    assert largest_frame(data) <= 512
    disposition, resumed = sorted((performative for performative, _ in frames(data)), key=lambda p: type(p).__name__)
    assert type(disposition.state) is type(resumed.state) is type(state)
    assert not resumed.more


def test_more_links_than_the_peer_takes_itself_end_the_session() -> None:
    wire = Wire(begun=False)
    wire.feed(AMQP_HEADER)
    wire.send(Open("x"))
    wire.send(Begin(None, 0, 2048, 2048, handle_max=0))
    wire.attach_sender()
    error = only(wire.send(Attach("y", 1, True)), SessionEnded).error
    assert error is not None
    assert error.condition == RESOURCE_LIMIT_EXCEEDED


def test_a_window_may_be_as_large_as_can_be_said() -> None:
    wire = Wire()
    link = wire.attach_receiver(credit=10)
    link.send([b"1", b"2"], [b"", b""])
    wire.send(flow(next_incoming_id=1, incoming_window=2**32 - 1, handle=0, delivery_count=1, link_credit=2**32 - 1))
    assert link.capacity() == 2**32 - 2
    wire.send(flow(next_incoming_id=2, incoming_window=0))
    assert link.capacity() == 0


def test_a_tag_above_32_octets_is_our_error() -> None:
    pair = Pair()
    sender, _ = pair.publishing()
    with pytest.raises(LocalProtocolError):
        sender.send([b"x" * 33], [b""])
