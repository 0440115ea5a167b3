"""An attach taken apart and judged: what it asks for, what it gets, and the termini of the answer.

Contract 2 (the guarantee is AMQP's own settle modes, never silently lowered), 10 (timeout and expiry policy), 12
(unique tags), 18 (no coordinator); PROTOCOL 5.3 for how refusals look.  Everything here is a function of the attach
frame and the configuration: whether the publisher or subscription is known is the core's question.  What cannot be
granted is raised as RemoteProtocolError and becomes a refusal in `router.client_connection`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from amqp10.errors import INVALID_FIELD, NOT_ALLOWED, NOT_IMPLEMENTED, RemoteProtocolError
from amqp10.outcomes import (
    ACCEPTED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    shortened_state,
)
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_MIXED, SND_SETTLED, SND_UNSETTLED, Attach
from amqp10.termini import EXPIRE_SESSION_END, Coordinator, Source, Target
from amqp10.types import Symbol
from router import identity
from router.config import AddressConfig, Guarantee, RouterConfig
from router.ports import (
    UNIQUE_TAGS,
    ExpiryPolicy,
    MapState,
    Outcome,
    PublisherAttach,
    SubscriberAnswer,
    SubscriberAttach,
    UniqueTags,
)

BEST: Final[dict[str, int]] = {"at-most-once": 0, "at-least-once": 1, "exactly-once": 2}

MAX_NAME: Final = 1024
"""Octets of a container-id, link name or address."""

TOPIC: Final = Symbol("topic")
COPY: Final = Symbol("copy")
OUTCOMES: Final = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))


@dataclass(frozen=True, slots=True)
class Modes:
    """The settle modes of the answering attach, and what they amount to."""

    snd: int
    rcv: int
    guarantee: Guarantee

    @property
    def first(self) -> bool:
        return self.rcv == RCV_FIRST

    @property
    def settled(self) -> bool:
        return self.snd == SND_SETTLED


def negotiate_modes(attach: Attach, best: Guarantee, *, router_sends: bool) -> Modes:
    """Contract 2.  `mixed` (the default of most clients) asks for no more than the address gives: where we send we
    send unsettled, or settled where the address is at-most-once."""
    snd, rcv = attach.snd_settle_mode, attach.rcv_settle_mode
    asked: Guarantee
    if snd == SND_SETTLED:
        asked = "at-most-once"
    elif rcv == RCV_SECOND:
        asked = "exactly-once"
    elif snd == SND_MIXED and BEST[best] < BEST["at-least-once"]:
        asked, snd = "at-most-once", SND_SETTLED
    else:
        asked = "at-least-once"
    if BEST[asked] > BEST[best]:
        raise RemoteProtocolError(
            NOT_ALLOWED, f"the settle modes ask for {asked}, the best that this address is configured for is {best}"
        )
    if snd == SND_MIXED and router_sends:
        snd = SND_UNSETTLED
    return Modes(snd, rcv, asked)


def read_publisher(attach: Attach, container: str, config: RouterConfig) -> tuple[PublisherAttach, Modes]:
    """A peer's sending link."""
    check_name(attach.name, "attach.name")
    target = attach.target
    if isinstance(target, Coordinator):
        raise RemoteProtocolError(NOT_IMPLEMENTED, "attach.target: transactions are not supported, no coordinator")
    if target is None:
        raise RemoteProtocolError(INVALID_FIELD, "attach.target: is null, name an address")
    if target.dynamic:
        raise RemoteProtocolError(NOT_IMPLEMENTED, "attach.target: dynamic nodes are not supported")
    if target.address is None:
        raise RemoteProtocolError(
            NOT_IMPLEMENTED, "attach.target.address: is null, and anonymous targets are not supported: name an address"
        )
    address = _address(target.address, "target")
    modes = negotiate_modes(attach, _topic(config, address).guarantee, router_sends=False)
    epoch = identity.epoch(attach.properties)
    _check_parts(attach, epoch)
    unsettled: Mapping[bytes, Outcome | None] | UniqueTags | None = None
    if identity.flag(attach.properties, identity.UNIQUE_TAGS):
        if attach.unsettled:
            raise RemoteProtocolError(
                INVALID_FIELD,
                f"attach.properties: {identity.UNIQUE_TAGS} is for publishers without an unsettled map, this one has "
                f"{len(attach.unsettled)} entries",
            )
        unsettled = UNIQUE_TAGS
    elif attach.unsettled is not None:
        unsettled = {tag: _outcome_of(state) for tag, state in attach.unsettled.items()}
    return (
        PublisherAttach(
            container,
            attach.name,
            address,
            epoch=epoch,
            incarnation=identity.number(attach.properties, identity.INCARNATION),
            unsettled=unsettled,
            incomplete=attach.incomplete_unsettled,
            mode_first=modes.first,
        ),
        modes,
    )


