"""What a publisher has to do: the checks whose names begin with `publisher`."""

from __future__ import annotations

from functools import partial
from typing import Any

from amqp10.errors import DETACH_FORCED, UNAUTHORIZED_ACCESS
from amqp10.outcomes import ACCEPTED, Error, Rejected
from amqp10.performatives import Disposition, Flow
from amqp10.termini import Target
from onceway.conformance.checks import (
    ADDRESS,
    SMALL_FRAMES,
    Stage,
    check,
    expect,
    expect_end,
    expect_leaving,
    expect_life,
    expect_modes,
    stolen,
    ulong,
)
from onceway.conformance.playing import Attachment, Delivery, numbers
from router.names import EPOCH, INCARNATION, PUBLISHER_EXPIRED, REJECTED, UNIQUE_TAGS

RIGHT_MAP = "a null entry for each message without an outcome, and no other"


def attached(stage: Stage, *bodies: str, credit: int = 10) -> tuple[Attachment, list[Delivery]]:
    """A fresh publisher that has sent these."""
    at = stage.begin("publisher")
    at.answer(credit=credit)
    stage.send(*bodies)
    return at, stage.deliveries(at, len(bodies)) if bodies else []


def settled(at: Attachment) -> list[int]:
    """The delivery-ids that the publisher has settled."""
    ranges = [d for d in at.frames(Disposition) if not d.role and d.settled]
    return [number for d in ranges for number in numbers(d)]


def decided(stage: Stage, at: Attachment, delivery: Delivery, state: Any = ACCEPTED) -> None:
    """Tells the outcome, and waits until the publisher has settled."""
    at.receiver.dispose(delivery.id, delivery.id, state, False)
    stage.until(lambda: delivery.id in settled(at), f"the settlement of {delivery.body}", "15.3: it settles")


def expect_map(at: Attachment, *deliveries: Delivery) -> None:
    """Its map has these and no other, undecided."""
    tags = {delivery.tag: delivery.body for delivery in deliveries}
    lost = [body for tag, body in tags.items() if tag not in at.map]
    more = [tag.hex() for tag in at.map if tag not in tags]
    states = [str(state) for state in at.map.values() if state is not None]
    expect(not lost, f"the map leaves out {', '.join(lost)}, which counts as settled then", RIGHT_MAP)
    expect(not more, f"the map has {', '.join(more)}", RIGHT_MAP)
    expect(not states, f"the map says {', '.join(states)}", RIGHT_MAP)


def expect_same(stage: Stage, at: Attachment, *before: Delivery) -> list[Delivery]:
    """What is sent first on this attachment are these, again."""
    again = stage.deliveries(at, len(before))[: len(before)]
    for was, now in zip(before, again, strict=True):
        expect(now.body == was.body, f"{now.body} came where {was.body} is due", "in their order, before anything new")
        expect(now.tag == was.tag, f"{was.body} has the tag {now.tag.hex()}, and had {was.tag.hex()}", "the same tag")
        expect(now.payload == was.payload, f"{was.body} has another payload", "the same octets")
        expect(not now.resume, f"{was.body} has resume = true", "an ordinary transfer: routers have no memory")
    return again


@check("protocol 15.2")
def publisher_attach(stage: Stage) -> None:
    """The first attach asks for unsettled and second, and has an epoch that is its incarnation, or unique tags."""
    at = stage.begin("publisher")
    attach = at.attach
    expect(not at.link.is_sender, "a receiving link", "role sender")
    expect_modes(at)
    expect(isinstance(attach.target, Target) and attach.target.address == ADDRESS, str(attach.target), ADDRESS)
    expect(not at.map, f"a map of {len(at.map)}", "none")
    epoch, incarnation = at.brought(EPOCH), at.brought(INCARNATION)
    if "maps" in stage.client.claims:
        expect(isinstance(epoch, int) and epoch > 0, f"{EPOCH} is {epoch!r}", "a ulong above 0")
        expect(incarnation == epoch, f"{INCARNATION} is {incarnation!r}", f"the epoch, {epoch}")
    else:
        expect(at.brought(UNIQUE_TAGS) is True, f"{UNIQUE_TAGS} is {at.brought(UNIQUE_TAGS)!r}", "true")


@check("protocol 15.1", "maps")
def publisher_epoch(stage: Stage) -> None:
    """Each attach has a larger epoch, and the incarnation of the first."""
    at = stage.begin("publisher")
    at.answer(credit=10)
    for _ in range(2):
        before, at = at, stage.lose()
        expect_life(at, before)
        at.answer(credit=10)


