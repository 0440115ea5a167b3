"""The whole matrix of 3.4.6, and maps that are carried in parts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp10 import (
    ABSENT,
    ACCEPTED,
    RELEASED,
    Action,
    DeliveryState,
    Error,
    LinkAttaching,
    Modified,
    Received,
    ReceiverLink,
    Rejected,
    ResumedTransfer,
    SenderLink,
    Source,
    Target,
    Transfers,
    resume_action,
)
from amqp10.performatives import Attach
from amqp10.recovery import TABLE, View, split_unsettled, view
from amqp10.types import Described, ULong
from tests.amqp10.pair import Pair, only

NOTHING = Received(0, 0)
SOME = Received(1, 100)
MORE = Received(1, 200)
FURTHER = Received(2, 0)
REJECTED = Rejected(Error("amqp:internal-error"))
MODIFIED = Modified(delivery_failed=True)
TRANSACTIONAL = Described(ULong(0x34), [b"txn"])
OUTCOMES = (ACCEPTED, REJECTED, RELEASED, MODIFIED)

# The sender's view; the receiver's; what the sender does; the example in 3.4.6.
MATRIX: list[tuple[Any, Any, Action, str]] = [
    (None, ABSENT, Action.RESEND, "1: it never arrived"),
    (None, SOME, Action.RESUME, "2: part of it arrived"),
    (None, NOTHING, Action.RESUME, "2"),
    *((None, outcome, Action.TAKE_OUTCOME, "3: it was decided") for outcome in OUTCOMES),
    (None, None, Action.RESUME, "4: known, nothing of it arrived"),
    (SOME, ABSENT, Action.RESEND, "5: the receiver forgot"),
    (NOTHING, ABSENT, Action.RESEND, "5"),
    (SOME, SOME, Action.RESUME, "6: the receiver has as much as the sender knows"),
    (SOME, MORE, Action.RESUME, "6: or more"),
    (MORE, FURTHER, Action.RESUME, "6: in a later section"),
    (MORE, SOME, Action.ABORT, "7: the receiver has less than the sender can resume from"),
    (FURTHER, MORE, Action.ABORT, "7"),
    *((SOME, outcome, Action.TAKE_OUTCOME, "8: it was decided") for outcome in OUTCOMES),
    (SOME, None, Action.ABORT, "9: nothing of it is there"),
    (NOTHING, None, Action.RESUME, "9: but nothing is missing either"),
    (NOTHING, NOTHING, Action.RESUME, "6"),
    *((outcome, ABSENT, Action.SETTLE, "10: the receiver has settled") for outcome in OUTCOMES),
    *((outcome, SOME, Action.ABORT, "11: decided here, and not there") for outcome in OUTCOMES),
    *((outcome, outcome, Action.SETTLE, "12: both agree") for outcome in OUTCOMES),
    *(
        (one, other, Action.RESTATE, "13: the sender's counts")
        for one in OUTCOMES
        for other in OUTCOMES
        if one != other
    ),
    (Rejected(Error("amqp:not-found")), REJECTED, Action.RESTATE, "13: also within one kind of outcome"),
    *((outcome, None, Action.ABORT, "14: as 11") for outcome in OUTCOMES),
    *((ABSENT, remote, Action.FORGET, "2.6.13: settled here") for remote in (ABSENT, None, SOME, NOTHING, *OUTCOMES)),
    *((local, TRANSACTIONAL, Action.ABORT, "no transactions") for local in (None, SOME, ACCEPTED, TRANSACTIONAL)),
    *((TRANSACTIONAL, remote, Action.ABORT, "no transactions") for remote in (ABSENT, None, SOME, ACCEPTED)),
    (ABSENT, TRANSACTIONAL, Action.FORGET, "2.6.13: settled here"),
]


@pytest.mark.parametrize(("local", "remote", "action", "why"), MATRIX)
def test_the_sender_does_what_the_matrix_says(local: Any, remote: Any, action: Action, why: str) -> None:
    assert resume_action(local, remote) is action, why


def test_the_matrix_is_complete() -> None:
    spoken = [kind for kind in View if kind is not View.OTHER]
    assert set(TABLE) == {(local, remote) for local in spoken for remote in spoken}
    seen = {(view(local), view(remote)) for local, remote, _, _ in MATRIX}
    assert seen == {(local, remote) for local in View for remote in View}
    assert {action for _, _, action, _ in MATRIX} == set(Action)


STATES = st.sampled_from([None, SOME, NOTHING, *OUTCOMES])


@given(st.dictionaries(st.binary(max_size=32), STATES, max_size=200), st.integers(100, 500))
def test_parts_of_a_map_make_up_the_map_and_fit(unsettled: dict[bytes, DeliveryState | None], room: int) -> None:
    parts = split_unsettled(unsettled, room)
    joined: dict[bytes, DeliveryState | None] = {}
    for part in parts:
        joined.update(part)
        assert part or not unsettled
        empty = len(Attach("x", 0, True, unsettled={}).encode())
        assert len(Attach("x", 0, True, unsettled=part).encode()) - empty <= room + 16
    assert joined == unsettled
    assert list(joined) == list(unsettled)
    assert sum(map(len, parts)) == len(unsettled)


def test_an_entry_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="takes 35 bytes"):
        split_unsettled({b"t" * 32: None}, 20)


def carry_out(sender: SenderLink, local: dict[bytes, Any], remote: dict[bytes, Any], payload: bytes) -> list[Action]:
    """What an owner does after the attaches: each delivery of its map, in order."""
    actions = []
    for tag, state in local.items():
        action = resume_action(state, remote.get(tag, ABSENT))
        actions.append(action)
        if action is Action.RESEND:
            sender.send([tag], [payload])
        elif action is Action.RESUME:
            sender.resume(tag, payload=payload)
        elif action is Action.ABORT:
            sender.resume(tag, aborted=True)
        elif action is Action.RESTATE:
            sender.resume(tag, state)
        elif action in (Action.SETTLE, Action.TAKE_OUTCOME) and tag in remote:
            sender.resume(tag, settled=True)
    return actions


def test_a_resumed_link_brings_both_maps_together() -> None:
    local: dict[bytes, Any] = {b"1": None, b"2": None, b"3": None, b"4": ACCEPTED, b"5": ACCEPTED, b"6": RELEASED}
    remote: dict[bytes, Any] = {b"2": None, b"3": ACCEPTED, b"4": ACCEPTED, b"6": ACCEPTED, b"7": None}
    answered: list[ReceiverLink] = []

    def answer(link: Any) -> None:
        link.attach(source=Source("a"), target=Target("b"), unsettled=remote)
        link.grant(10)
        answered.append(link)

    pair = Pair(on_attaching=answer)
    sender = pair.client.begin().sender("x")
    sender.attach(source=Source("a"), target=Target("b"), unsettled=local)
    _, at_server = pair.pump()
    attach = only(at_server, LinkAttaching).link.remote_attach
    assert attach.unsettled == local
    assert sender.remote_attach.unsettled == remote
    actions = carry_out(sender, local, dict(sender.remote_attach.unsettled or {}), b"payload")
    assert actions == [
        Action.RESEND,
        Action.RESUME,
        Action.TAKE_OUTCOME,
        Action.SETTLE,
        Action.SETTLE,
        Action.RESTATE,
    ]
    _, at_server = pair.pump()
    assert only(at_server, Transfers).tags == [b"1"]
    assert [
        (event.tag, event.payload, event.state, event.settled)
        for event in at_server
        if isinstance(event, ResumedTransfer)
    ] == [
        (b"2", b"payload", None, False),
        (b"3", None, None, True),
        (b"4", None, None, True),
        (b"6", None, RELEASED, False),
    ]