def read_subscriber(attach: Attach, container: str, config: RouterConfig) -> tuple[SubscriberAttach, Modes]:
    """A peer's receiving link."""
    check_name(attach.name, "attach.name")
    source = attach.source
    if source is None:
        raise RemoteProtocolError(INVALID_FIELD, "attach.source: is null, name an address")
    if source.dynamic:
        raise RemoteProtocolError(NOT_IMPLEMENTED, "attach.source: dynamic nodes are not supported")
    address = _address(source.address, "source")
    modes = negotiate_modes(attach, _topic(config, address).guarantee, router_sends=True)
    epoch = identity.epoch(attach.properties)
    _check_parts(attach, epoch)
    unsettled = None
    if attach.unsettled is not None:
        unsettled = {tag: _map_state_of(state) for tag, state in attach.unsettled.items()}
    _outcome_of(source.default_outcome, "attach.source.default-outcome")
    return (
        SubscriberAttach(
            container,
            attach.name,
            address,
            epoch=epoch,
            born=identity.number(attach.properties, identity.BORN),
            unsettled=unsettled,
            incomplete=attach.incomplete_unsettled,
            timeout_s=float(source.timeout),
            expiry_policy=_expiry_policy(source.expiry_policy),
            mode_first=modes.first,
            settled_mode=modes.settled,
        ),
        modes,
    )


def default_outcome(attach: Attach) -> Outcome:
    """PROTOCOL 6.4: what a settlement without a terminal state means on this link."""
    state = attach.source.default_outcome if attach.source is not None else None
    return _outcome_of(state) or Outcome.RELEASED


def answer_target(attach: Attach, config: RouterConfig) -> Target:
    """The target of a publisher's answer: its timeout says how long the network waits for this publisher."""
    asked = attach.target
    assert isinstance(asked, Target)
    return Target(
        address=asked.address,
        durable=asked.durable,
        expiry_policy=asked.expiry_policy,
        timeout=int(config.address(str(asked.address)).publisher_expires_s),
        capabilities=_capabilities(asked.capabilities),
    )


def answer_source(attach: Attach, answer: SubscriberAnswer) -> Source:
    """The source of a subscriber's answer (contract 10): what was granted.  Filters that are not applied are left out
    (3.5.8: the answer holds the filters actually in place)."""
    asked = attach.source
    assert asked is not None
    return Source(
        address=asked.address,
        durable=asked.durable,
        expiry_policy=Symbol(answer.expiry_policy),
        timeout=int(answer.timeout_s),
        distribution_mode=COPY,
        default_outcome=asked.default_outcome,
        outcomes=OUTCOMES,
        capabilities=_capabilities(asked.capabilities),
    )


MAP_STATES: Final[dict[MapState, DeliveryState | None]] = {
    MapState.UNDECIDED: None,
    MapState.RECEIVED: Received(section_number=0, section_offset=0),
    MapState.ACCEPTED: ACCEPTED,
    MapState.REJECTED: Rejected(),
    MapState.RELEASED: RELEASED,
}
"""How our answer's map and our resumed transfers say it on the wire."""


