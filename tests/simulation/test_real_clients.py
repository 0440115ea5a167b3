"""The library's own clients in the simulated world: their journals, and the rules of protocol 15 taken away."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from amqp10.outcomes import ACCEPTED, write_state
from chaos.simulation.defects.clients import TAKEN
from chaos.simulation.defects.mutations import MUTATIONS
from chaos.simulation.defects.taking import defective
from chaos.simulation.random.explore import Run, explore
from chaos.simulation.random.plan import ClientPlan, draw
from chaos.simulation.scenarios import SCENARIOS
from chaos.simulation.scenarios.schedule import Hold, Schedule
from chaos.simulation.world.faulty_world import FaultyWorld
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.real_clients import OURS, RealPublisher
from chaos.simulation.world.real_subscribers import RealSubscriber
from chaos.simulation.world.torn_journal import Disk, File
from chaos.simulation.world.world import World

OUTCOME = write_state(ACCEPTED)


class Heard:
    """What journals tell."""

    def __init__(self) -> None:
        self.tags: list[bytes] = []

    def forgetting(self, first: int, last: int) -> None: ...

    def accepted(self, tags: Sequence[bytes], outcome: bytes) -> None:
        self.tags += tags

    def took_over(self) -> None: ...


@pytest.mark.parametrize("name", TAKEN)
def test_without_its_rule_the_client_breaks_the_guarantee(name: str) -> None:
    mutation = MUTATIONS[name]
    assert mutation.schedule is not None
    with defective(mutation.patches), pytest.raises(AssertionError, match=f"^{mutation.expected}"):
        SCENARIOS[mutation.schedule](World)


@pytest.mark.parametrize("family", ["ours", "ours-apart"])
def test_no_random_schedule_of_our_clients_breaks_a_guarantee(family: str) -> None:
    for seed in range(1000, 1015):
        _, failure = explore(seed, family)
        assert failure is None, f"{family} {seed}: {failure!r}"


def test_a_subscriber_that_needs_a_large_payload_gets_it_though_its_publisher_is_lost_in_the_middle() -> None:
    """Its process has died, and its journal knows the delivery without the payload (protocol 6.12.12)."""
    publisher, subscriber = Publisher(), RealSubscriber()
    publisher.size, subscriber.notes = 5_000, True
    s = Schedule(FaultyWorld("A", [publisher], [subscriber], stream_above=600, max_frame_size=1_024))
    s.up("s0@A", "p0@A").hold(("accept",)).send("p0").run().step("kill", "s0", 99).run().attach("s0@A")
    s.step("connect", "p0", "A")
    cid = s.cid("p0")
    s.hold(("gulp", cid)).run(until=lambda: s.next_frame(cid) == "transfer").step("c2r", cid)
    s.hold(("c2r", cid)).run()
    address = s.w.site("A").router.core.addresses["orders"]
    (attached,) = address.deliveries.subscribers.values()
    assert attached.partial.resumes
    s.lose("p0").run()
    assert attached.partial is not None, "it is not open"
    s.release(("accept",)).attach("p0@A").finish()
    assert address.deliveries.subscribers.get(attached.name) is attached, "it had to attach again"
    assert s.accepted("s0") == {("p0", 0)}


def test_a_journal_tears_at_any_write() -> None:
    for keep in range(4):
        disk, heard = Disk(), Heard()
        journal = disk.open(heard)
        journal.publisher("orders", "p").publish(0, [b"a", b"b", b"c"])
        journal.sync()
        journal.crash(keep)
        record = disk.open(heard).publisher("orders", "p").record
        assert record.undecided == [(0, b"a"), (1, b"b"), (2, b"c")][:keep]
        assert record.sequence == keep


def test_what_a_fenced_off_process_writes_fails_and_is_not_there() -> None:
    disk, old, new = Disk(), Heard(), Heard()
    first, second = disk.open(old), disk.open(new)
    one, two = first.subscriber("orders", "s"), second.subscriber("orders", "s")
    one.attached(1)
    one.accept([b"x"], OUTCOME)
    first.sync()
    first.advance()
    one.accept([b"y"], OUTCOME)
    first.sync()
    assert two.attached(2) == {b"x": OUTCOME}
    first.advance()
    assert first.failure is not None
    assert (old.tags, disk.subscriber.unsettled) == ([b"x"], {b"x": OUTCOME})


def test_the_stepped_sqlite_journal_loses_whole_transactions() -> None:
    for keep in (0, 1):
        file, heard = File(), Heard()
        journal = file.open(heard)
        journal.open("c", lambda: None)
        part = journal.subscriber("orders", "s")
        part.accept([b"x", b"y"], OUTCOME)
        assert journal.sync() > journal.durable
        journal.crash(keep)
        assert heard.tags == [b"x", b"y"] * keep
        again = file.open(heard)
        again.open("c", lambda: None)
        assert list(again.subscriber("orders", "s").record.unsettled) == [b"x", b"y"] * keep


@pytest.mark.parametrize("keep", [0, 1, 2, 99])
@pytest.mark.parametrize("journal", ["torn", "sqlite"])
def test_killed_at_any_write_our_client_sends_and_accepts_each_message_once(journal: str, keep: int) -> None:
    world = FaultyWorld("AB", [RealPublisher(total=6, journal=journal, burst=3)], [RealSubscriber(journal=journal)])
    s = Schedule(world).up("s0@A", "p0@B")
    rng = random.Random(keep)
    for _ in range(40):
        events = world.enabled()
        if not events:
            break
        s.step(*rng.choice(events))
    for name in ("p0", "s0"):
        s.step("kill", name, keep)
    s.run(place=(("p0", "A"), ("s0", "B")), sends=True)
    s.finish()
    assert world.checker.accepted_by("s0") == world.checker.received_by("s0")
    assert ("p0", 5) in world.checker.accepted_by("s0")


def test_a_list_in_small_frames_takes_one_wait_whatever_its_parts() -> None:
    """Nobody knows the publisher of what S holds any more; 9 of 19 are listed at a time, and all waited for at once."""
    clients = (
        ClientPlan("s0", False, OURS, 30, habits={"frame": 512}),
        ClientPlan("p0", True, OURS, 19, habits={"burst": 19}),
    )
    run = Run(replace(draw(1, "ours"), names="A", clients=clients, places=(), config={}, turns=False, high=None))
    s = Schedule(run.world).up("s0@A", "p0@A")
    s.hold(("accept",))
    s.send("p0")
    s.run()
    s.step("close", "p0")
    s.lose("s0")
    s.run()
    began = run.world.now
    run.calm(lambda possible: possible[0])
    assert len(s.accepted("s0")) == 19
    assert run.world.now - began < 1.5 * run.address.publisher_expires_s


@pytest.mark.parametrize("order", [1, -1])
def test_earlier_life_that_is_read_late_may_take_the_link_of_one_behind_it(order: int) -> None:
    """It has lost its memory, and its clock was set back, in either order."""
    subscriber = RealSubscriber(journal="none")
    s = Schedule(FaultyWorld("AB", [], [subscriber], strict=False))
    s.run()
    s.run(until=lambda: s.next_frame(("s0", 1)) == "attach", place=(("s0", "B"),))
    s.hold(("c2r", ("s0", 1)), ("rnotice", ("s0", 1)))
    for event in [("kill", "s0", 0), ("clock", "s0", -40)][::order]:
        s.step(*event)
    s.attach("s0@A")
    s.release(("c2r", ("s0", 1)))
    s.run()
    assert "taken over" in subscriber.refusals[-1]
    s.finish()


def test_application_without_a_journal_that_gives_up_knows_nothing_of_what_it_has_accepted() -> None:
    """m0 is not settled: it comes again, to the process that is started in its place."""
    subscriber = RealSubscriber(journal="none")
    s = Schedule(FaultyWorld("AB", [RealPublisher()], [subscriber])).up("s0@A", "p0@A")
    s.hold(("disk", "p0"))
    s.send("p0")
    s.step("disk", "p0")
    s.run()
    assert s.accepted("s0") == {("p0", 0)}
    subscriber.stop()
    assert s.accepted("s0") == set()
    s.step("start", "s0")
    s.attach("s0@B")
    assert s.accepted("s0") == {("p0", 0)}
    s.finish()


def test_journal_tells_what_was_only_noted_when_it_was_read_and_has_been_decided_since() -> None:
    disk, heard = Disk(), Heard()
    one = disk.open(heard)
    part = one.subscriber("orders", "s")
    part.attached(1)
    one.note([b"x", b"y"])
    one.crash(99)
    again = disk.open(heard)
    later = again.subscriber("orders", "s")
    assert later.record.unsettled == {b"x": None, b"y": None}
    part.accept([b"x"], OUTCOME)
    one.crash(99)
    assert later.attached(2) == {b"x": OUTCOME}


def test_nobody_is_away_for_long_while_a_client_has_not_seen_that_its_connection_is_over() -> None:
    clients = (ClientPlan("s0", False, OURS, 9), ClientPlan("p0", True, OURS, 9))
    run = Run(replace(draw(1, "ours-apart"), names="A", clients=clients, places=(), config={}, turns=False, high=None))
    s = Schedule(run.world).up("s0@A", "p0@A")
    assert run.nobody_waits()
    cid = s.cid("p0")
    s.w.pipes[cid].router_gone()
    assert not run.nobody_waits()
    s.step("cnotice", cid)
    assert run.nobody_waits()


def test_what_the_other_process_has_accepted_last_is_read_by_the_next_one() -> None:
    """Apart, two processes of one subscription are answered, the one with the earlier epoch last: it takes the journal,
    accepts m0, and is gone for good before it has read that P has settled. The other one never hears of m0."""
    publisher, subscriber = RealPublisher(), RealSubscriber()
    twin = RealSubscriber("s0+", twin_of=subscriber)
    world = FaultyWorld("AB", [publisher], [subscriber, twin], strict=False)
    s = Schedule(world).up("s0@A", "p0@B")
    s.lose("s0")
    s.run()
    s.step("twin", "s0")
    attach: Hold = lambda e, w: e == ("c2r", ("s0+", 1)) and s.next_frame(e[1]) == "attach"  # noqa: E731
    s.hold(attach)
    s.attach("s0+@B")
    s.step("part", "A")
    s.attach("s0@A")
    assert subscriber.holds()
    s.release(attach)
    s.run()
    assert twin.holds()
    s.send("p0")
    s.run(until=lambda: bool(s.accepted("s0")))
    s.hold(("r2c", ("s0+", 1)))
    s.run()
    assert not publisher.real.unsettled  # type: ignore[union-attr]
    twin.stop()
    twin.closed = True
    s.finish()
    assert subscriber.state == "on"
    assert not subscriber.holds()
    s.step("kill", "s0", 0)
    s.attach("s0@A")
    assert subscriber.holds()
    assert not subscriber.empty()
