"""What a delivery-state of a client stands for, in dispositions and in unsettled maps (protocol 6.4).

Read `router.links.negotiation` for the rest of an attach.
"""

from __future__ import annotations

from typing import Final

from amqp10.errors import INVALID_FIELD, RemoteProtocolError
from amqp10.outcomes import ACCEPTED, RELEASED, Accepted, DeliveryState, Modified, Received, Rejected, Released
from amqp10.performatives import Attach
from amqp10.types import Described
from router.core import ports
from router.core.ports import MapState, Outcome

MAP_STATES: Final[dict[MapState, DeliveryState | None]] = {
    MapState.UNDECIDED: None,
    MapState.RECEIVED: Received(section_number=0, section_offset=0),
    MapState.ACCEPTED: ACCEPTED,
    MapState.REJECTED: Rejected(),
    MapState.RELEASED: RELEASED,
}
"""The wire form in the answer's unsettled map and in resumed transfers."""


def terminal_outcome(state: DeliveryState | None, *, queue: bool = False) -> Outcome | None:
    """The outcome that a disposition's state stands for (protocol 6.4); None where it is not terminal. queue: what one
    consumer cannot take may be for another (protocol 16.5.4)."""
    if isinstance(state, Accepted):
        return ports.ACCEPTED
    if isinstance(state, Rejected):
        return Outcome.REJECTED
    if isinstance(state, Released):
        return Outcome.RELEASED
    if isinstance(state, Modified):
        if state.undeliverable_here and not queue:
            return Outcome.REJECTED
        if state.undeliverable_here:
            return Outcome.FAILED_ELSEWHERE if state.delivery_failed else Outcome.ELSEWHERE
        return Outcome.FAILED if state.delivery_failed else Outcome.RELEASED
    return None


def is_unknown(state: DeliveryState | None) -> bool:
    """Whether it is no delivery-state of AMQP's messaging layer, as a transactional-state is none."""
    return isinstance(state, Described)


def default_outcome(attach: Attach, *, queue: bool) -> Outcome:
    """The outcome of a settlement without a terminal state on this link (protocol 6.4)."""
    state = attach.source.default_outcome if attach.source is not None else None
    return terminal_outcome(state, queue=queue) or Outcome.RELEASED


def outcome_of(state: DeliveryState | None, field: str = "attach.unsettled") -> Outcome | None:
    outcome = terminal_outcome(state)
    if outcome is None and state is not None and not isinstance(state, Received):
        raise RemoteProtocolError(INVALID_FIELD, f"{field}: {state!r:.80} is no delivery-state that is known here")
    return outcome


_TO_MAP_STATE: Final = {
    Outcome.ACCEPTED: MapState.ACCEPTED,
    Outcome.REJECTED: MapState.REJECTED,
    Outcome.RELEASED: MapState.RELEASED,
    Outcome.FAILED: MapState.RELEASED,
    Outcome.ELSEWHERE: MapState.RELEASED,
    Outcome.FAILED_ELSEWHERE: MapState.RELEASED,
}


def map_state_of(state: DeliveryState | None, *, queue: bool) -> MapState:
    outcome = outcome_of(state)
    if queue and outcome is not None:
        outcome = terminal_outcome(state, queue=True)
    if outcome is not None:
        return _TO_MAP_STATE[outcome]
    return MapState.UNDECIDED if state is None else MapState.RECEIVED