@check("protocol 15.7", "maps")
def publisher_echo(stage: Stage) -> None:
    """A flow with echo is answered by a flow that shows the limit it was told."""
    at = stage.begin("publisher")
    at.answer()
    for limit in (5, 6):
        before = len(at.frames(Flow))
        at.receiver.grant(limit, echo=True)
        stage.until(partial(_more_flows, at, before), "a flow of the link", "15.7: at once")
        flow = at.frames(Flow)[-1]
        told = (flow.delivery_count or 0) + (flow.link_credit or 0)
        expect(told == limit, f"delivery-count + link-credit = {told}", f"{limit}, the limit that was told")
        expect(not flow.echo, "echo = true in the answer", "false: a router answers it")


def _more_flows(at: Attachment, before: int) -> bool:
    return len(at.frames(Flow)) > before


@check("AMQP 2.6.7")
def publisher_credit(stage: Stage) -> None:
    """It sends what it has credit for, and the rest when it gets more."""
    at = stage.begin("publisher")
    at.answer(credit=1)
    stage.send("m1", "m2")
    stage.deliveries(at, 1)
    stage.quiet(at)
    expect(len(at.deliveries()) == 1, f"{len(at.deliveries())} transfers with a credit of 1", "one")
    at.receiver.grant(1, echo=True)
    stage.deliveries(at, 2)


@check("AMQP 2.6.7")
def publisher_drain(stage: Stage) -> None:
    """When it is asked to drain and has nothing to send, it uses the credit up and says so."""
    at, _ = attached(stage, "m1", credit=5)
    at.receiver.grant(4, drain=True)
    stage.until(lambda: at.receiver.delivery_count >= 5, "a flow that uses the credit up", "delivery-count 5, credit 0")


@check("wire: Tags, payload, delivery-count")
def publisher_transfer(stage: Stage) -> None:
    """A first transfer is unsettled, without resume, in order, and has a delivery-tag of its own of 1 to 32 octets."""
    _, sent = attached(stage, "m1", "m2", "m3")
    bodies = [delivery.body for delivery in sent]
    expect(bodies == ["m1", "m2", "m3"], f"{', '.join(bodies)}", "m1, m2, m3, each once")
    expect(len({delivery.tag for delivery in sent}) == 3, "a tag was used twice", "each message has another one")
    for delivery in sent:
        expect(not delivery.settled, f"{delivery.body} is settled", "unsettled")
        expect(not delivery.resume, f"{delivery.body} has resume = true", "false")
        expect(1 <= len(delivery.tag) <= 32, f"a tag of {len(delivery.tag)} octets", "1 to 32")


@check("protocol 15.3")
def publisher_settles(stage: Stage) -> None:
    """It settles and tells its application when the outcome has come, once, and not before."""
    at, (m1,) = attached(stage, "m1")
    stage.quiet(at)
    expect(not settled(at), "m1 is settled before it has an outcome", "after the outcome")
    expect(not stage.said("accepted m1"), "`accepted m1` before the outcome", "after it")
    decided(stage, at, m1)
    stage.says("accepted m1")
    at.receiver.dispose(m1.id, m1.id, ACCEPTED, True)  # the echo of its settlement
    stage.quiet(at)
    expect(stage.said("accepted m1") == 1, f"`accepted m1` {stage.said('accepted m1')} times", "once")
    expect(len(at.deliveries()) == 1, f"m1 was sent {len(at.deliveries())} times", "once: it is accepted")


@check("wire: Outcomes")
def publisher_rejected(stage: Stage) -> None:
    """A rejected message is told, settled, and over: it is not sent again."""
    at, (m1,) = attached(stage, "m1")
    decided(stage, at, m1, Rejected(Error(REJECTED, "rejected by 1 subscription", {REJECTED: 1})))
    stage.says("rejected m1")
    at = stage.lose()
    expect(m1.tag not in at.map, "the map has m1", "not what has an outcome")
    at.answer(credit=10)
    stage.quiet(at)
    expect(not at.deliveries(), "m1 was sent again", "nothing")


@check("protocol 15.3", "maps")
def publisher_map(stage: Stage) -> None:
    """After a loss the map has each message without an outcome, and no other."""
    at, (m1, m2, m3) = attached(stage, "m1", "m2", "m3")
    decided(stage, at, m2)
    before, at = at, stage.lose()
    expect_life(at, before)
    expect_map(at, m1, m3)


@check("protocol 15.3")
def publisher_resend(stage: Stage) -> None:
    """What has no outcome is sent again as it was, before anything new, though the answer's map is empty; nothing else
    is."""
    at, (m1, m2, m3) = attached(stage, "m1", "m2", "m3")
    decided(stage, at, m2)
    stage.says("accepted m2")
    at = stage.lose()
    stage.send("m4")
    at.answer(credit=10)
    expect_same(stage, at, m1, m3)
    new = stage.deliveries(at, 3)[2]
    expect(new.body == "m4", f"{new.body} came where m4 is due", "what is new, after what is sent again")
    expect(new.tag not in (m1.tag, m2.tag, m3.tag), "m4 has a tag that was used before", "another one, for ever")
    stage.quiet(at)
    expect(len(at.deliveries()) == 3, f"{len(at.deliveries())} transfers", "m1, m3, m4")
    decided(stage, at, at.deliveries()[0])
    stage.says("accepted m1")


