"""A recovering publisher that is refused, stolen, detached or away; its map; and what it may go on with (protocol 15)."""

from __future__ import annotations

from amqp10.events import LinkAttaching, LinkDetached
from amqp10.outcomes import Error
from onceway.client.protocol.events import Failed
from onceway.client.protocol.link import LATER_US, MOST_REFUSALS
from onceway.client.protocol.publishing import tag_of, tags_of
from onceway.errors import LinkRefused, LinkStolen
from tests.onceway.client.harness import Rig, attached_publisher, epoch_of, kinds, map_of, number_of, payload, put


def test_an_attach_refused_with_a_later_epoch_is_made_once_more_above_it() -> None:
    """Protocol 15.1."""
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.refuse("amqp:link:stolen", {"onceway:epoch": 5_000_000})
    link = rig.attaching()
    assert 5_000_001 <= epoch_of(link) <= 5_000_000 + LATER_US
    assert publisher.take_events() == []


def test_two_lives_that_are_refused_for_the_same_epoch_begin_different_incarnations() -> None:
    """At routers that are apart: with the same one their tags would be taken for each other's repeats."""
    begun = []
    for seed in (1, 2):
        rig = Rig(seed=seed)
        rig.connect()
        rig.publisher()
        rig.refuse("amqp:link:stolen", {"onceway:epoch": 5_000_000})
        begun.append(number_of(rig.attaching(), "onceway:incarnation"))
    assert begun[0] != begun[1]


def test_refused_with_a_later_epoch_and_something_undecided_it_keeps_its_incarnation() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.answer_publisher()
    publisher.put([payload(0)], rig.now)
    rig.reconnect()
    rig.refuse("amqp:link:stolen", {"onceway:epoch": 5_000_000})
    link = rig.attaching()
    assert epoch_of(link) > 5_000_000
    assert number_of(link, "onceway:incarnation") == 1_000_000
    assert map_of(link) == {tag_of(0): None}


def test_two_earlier_lives_that_routers_knew_apart_are_both_overtaken() -> None:
    """Each without memory, at a router of its own; found by seed 232372996 of ours-apart."""
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber()
    rig.refuse("amqp:link:stolen", {"onceway:epoch": 5_000_000})
    rig.refuse("amqp:link:stolen", {"onceway:epoch": 9_000_000})
    assert epoch_of(rig.attaching()) > 9_000_000
    assert subscriber.take_events() == []


def test_refused_again_and_again_it_belongs_to_somebody_else() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    for refusal in range(MOST_REFUSALS + 1):
        assert publisher.take_events() == []
        rig.refuse("amqp:link:stolen", {"onceway:epoch": (5 + refusal) * 1_000_000})
    (event,) = publisher.take_events()
    assert isinstance(event, Failed)
    assert isinstance(event.error, LinkStolen)
    assert rig.take(type(None)) == []


def test_a_link_that_worked_and_was_stolen_is_not_taken_back() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0, 1)
    rig.accept(link, 0, 0)
    publisher.take_events()
    rig.detach(link, "amqp:link:stolen", {"onceway:epoch": 9_000_000})
    events = publisher.take_events()
    assert kinds(events) == ["Lost", "Failed"]
    assert isinstance(events[1], Failed)
    assert isinstance(events[1].error, LinkStolen)


def test_an_address_that_does_not_exist_is_final() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    rig.refuse("amqp:not-found")
    (event,) = publisher.take_events()
    assert isinstance(event, Failed)
    assert isinstance(event.error, LinkRefused)
    assert event.error.condition == "amqp:not-found"


def test_a_link_detached_for_a_passing_reason_is_attached_again_after_a_while() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0)
    rig.detach(link, "amqp:link:detach-forced")
    assert rig.take(LinkDetached)
    deadline = publisher.next_deadline()
    assert deadline is not None
    assert 0.049 <= deadline - rig.now <= 5
    rig.now = deadline
    rig.client.handle_timer(rig.now)
    rig.run()
    assert map_of(rig.attaching()) == {tag_of(0): None}


def test_away_for_less_it_resumes() -> None:
    rig = Rig()
    publisher, _ = attached_publisher(rig)
    put(rig, publisher, 0, 1)
    rig.drop()
    rig.now += 114
    rig.connect()
    assert map_of(rig.attaching()) == {tag_of(0): None, tag_of(1): None}


def test_a_map_larger_than_a_frame_goes_out_in_parts_of_one_epoch() -> None:
    rig = Rig(router_frame=2048)
    publisher, _ = attached_publisher(rig, credit=1000)
    put(rig, publisher, *range(1000))
    rig.reconnect()
    whole: dict[bytes, object] = {}
    epochs = set()
    parts = 0
    while True:
        link = rig.attaching()
        assert link.remote_attach is not None
        epochs.add(epoch_of(link))
        whole.update(map_of(link) or {})
        parts += 1
        if not link.remote_attach.incomplete_unsettled:
            break
        link.attach(source=link.remote_attach.source, target=link.remote_attach.target, unsettled={})
        link.detach(closed=False)
        rig.run()
        assert publisher.state == "attaching"
    assert list(whole) == tags_of(0, 1000)
    assert len(epochs) == 1
    assert parts > 2
    rig.heard.append(LinkAttaching(link))
    rig.answer_publisher(credit=1000)
    assert len(rig.received()) == 1000


def test_less_than_what_was_asked_for_is_refused_by_us() -> None:
    rig = Rig()
    rig.connect()
    publisher = rig.publisher()
    link = rig.attaching()
    link.attach(source=link.remote_attach.source, target=link.remote_attach.target, unsettled={}, rcv_settle_mode=0)
    rig.run()
    (event,) = publisher.take_events()
    assert isinstance(event, Failed)
    assert isinstance(event.error, LinkRefused)
    assert rig.take(LinkDetached)


def test_a_session_that_ends_under_us_is_begun_again() -> None:
    rig = Rig()
    publisher, link = attached_publisher(rig)
    put(rig, publisher, 0)
    link.session.end(Error("amqp:session:window-violation", "for a test"))
    rig.run()
    assert publisher.state == "detached"
    deadline = rig.client.next_deadline()
    assert deadline is not None
    rig.now = deadline
    rig.client.handle_timer(rig.now)
    rig.run()
    assert map_of(rig.attaching()) == {tag_of(0): None}
