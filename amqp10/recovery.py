"""Resuming a link: what the sender does with each unsettled delivery (AMQP 2.6.13, 3.4.6).

Both attaches carry maps from delivery-tag to state. The sender compares them delivery by delivery; `resume_action`
returns what to do, from a table laid out as in AMQP 3.4.6. The owner of the unsettled map does it, with
`SenderLink.resume` or a transfer under the same tag.

A state is, as in that table, absent (not in the map), null, received, or an outcome. null on the receiver's side stands
for received(0, 0): the delivery is known, and none of it may have arrived (AMQP 3.4.6, deliveries 4 and 14).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Final

from amqp10.outcomes import Accepted, DeliveryState, Modified, Received, Rejected, Released, write_state


class Absent(Enum):
    """The value of `ABSENT`: the delivery is not in that side's map."""

    ABSENT = auto()


ABSENT: Final = Absent.ABSENT


class View(Enum):
    """The kind of state that a map has for a delivery."""

    ABSENT = auto()
    NULL = auto()
    RECEIVED = auto()
    OUTCOME = auto()
    OTHER = auto()  # a state of another kind: a transaction's, say


class Action(Enum):
    """What the sender does with one delivery."""

    FORGET = auto()
    """Do nothing: it is settled here. A receiver that lists it concludes that from its absence in our map."""
    RESEND = auto()
    """Send it again as a new delivery, without resume: the receiver does not know it."""
    RESUME = auto()
    """A transfer with resume = true, its payload from the receiver's `received` position on."""
    ABORT = auto()
    """A transfer with resume = true and aborted = true: the payload that the receiver lacks is not available."""
    TAKE_OUTCOME = auto()
    """The receiver's outcome is the delivery's: take it, then settle by a transfer with resume and settled = true."""
    SETTLE = auto()
    """Both know the outcome, or the receiver has settled: settle. To tell a receiver that lists it, a transfer with
    resume and settled = true and no payload."""
    RESTATE = auto()
    """The outcomes differ, and the sender's holds: a transfer with resume = true and its state, which the receiver
    adopts."""


# AMQP 3.4.6. Rows: the sender's view; columns: the receiver's. The comments give the numbers of the examples there.
# Two cells depend on more than the kind of state and are looked up in _COMPARED.
TABLE: Final[dict[tuple[View, View], Action]] = {
    (View.ABSENT, View.ABSENT): Action.FORGET,
    (View.ABSENT, View.NULL): Action.FORGET,
    (View.ABSENT, View.RECEIVED): Action.FORGET,
    (View.ABSENT, View.OUTCOME): Action.FORGET,
    (View.NULL, View.ABSENT): Action.RESEND,  # 1
    (View.NULL, View.NULL): Action.RESUME,  # 4
    (View.NULL, View.RECEIVED): Action.RESUME,  # 2
    (View.NULL, View.OUTCOME): Action.TAKE_OUTCOME,  # 3
    (View.RECEIVED, View.ABSENT): Action.RESEND,  # 5
    (View.RECEIVED, View.NULL): Action.ABORT,  # 9, unless nothing was received here either
    (View.RECEIVED, View.RECEIVED): Action.ABORT,  # 7, unless the receiver has at least as much: 6
    (View.RECEIVED, View.OUTCOME): Action.TAKE_OUTCOME,  # 8
    (View.OUTCOME, View.ABSENT): Action.SETTLE,  # 10
    (View.OUTCOME, View.NULL): Action.ABORT,  # 14
    (View.OUTCOME, View.RECEIVED): Action.ABORT,  # 11
    (View.OUTCOME, View.OUTCOME): Action.RESTATE,  # 13, unless they are equal: 12
}

_OUTCOMES: Final = (Accepted, Rejected, Released, Modified)
_NOTHING: Final = Received(0, 0)


def view(state: DeliveryState | Absent | None) -> View:
    """The kind of state that the table knows."""
    if state is ABSENT:
        return View.ABSENT
    if state is None:
        return View.NULL
    if isinstance(state, Received):
        return View.RECEIVED
    return View.OUTCOME if isinstance(state, _OUTCOMES) else View.OTHER


def resume_action(local: DeliveryState | Absent | None, remote: DeliveryState | Absent | None) -> Action:
    """What the sender does with a delivery that its own map shows as `local` and the receiver's as `remote`.

    Where either map is incomplete (AMQP 2.7.3), nothing follows from absence: ask only about tags that are listed."""
    views = view(local), view(remote)
    if View.OTHER in views:  # such as a transactional state, which is not supported
        return Action.FORGET if local is ABSENT else Action.ABORT
    if isinstance(local, Received):
        theirs = _NOTHING if remote is None else remote
        if isinstance(theirs, Received) and _extent(local) <= _extent(theirs):
            return Action.RESUME  # 6: it has what we know it had
    elif views == (View.OUTCOME, View.OUTCOME) and local == remote:
        return Action.SETTLE  # 12
    return TABLE[views]


def _extent(received: Received) -> tuple[int, int]:
    return received.section_number, received.section_offset


def split_unsettled(
    unsettled: Mapping[bytes, DeliveryState | None], room: int
) -> list[dict[bytes, DeliveryState | None]]:
    """The map in parts whose entries take at most `room` bytes each, in order; one part at least. ValueError if a
    single entry does not fit."""
    if sum(map(len, unsettled)) + len(unsettled) * (5 + _longest_state(unsettled.values())) <= room:
        return [dict(unsettled)]
    parts: list[dict[bytes, DeliveryState | None]] = [{}]
    used = 0
    for tag, state, size in _entry_sizes(unsettled):
        if size > room:
            raise ValueError(f"one entry of the unsettled map takes {size} bytes, there is room for {room}")
        if used + size > room:
            parts.append({})
            used = 0
        parts[-1][tag] = state
        used += size
    return parts


def _longest_state(states: Iterable[DeliveryState | None]) -> int:
    """Bytes of the longest one."""
    different = {id(state): state for state in states}.values()
    return max([1 if state is None else len(write_state(state)) for state in different], default=1)


def _entry_sizes(
    unsettled: Mapping[bytes, DeliveryState | None],
) -> Iterator[tuple[bytes, DeliveryState | None, int]]:
    for tag, state in unsettled.items():
        head = 2 if len(tag) < 256 else 5
        yield tag, state, head + len(tag) + (1 if state is None else len(write_state(state)))