@check("protocol 15.3", "maps", "journal")
def publisher_journal(stage: Stage) -> None:
    """After kill -9 it comes back as the same publisher, with each message that it had sent in its map, and sends them
    again."""
    at, sent = attached(stage, "m1", "m2")
    stage.kill()
    before, at = at, stage.begin("publisher")
    expect_life(at, before)
    expect_map(at, *sent)
    at.answer(credit=10)
    decided(stage, at, expect_same(stage, at, *sent)[0])


@check("protocol 15.3", "maps", "journal")
def publisher_journal_outcome(stage: Stage) -> None:
    """What it had settled before kill -9 is not in its map, nor sent again, and its tag is never used again."""
    at, (m1,) = attached(stage, "m1")
    decided(stage, at, m1)
    stage.kill()
    at = stage.begin("publisher")
    expect_map(at)
    at.answer(credit=10)
    stage.send("m2")
    (m2, *_) = stage.deliveries(at, 1)
    expect(m2.body == "m2", f"{m2.body} came", "m2 alone: m1 was accepted")
    expect(m2.tag != m1.tag, "m2 has the tag of m1", "another one: numbers never go back")


@check("protocol 7.7.1", "maps")
def publisher_map_in_parts(stage: Stage) -> None:
    """A map that exceeds the router's frame comes in parts: one epoch, incomplete-unsettled in all but the last."""
    bodies = [f"m{number}" for number in range(1, 121)]
    at, sent = attached(stage, *bodies, credit=len(bodies))
    stage.frame_size = SMALL_FRAMES
    at = stage.lose()
    found, epoch, parts = set(at.map), ulong(at, EPOCH), 1
    while at.attach.incomplete_unsettled:
        at.part()
        at = stage.attaching()
        parts += 1
        expect(ulong(at, EPOCH) == epoch, f"part {parts} has another epoch", "that of the first part")
        found |= set(at.map)
    expect(parts > 1, "one part", "several: the map does not fit")
    left = {delivery.tag for delivery in sent} - found
    expect(not left, f"the parts leave out {len(left)} of {len(sent)} messages", RIGHT_MAP)
    at.answer(credit=len(bodies))
    expect_same(stage, at, *sent)


@check("protocol 5.3.2", "maps")
def publisher_stolen(stage: Stage) -> None:
    """Refused as stolen, it attaches again above the epoch that it was told; what is undecided stays in the map."""
    at, (m1,) = attached(stage, "m1")
    before, at = at, stolen(stage, stage.lose())
    expect_life(at, before)
    expect_map(at, m1)


@check("wire: When the network has forgotten the publisher", "maps")
def publisher_expired(stage: Stage) -> None:
    """Told that it has expired, it reports what is undecided, sends none of it again, and begins a new incarnation."""
    at, (m1,) = attached(stage, "m1")
    incarnation = ulong(at, INCARNATION)
    stage.lose().refuse(PUBLISHER_EXPIRED)
    at = stage.attaching()
    stage.says("undecided m1")
    fresh = ulong(at, INCARNATION) == ulong(at, EPOCH) > incarnation
    expect(fresh, f"incarnation {ulong(at, INCARNATION)}, epoch {ulong(at, EPOCH)}", "the new epoch, in both")
    expect(m1.tag not in at.map, "the map has m1", "none")
    at.answer(credit=10)
    stage.quiet(at)
    expect(not at.deliveries(), "m1 was sent again: it may arrive twice", "nothing")


@check("wire: Errors")
def publisher_detached(stage: Stage) -> None:
    """Detached with an error that passes, it attaches again, and sends again what has no outcome."""
    at, (m1,) = attached(stage, "m1")
    at.refuse(DETACH_FORCED)
    before, at = at, stage.attaching()
    if "maps" in stage.client.claims:
        expect_life(at, before)
        expect_map(at, m1)
    at.answer(credit=10)
    expect_same(stage, at, m1)


@check("wire: Errors")
def publisher_refused(stage: Stage) -> None:
    """Refused with a condition that is final, it gives up and says so."""
    stage.begin("publisher").refuse(UNAUTHORIZED_ACCESS)
    expect_end(stage)


@check("wire: Settle modes and guarantee")
def publisher_guarantee(stage: Stage) -> None:
    """Where the answer gives less than exactly once, it sends nothing and gives up."""
    at = stage.begin("publisher")
    stage.send("m1")
    at.answer(guarantee="at-least-once", rcv_settle_mode=0, credit=10)
    expect_end(stage)
    expect(not at.deliveries(), "it sends m1 all the same", "nothing")


@check("wire: Ending", "journal")
def publisher_leaves(stage: Stage) -> None:
    """Told to stop while a message is undecided, it detaches with closed = false."""
    at, _ = attached(stage, "m1")
    expect_leaving(stage, at)
