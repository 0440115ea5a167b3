"""What a subscriber has to do: the checks whose names begin with `subscriber`."""

from __future__ import annotations

from amqp10.errors import DETACH_FORCED
from amqp10.outcomes import ACCEPTED, Accepted, Received, Rejected, Released
from amqp10.performatives import Disposition, Flow
from onceway.client.bodies import encode_body
from onceway.conformance.checks import (
    ADDRESS,
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
from onceway.conformance.playing import Attachment, numbers
from router.names import BORN, EPOCH, SUBSCRIPTION_BROKEN, SUBSCRIPTION_REMOVED

Tags = list[bytes]


def answered(stage: Stage, at: Attachment, *listed: bytes, incomplete: bool = False) -> None:
    """Answers with these tags of its map, and waits for credit."""
    at.answer(listed={tag: at.map.get(tag) for tag in listed}, incomplete=incomplete)
    stage.until(lambda: at.sender.credit > len(listed), "credit", "one for each listed delivery, and its window")


def delivered(stage: Stage, *bodies: str, accept: tuple[str, ...] = ()) -> tuple[Attachment, Tags]:
    """A fresh subscriber that has got these, and has accepted some; with their tags."""
    at = stage.begin("subscriber")
    answered(stage, at)
    tags = []
    for body in bodies:
        tags.append(stage.tag())
        number = at.send(tags[-1], body)
        stage.says(f"received {body}")
        if body in accept:
            stage.client.tell("accept", body)
            said(stage, at, number)
    return at, tags


def words(at: Attachment, number: int) -> list[Disposition]:
    """What it has said of a delivery-id."""
    found = [d for d in at.frames(Disposition) if d.role]
    return [d for d in found if number in numbers(d)]


def said(stage: Stage, at: Attachment, number: int, state: type = Accepted) -> Disposition:
    """Waits for its word on a delivery-id, and judges that."""
    what = state.__name__.lower()
    found = stage.until(lambda: words(at, number), f"its word, {what}, on delivery-id {number}", "15.4: it says it")
    expect(isinstance(found[0].state, state), f"state {found[0].state}", what)
    expect(not found[0].settled, f"{what} with settled = true", "settled = false: the router settles")
    return found[0]


def expect_map(at: Attachment, **tags: tuple[bytes, type | None]) -> None:
    """Its map has these, with these states, and no other."""
    expect(at.attach.unsettled is not None, "unsettled is null", "a map, if only an empty one: an attach was answered")
    for body, (tag, state) in tags.items():
        expect(tag in at.map, f"the map leaves out {body}: it comes again as new", "each tag that it holds")
        right = "null" if state is None else state.__name__.lower()
        found = at.map[tag]
        fits = found is None if state is None else isinstance(found, state)
        expect(fits, f"the map says {found} of {body}", right)
    more = at.map.keys() - {tag for tag, _ in tags.values()}
    expect(not more, f"the map has {', '.join(tag.hex() for tag in more)}, which it does not hold", "no other tag")


def expect_once(stage: Stage, *bodies: str) -> None:
    for body in bodies:
        times = stage.said(f"received {body}")
        expect(times == 1, f"`received {body}` {times} times", "once (15.5)")


@check("protocol 15.2")
def subscriber_attach(stage: Stage) -> None:
    """The first attach asks for unsettled and second, to be waited for, and has an epoch that is its born."""
    at = stage.begin("subscriber")
    attach = at.attach
    expect(at.link.is_sender, "a sending link", "role receiver")
    expect_modes(at)
    source = attach.source
    expect(source is not None and source.address == ADDRESS, str(source), ADDRESS)
    waited = source is not None and (source.timeout or source.expiry_policy == "never")
    expect(waited, "source timeout 0", "a timeout, or expiry-policy never: else nobody waits for it")
    if "maps" in stage.client.claims:
        epoch, born = at.brought(EPOCH), at.brought(BORN)
        expect(attach.unsettled is None, "a map", "null: no attach was answered yet")
        expect(isinstance(epoch, int) and epoch > 0, f"{EPOCH} is {epoch!r}", "a ulong above 0")
        expect(born == epoch, f"{BORN} is {born!r}", f"the epoch, {epoch}")


@check("protocol 15.7", "maps")
def subscriber_echo(stage: Stage) -> None:
    """A flow with echo is answered by a flow that shows its credit."""
    at, _ = delivered(stage, "m1")
    stage.quiet()  # it may renew its credit by itself
    before = len(at.frames(Flow))
    at.sender.flow(echo=True)
    stage.until(lambda: len(at.frames(Flow)) > before, "a flow of the link", "15.7: at once")
    flow = at.frames(Flow)[-1]
    expect(flow.delivery_count == 1, f"delivery-count {flow.delivery_count}", "1, after one delivery")
    expect(flow.link_credit, f"link-credit {flow.link_credit}", "what it grants")


@check("protocol 15.4")
def subscriber_verdict(stage: Stage) -> None:
    """It says accepted when its application does, once, with settled = false."""
    at, _ = delivered(stage, "m1")
    stage.quiet(at)
    expect(not words(at, 0), f"{words(at, 0)[:1]} before the application has decided", "nothing")
    stage.client.tell("accept", "m1")
    said(stage, at, 0)
    stage.quiet(at)
    expect(len(words(at, 0)) == 1, f"{len(words(at, 0))} dispositions", "one: the router settles")


@check("wire: Deliveries")
def subscriber_outcomes(stage: Stage) -> None:
    """It says rejected and released as its application does; a released delivery that comes again is new."""
    at, (_, m2) = delivered(stage, "m1", "m2")
    stage.client.tell("reject", "m1")
    said(stage, at, 0, Rejected)
    stage.client.tell("release", "m2")
    said(stage, at, 1, Released)
    at.sender.settle(1, 1)
    at.sender.write_dispositions()
    at.send(m2, "m2")
    stage.until(lambda: stage.said("received m2") == 2, "`received m2` a second time", "it was released")


@check("wire: Deliveries", "maps")
def subscriber_settled(stage: Stage) -> None:
    """What the router has settled it forgets; its map is empty then, and not null."""
    at, _ = delivered(stage, "m1", accept=("m1",))
    at.sender.settle(0, 0)
    stage.quiet(at)
    before, at = at, stage.lose()
    expect_life(at, before)
    expect_map(at)


@check("protocol 15.4", "maps")
def subscriber_map(stage: Stage) -> None:
    """After a loss its map has each tag that it holds: accepted where it is, null where it is undecided."""
    at, (m1, m2) = delivered(stage, "m1", "m2", accept=("m1",))
    before, at = at, stage.lose()
    expect_life(at, before)
    expect_map(at, m1=(m1, Accepted), m2=(m2, None))


@check("protocol 15.4", "maps")
def subscriber_resumed(stage: Stage) -> None:
    """Of a resumed delivery it says accepted again, or, when its application decides, on the new delivery-id."""
    _, (m1, m2) = delivered(stage, "m1", "m2", accept=("m1",))
    at = stage.lose()
    answered(stage, at, m1, m2)
    first = at.sender.resume(m1, ACCEPTED)
    second = at.sender.resume(m2)
    said(stage, at, first)
    stage.quiet(at)
    expect(not words(at, second), "its word on m2", "nothing: its application has not decided")
    stage.client.tell("accept", "m2")
    said(stage, at, second)
    expect_once(stage, "m1", "m2")


@check("protocol 15.5")
def subscriber_repeat(stage: Stage) -> None:
    """A tag that it holds is not handed to the application again, though it comes as an ordinary transfer."""
    _, (m1, m2) = delivered(stage, "m1", "m2", accept=("m1",))
    at = stage.lose()
    answered(stage, at, *(tag for tag in (m1, m2) if tag in at.map))
    first, second = at.send(m1, "m1"), at.send(m2, "m2")
    said(stage, at, first)
    stage.quiet(at)
    stage.client.tell("accept", "m2")
    said(stage, at, second)
    expect_once(stage, "m1", "m2")


@check("protocol 15.4", "maps")
def subscriber_unlisted(stage: Stage) -> None:
    """What the answer does not list is settled: it is forgotten, and a verdict that comes later is void."""
    delivered(stage, "m1", "m2", accept=("m1",))
    at = stage.lose()
    answered(stage, at)
    stage.client.tell("accept", "m2")
    stage.quiet(at)
    count = len([d for d in at.frames(Disposition) if d.role])
    expect(not count, f"{count} dispositions of settled deliveries", "none")
    expect_map(stage.lose())


@check("wire: Deliveries", "maps")
def subscriber_resumed_settled(stage: Stage) -> None:
    """A delivery that is resumed and settled is forgotten, without a word."""
    _, (m1,) = delivered(stage, "m1", accept=("m1",))
    at = stage.lose()
    answered(stage, at, m1)
    number = at.sender.resume(m1, settled=True)
    stage.quiet(at)
    expect(not words(at, number), f"{words(at, number)[:1]}", "nothing: it is settled")
    expect_map(stage.lose())


@check("wire: Deliveries", "maps")
def subscriber_unknown(stage: Stage) -> None:
    """A resumed delivery whose tag it does not hold, without a payload, is released: it comes again whole."""
    at, _ = delivered(stage)
    number = at.sender.resume(stage.tag())
    said(stage, at, number, Released)


@check("AMQP 2.6.14")
def subscriber_aborted(stage: Stage) -> None:
    """A delivery that is aborted has never been: it is not handed over, not held, and not part of the next one."""
    at, _ = delivered(stage)
    half, whole = stage.tag(), stage.tag()
    at.sender.begin(half, encode_body(b"m1"))
    stage.flush()  # a frame of its own, which is a message by itself
    at.sender.abort()
    at.send(whole, "m2")
    stage.says("received m2")
    others = [line for line in stage.client.lines if line != "received m2"]
    expect(not others, f"`{', '.join(others)}`", "m2 alone: the other one was aborted")
    if "maps" in stage.client.claims:
        expect_map(stage.lose(), m2=(whole, None))


@check("protocol 7.7.3", "maps")
def subscriber_incomplete(stage: Stage) -> None:
    """From an incomplete answer it infers nothing of what is not listed. When what is listed is decided, it detaches
    and attaches again."""
    _, (m1, m2) = delivered(stage, "m1", "m2")
    at = stage.lose()
    answered(stage, at, m1, incomplete=True)
    number = at.sender.resume(m1)
    stage.quiet(at)
    expect(at.detach is None, "it detaches while m1 is undecided", "when all that is listed has its word")
    stage.client.tell("accept", "m1")
    said(stage, at, number)
    stage.until(stage.attaches, "its detach and next attach", "they ask for the rest of the map")
    before, at = at, stage.attaching()
    closed = before.detach is not None and before.detach.closed
    expect(not closed, "detach with closed = true", "closed = false")
    expect_life(at, before)
    expect_map(at, m1=(m1, Accepted), m2=(m2, None))


@check("protocol 15.4", "maps", "journal")
def subscriber_journal(stage: Stage) -> None:
    """After kill -9 it comes back as the same subscription, and its map has what it had said accepted."""
    at, (m1, m2) = delivered(stage, "m1", "m2", accept=("m1",))
    stage.kill()
    before, at = at, stage.begin("subscriber")
    expect_life(at, before)
    held = m2 in at.map
    expect(not held or isinstance(at.map[m2], Received), f"the map says {at.map.get(m2)} of m2", "received, or no m2")
    expect_map(at, m1=(m1, Accepted), **({"m2": (m2, Received)} if held else {}))
    answered(stage, at, *at.map)
    number = at.sender.resume(m1, ACCEPTED)
    said(stage, at, number)
    if held:
        at.sender.resume(m2, None, encode_body(b"m2"))
    else:
        at.send(m2, "m2")
    stage.says("received m2")
    expect_once(stage, "m1")


@check("protocol 15.5", "maps")
def subscriber_broken(stage: Stage) -> None:
    """Told that the subscription is broken, it tells its application, and begins a new one with its map."""
    at, (m1,) = delivered(stage, "m1", accept=("m1",))
    born = ulong(at, BORN)
    stage.lose().refuse(SUBSCRIPTION_BROKEN)
    at = stage.attaching()
    fresh = ulong(at, BORN) == ulong(at, EPOCH) > born
    expect(fresh, f"born {ulong(at, BORN)}, epoch {ulong(at, EPOCH)}", "the new epoch, in both")
    expect_map(at, m1=(m1, Accepted))
    answered(stage, at)
    stage.says("missed")


@check("protocol 5.3.2", "maps")
def subscriber_stolen(stage: Stage) -> None:
    """Refused as stolen, it attaches again above the epoch that it was told, with the same born."""
    at, (m1,) = delivered(stage, "m1")
    before, at = at, stolen(stage, stage.lose())
    expect_life(at, before)
    expect_map(at, m1=(m1, None))


@check("wire: Errors", "maps")
def subscriber_detached(stage: Stage) -> None:
    """Detached with an error that passes, it attaches again as the same subscription, with its map."""
    at, (m1,) = delivered(stage, "m1", accept=("m1",))
    at.refuse(DETACH_FORCED)
    before, at = at, stage.attaching()
    expect_life(at, before)
    expect_map(at, m1=(m1, Accepted))


@check("wire: Errors")
def subscriber_refused(stage: Stage) -> None:
    """Refused with a condition that is final, it gives up and says so."""
    stage.begin("subscriber").refuse(SUBSCRIPTION_REMOVED)
    expect_end(stage)


@check("wire: Settle modes and guarantee")
def subscriber_guarantee(stage: Stage) -> None:
    """Where the answer gives less than exactly once, it gives up."""
    at = stage.begin("subscriber")
    at.answer(guarantee="at-least-once", rcv_settle_mode=0)
    expect_end(stage)


@check("wire: Ending, broken, gaps", "journal")
def subscriber_leaves(stage: Stage) -> None:
    """Told to stop, it detaches with closed = false: a subscription that is closed is over."""
    at, _ = delivered(stage, "m1")
    expect_leaving(stage, at)