def terminal_outcome(state: DeliveryState | None) -> Outcome | None:
    """A disposition's state as the protocol sees it (PROTOCOL 6.4); None where it is not terminal."""
    if isinstance(state, Accepted):
        return Outcome.ACCEPTED
    if isinstance(state, Rejected):
        return Outcome.REJECTED
    if isinstance(state, Released):
        return Outcome.RELEASED
    if isinstance(state, Modified):
        return Outcome.REJECTED if state.undeliverable_here else Outcome.RELEASED
    return None


def strip(attach: Attach) -> None:
    """Lets go of what an attach brought and neither the answer nor the link needs: it stays as long as the link."""
    attach.unsettled = attach.properties = None
    attach.offered_capabilities = attach.desired_capabilities = ()
    source, target = attach.source, attach.target
    if source is not None:
        attach.source = Source(
            source.address if isinstance(source.address, str) and len(source.address) <= MAX_NAME else None,
            source.durable,
            source.expiry_policy if len(source.expiry_policy) <= MAX_NAME else EXPIRE_SESSION_END,
            source.timeout,
            default_outcome=shortened_state(source.default_outcome),
            capabilities=_capabilities(source.capabilities),
        )
    if isinstance(target, Target):
        attach.target = Target(
            target.address if isinstance(target.address, str) and len(target.address) <= MAX_NAME else None,
            target.durable,
            target.expiry_policy if len(target.expiry_policy) <= MAX_NAME else EXPIRE_SESSION_END,
            target.timeout,
            capabilities=_capabilities(target.capabilities),
        )
    elif target is not None:
        attach.target = Coordinator()


# --- helpers


def _topic(config: RouterConfig, address: str) -> AddressConfig:
    found = config.address(address)
    if found.type != "topic":
        raise RemoteProtocolError(NOT_IMPLEMENTED, f"address {address!r:.80} is a {found.type}, only topics work")
    return found


def check_name(value: str, where: str) -> str:
    """Names are kept by every router, and told to all of them."""
    size = len(value.encode())
    if size > MAX_NAME:
        raise RemoteProtocolError(INVALID_FIELD, f"{where}: has {size} octets, at most {MAX_NAME} are allowed")
    return value


def _address(value: Any, terminus: str) -> str:
    if not isinstance(value, str) or not value:
        raise RemoteProtocolError(INVALID_FIELD, f"attach.{terminus}.address: must be a string, not {value!r:.60}")
    return check_name(str(value), f"attach.{terminus}.address")


def _check_parts(attach: Attach, epoch: int | None) -> None:
    if attach.incomplete_unsettled and (epoch is None or attach.unsettled is None):
        # PROTOCOL 7.7: the parts of one map are held together by their epoch
        raise RemoteProtocolError(
            INVALID_FIELD, f"attach.incomplete-unsettled: needs an unsettled map and the property {identity.EPOCH}"
        )


def _outcome_of(state: DeliveryState | None, field: str = "attach.unsettled") -> Outcome | None:
    outcome = terminal_outcome(state)
    if outcome is None and state is not None and not isinstance(state, Received):
        raise RemoteProtocolError(INVALID_FIELD, f"{field}: {state!r:.80} is no delivery-state that is known here")
    return outcome


_TO_MAP_STATE: Final = {
    Outcome.ACCEPTED: MapState.ACCEPTED,
    Outcome.REJECTED: MapState.REJECTED,
    Outcome.RELEASED: MapState.RELEASED,
}


def _map_state_of(state: DeliveryState | None) -> MapState:
    outcome = _outcome_of(state)
    if outcome is not None:
        return _TO_MAP_STATE[outcome]
    return MapState.UNDECIDED if state is None else MapState.RECEIVED


def _expiry_policy(value: str) -> ExpiryPolicy:
    for policy in get_args(ExpiryPolicy):
        if value == policy:
            found: ExpiryPolicy = policy
            return found
    raise RemoteProtocolError(INVALID_FIELD, f"attach.source.expiry-policy: {value!r:.60} is none of 3.5.6")


def _capabilities(asked: Sequence[str]) -> tuple[Symbol, ...]:
    return (TOPIC,) if TOPIC in asked else ()
