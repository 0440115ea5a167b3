"""A client's attach: what it asks for, what it is granted, and the termini and properties of the answer.

The settle modes ask for a guarantee; it is granted or refused, never silently lowered. Everything here is a function of
the attach frame and the configuration; whether the publisher or subscription is known is for the core to say. What
cannot be granted raises RemoteProtocolError, which `router.links.client_connection` makes a refusal (protocol 5.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args

from amqp10.codec import encode_value
from amqp10.errors import (
    INVALID_FIELD,
    LINK_REDIRECT,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    UNAUTHORIZED_ACCESS,
    RemoteProtocolError,
)
from amqp10.outcomes import ACCEPTED, DeliveryState, shortened_state
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_MIXED, SND_SETTLED, SND_UNSETTLED, Attach, UnreadMap
from amqp10.termini import (
    COPY,
    DURABLE_CONFIGURATION,
    DURABLE_NONE,
    EXPIRE_LINK_DETACH,
    EXPIRE_SESSION_END,
    MOVE,
    Coordinator,
    Source,
    Target,
)
from amqp10.types import Described, Symbol, Timestamp, UInt, ULong
from router import names
from router.config import (
    DYNAMIC_TARGET_SUFFIX,
    RESERVED,
    AddressConfig,
    RouterConfig,
    is_dynamic,
    is_dynamic_target,
)
from router.core.naming import INCARNATIONS
from router.core.ports import (
    NEVER_EXPIRES_S,
    UNIQUE_TAGS,
    ExpiryPolicy,
    MapState,
    Outcome,
    PublisherAttach,
    SubscriberAnswer,
    SubscriberAttach,
    Term,
    UniqueTags,
)
from router.links.filters import Selection, asked_of, read_filters
from router.links.outcomes import map_state_of, outcome_of
from router.names import DYNAMIC_PREFIX, Guarantee
from router.policies import NOBODY, Direction, Identity

T = TypeVar("T")
Means = Callable[[str], str]

BEST: Final[dict[str, int]] = {"at-most-once": 0, "at-least-once": 1, "exactly-once": 2}

MAX_NAME: Final = 1024
"""Bytes of a container-id, link name or address."""
EPOCHS: Final = INCARNATIONS - (1 << 32)
"""Epochs are below that: terms that routers choose after one stay below `INCARNATIONS` (protocol 1.4)."""
"""Addresses that begin so are of other specifications, as `$cbs` and `$management`, or of routers, as the one by which
they know where sessions of MQTT are (`router.mqtt.lease`)."""

MANAGEMENT: Final = "$management"
CBS: Final = "$cbs"
"""Where clients of Azure's put tokens (`router.links.azure`)."""
ANONYMOUS_TARGET: Final = ""
"""In place of the address of a sending link that has none."""
TOPIC: Final = Symbol("topic")
QUEUE: Final = Symbol("queue")
TEMPORARY_TOPIC: Final = Symbol("temporary-topic")
TEMPORARY_QUEUE: Final = Symbol("temporary-queue")
NODES: Final = (TOPIC, QUEUE, TEMPORARY_TOPIC, TEMPORARY_QUEUE)
LIFETIME: Final[Mapping[str, Any]] = {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}
"""delete-on-close (AMQP 3.5.10): what the node of every dynamic source has, whatever was asked."""
TARGET_LIFETIME: Final[Mapping[str, Any]] = {Symbol("lifetime-policy"): Described(ULong(0x2C), [])}
"""delete-on-no-links (AMQP 3.5.11): the same of dynamic targets."""
OUTCOMES: Final = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))


class Redirected(RemoteProtocolError):
    """A pipe is read at its stores (AMQP 2.8.16): the info map names the first, and all of them."""

    def __init__(self, pipe: AddressConfig) -> None:
        super().__init__(LINK_REDIRECT, f"{pipe.match!r:.80} is a pipe: it is read at its stores")
        _, host, port = pipe.read_at[0]
        self.info: dict[str, Any] = {
            Symbol("hostname"): host,
            Symbol("network-host"): host,
            Symbol("port"): UInt(port),
            Symbol("address"): pipe.match,
            Symbol(names.STORES): [_store(*each) for each in pipe.read_at],
        }


def _store(scheme: str, host: str, port: int) -> str:
    """The URL of a store, without amqp:// where it has no TLS."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return place if scheme == "amqp" else f"{scheme}://{place}"


@dataclass(frozen=True, slots=True)
class Modes:
    """The settle modes of the answering attach, and the guarantee that follows from them."""

    snd: int
    rcv: int
    guarantee: Guarantee

    @property
    def first(self) -> bool:
        return self.rcv == RCV_FIRST

    @property
    def settled(self) -> bool:
        return self.snd == SND_SETTLED


class Unauthorized(RemoteProtocolError):
    """The policies do not let this user do it. It says nothing of what is there."""

    def __init__(self, who: Identity, direction: Direction, address: str) -> None:
        named = "any address on a link without one" if address == ANONYMOUS_TARGET else f"{address!r:.80}"
        where = f"receive from {named}" if direction == "receive" else f"send to {named}"
        if is_dynamic(address):
            where = "use dynamic nodes"
        super().__init__(UNAUTHORIZED_ACCESS, f"user {who.user!r:.60} may not {where}: no policy allows it")


def check_allowed(
    config: RouterConfig, who: Identity, direction: Direction, address: str, *, anonymous: bool = False
) -> None:
    """Raises `Unauthorized` unless the policies let this client use the address."""
    if not config.allows(who, direction, address, anonymous=anonymous):
        raise Unauthorized(who, direction, address)


def negotiate_modes(attach: Attach, best: Guarantee, *, router_sends: bool) -> Modes:
    """The modes for this attach. snd-settle-mode mixed, most clients' default, asks for no more than the address gives:
    the router sends unsettled, or settled where the address is at-most-once."""
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
            NOT_ALLOWED, f"the settle modes ask for {asked}, this address is configured for {best} at best"
        )
    if snd == SND_MIXED and router_sends:
        snd = SND_UNSETTLED
    return Modes(snd, rcv, asked)


def read_publisher(
    attach: Attach,
    container: str,
    config: RouterConfig,
    token: Callable[[], str] | None = None,
    who: Identity = NOBODY,
    means: Means = str,
) -> tuple[PublisherAttach, Modes]:
    """The attach of a publisher: a client's sending link. token and means: as for `read_subscriber`."""
    check_name(attach.name, "attach.name")
    target = attach.target
    if isinstance(target, Coordinator):
        raise RemoteProtocolError(NOT_IMPLEMENTED, "attach.target: transactions are not supported, no coordinator")
    if target is None:
        raise RemoteProtocolError(INVALID_FIELD, "attach.target: is null, name an address")
    if target.dynamic:
        target.address = _make_node(target, "attach.target", config.name, token) + DYNAMIC_TARGET_SUFFIX
    if target.address is None:
        if attach.rcv_settle_mode == RCV_SECOND and attach.snd_settle_mode != SND_SETTLED:
            text = "attach.target.address: is null: a link without an address gives at-least-once, in mode first"
            raise RemoteProtocolError(NOT_ALLOWED, text)
        if not config.allows_anonymous(who):  # else each message is looked at
            raise Unauthorized(who, "send", ANONYMOUS_TARGET)
        return PublisherAttach(container, attach.name, ANONYMOUS_TARGET), negotiate_modes(
            attach, "at-least-once", router_sends=False
        )
    address = read_address(target.address, "attach.target.address", means)
    check_allowed(config, who, "send", address)
    found = config.address(address)
    modes = negotiate_modes(attach, found.guarantee, router_sends=False)
    epoch = read_epoch(attach.properties)
    _check_parts(attach, epoch)
    unsettled: Mapping[bytes, Outcome | None] | UniqueTags | None = None
    if read_flag(attach.properties, names.UNIQUE_TAGS):
        if attach.unsettled:
            raise RemoteProtocolError(
                INVALID_FIELD,
                f"attach.properties: {names.UNIQUE_TAGS} is for publishers without an unsettled map, this one has "
                f"{len(attach.unsettled)} entries",
            )
        unsettled = UNIQUE_TAGS
    elif attach.unsettled is not None:
        accepted = Outcome.ACCEPTED
        unsettled = converted(
            attach.unsettled,
            lambda state: None if state is None else accepted if state is ACCEPTED else outcome_of(state),
        )
    return (
        PublisherAttach(
            container,
            attach.name,
            address,
            epoch=epoch,
            incarnation=read_number(attach.properties, names.INCARNATION, INCARNATIONS),
            unsettled=unsettled,
            incomplete=attach.incomplete_unsettled,
            mode_first=modes.first,
            makes_node=target.dynamic,
        ),
        modes,
    )


def converted(
    unsettled: Mapping[bytes, DeliveryState | None], convert: Callable[[DeliveryState | None], T]
) -> dict[bytes, T]:
    """What the states of a client's map stand for. Of one that is unread it is empty, and filled when that is read."""
    if isinstance(unsettled, UnreadMap):
        unsettled.convert = convert
        return unsettled.entries
    return {tag: convert(state) for tag, state in unsettled.items()}


def read_subscriber(
    attach: Attach,
    container: str,
    config: RouterConfig,
    token: Callable[[], str] | None = None,
    who: Identity = NOBODY,
    means: Means = str,
    *,
    managed: bool = False,
) -> tuple[SubscriberAttach, Modes]:
    """The attach of a subscription: a client's receiving link. token: makes the unguessable part of a
    dynamic node's address; None: there are none. means: returns the address that the client means by what it says
    (protocol 1.13). managed: the source is the management node, and this client may read there."""
    check_name(attach.name, "attach.name")
    source = attach.source
    if source is None:
        raise RemoteProtocolError(INVALID_FIELD, "attach.source: is null, name an address")
    node = None
    said = means(source.address) if isinstance(source.address, str) else source.address
    if source.dynamic:
        source.address = node = _make_node(source, "attach.source", config.name, token)
        _ends_with_its_link(source)
    elif managed:  # the answer's source keeps its name: clients look for it
        node = _make_node(source, "attach.source", config.name, token)
        _ends_with_its_link(source)
    elif is_dynamic_target(str(said)):
        _ends_with_its_link(source)
    elif is_dynamic(str(said)):
        raise RemoteProtocolError(
            NOT_ALLOWED, "attach.source.address: only the link that made a dynamic node receives from it"
        )
    address = node or read_address(said, "attach.source.address")
    if not managed:
        check_allowed(config, who, "receive", address)
    found = config.address(address)
    if found.read_at and (container, attach.name) not in found.subscriptions:
        raise Redirected(found)
    queue = found.type == "queue"
    modes = negotiate_modes(attach, found.guarantee, router_sends=True)
    epoch = read_epoch(attach.properties)
    _check_parts(attach, epoch)
    unsettled = None
    if attach.unsettled is not None:
        undecided, accepted = MapState.UNDECIDED, MapState.ACCEPTED
        unsettled = converted(
            attach.unsettled,
            lambda state: (
                undecided if state is None else accepted if state is ACCEPTED else map_state_of(state, queue=queue)
            ),
        )
    outcome_of(source.default_outcome, "attach.source.default-outcome")
    source.filter, wants = read_filters(source.filter, container)
    most_bytes = attach.max_message_size or 0
    # only what passes through in parts is larger than the network's setting
    most_of_whole = most_bytes if most_bytes < config.max_message_size else 0
    selection = None
    if wants or most_of_whole:
        selection = Selection(wants, most_of_whole, asked_of(source.filter, wants))
    browses = False
    if queue:
        browses = source.distribution_mode == COPY
        if not browses:
            if wants:
                text = "attach.source.filter: a queue takes no filters; leave them out"
                raise RemoteProtocolError(NOT_IMPLEMENTED, text)
            selection = None  # what exceeds its size goes to another (protocol 16.5.6)
    return (
        SubscriberAttach(
            container,
            attach.name,
            address,
            epoch=epoch,
            born=read_number(attach.properties, names.BORN),
            only_new=read_number(attach.properties, names.ONLY_NEW),
            unsettled=unsettled,
            incomplete=attach.incomplete_unsettled,
            timeout_s=float(source.timeout),
            expiry_policy=_expiry_policy(source.expiry_policy),
            mode_first=modes.first,
            settled_mode=modes.settled,
            selection=selection,
            most_bytes=most_bytes,
            browses=browses,
        ),
        modes,
    )


def answer_target(attach: Attach, address: AddressConfig) -> Target:
    """The target of a publisher's answer: its timeout says how long the network waits for this publisher. It has the
    address as it was said: proton's blocking clients compare them."""
    asked = attach.target
    assert isinstance(asked, Target)
    return Target(
        address=asked.address,
        expiry_policy=EXPIRE_LINK_DETACH,  # the wait begins with the link's loss, whatever was asked (protocol 8.4)
        timeout=int(address.publisher_expires_s),
        dynamic=asked.dynamic,
        dynamic_node_properties=TARGET_LIFETIME if asked.dynamic else None,
        capabilities=_capabilities(asked.capabilities, address),
    )


def answer_source(attach: Attach, answer: SubscriberAnswer, address: AddressConfig) -> Source:
    """The source of a subscription's answer: what was granted (protocol 7.6), with the filters that are applied (AMQP
    3.5.3). Only a declared subscription outlasts its routers, and never expires."""
    asked = attach.source
    assert asked is not None
    declared = answer.timeout_s == NEVER_EXPIRES_S
    policy, timeout_s = answer.expiry_policy, answer.timeout_s
    if policy == "never" and not declared:  # what `never` gives on this address, in AMQP's words (protocol 8.3)
        policy, timeout_s = "link-detach", address.subscription_timeout_s
    return Source(
        address=asked.address,
        durable=DURABLE_CONFIGURATION if declared and asked.durable else DURABLE_NONE,
        expiry_policy=Symbol(policy),
        timeout=int(timeout_s),
        dynamic=asked.dynamic,
        dynamic_node_properties=LIFETIME if asked.dynamic else None,
        distribution_mode=MOVE if address.type == "queue" else COPY,
        filter=asked.filter or None,
        default_outcome=asked.default_outcome,
        outcomes=OUTCOMES,
        capabilities=_capabilities(asked.capabilities, address),
    )


def strip(attach: Attach, *, refused: bool = False) -> None:
    """Drop what neither the answer nor the link needs: the attach is kept as long as the link."""
    attach.unsettled = attach.properties = None
    attach.offered_capabilities = attach.desired_capabilities = ()
    source, target = attach.source, attach.target
    if source is not None:
        attach.source = Source(
            source.address if isinstance(source.address, str) and len(source.address) <= MAX_NAME else None,
            source.durable,
            source.expiry_policy if len(source.expiry_policy) <= MAX_NAME else EXPIRE_SESSION_END,
            source.timeout,
            source.dynamic,
            filter=None if refused else source.filter,
            default_outcome=shortened_state(source.default_outcome),
            capabilities=_kept(source.capabilities),
        )
    if isinstance(target, Target):
        attach.target = Target(
            target.address if isinstance(target.address, str) and len(target.address) <= MAX_NAME else None,
            target.durable,
            target.expiry_policy if len(target.expiry_policy) <= MAX_NAME else EXPIRE_SESSION_END,
            target.timeout,
            target.dynamic,
            capabilities=_kept(target.capabilities),
        )
    elif target is not None:
        attach.target = Coordinator()


# Link properties


def read_number(properties: Mapping[Any, Any] | None, key: str, stop: int = 1 << 64) -> int | None:
    """An optional link property of type ulong, below `stop`; other integer types are accepted if the value fits."""
    value = (properties or {}).get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool | Timestamp) or not 0 <= value < 1 << 64:
        raise RemoteProtocolError(INVALID_FIELD, f"attach.properties: {key} must be a ulong, not {value!r:.60}")
    if value >= stop:
        raise RemoteProtocolError(INVALID_FIELD, f"attach.properties: {key} must be below {stop}, not {value}")
    return int(value)


def read_epoch(properties: Mapping[Any, Any] | None) -> int | None:
    """The link property `onceway:epoch`."""
    return read_number(properties, names.EPOCH, EPOCHS)


def read_flag(properties: Mapping[Any, Any] | None, key: str) -> bool:
    """An optional link property that is a boolean; absent means false."""
    value = (properties or {}).get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise RemoteProtocolError(INVALID_FIELD, f"attach.properties: {key} must be a boolean, not {value!r:.60}")
    return value


def answer_properties(
    *,
    guarantee: str,
    term: Term | None = None,
    incarnation: int | None = None,
    resumed: bool | None = None,
    marks: list[Term] | None = None,
    waiting: dict[Symbol, object] | None = None,
) -> dict[Symbol, Any]:
    """The properties of an answering attach; what is None is left out."""
    answer: dict[Symbol, Any] = {Symbol(names.GUARANTEE): Symbol(guarantee)}
    if term is not None:
        answer[Symbol(names.TERM)] = [ULong(term[0]), term[1]]
    if incarnation is not None:
        answer[Symbol(names.INCARNATION)] = ULong(incarnation)
    if resumed is not None:
        answer[Symbol(names.RESUMED)] = resumed
    if marks is not None:
        answer[Symbol(names.MARKS)] = [[ULong(time), router] for time, router in marks]
    if waiting is not None:
        answer[Symbol(names.WAITING)] = waiting
    return answer


def publisher_annotation(container: str, name: str) -> bytes:
    """The encoded value of the annotation `x-opt-onceway-publisher`."""
    return encode_value(names.publisher_text(container, name))


# Helpers


def check_name(value: str, where: str) -> str:
    """Refuse long names: every router keeps them."""
    size = len(value.encode())
    if size > MAX_NAME:
        raise RemoteProtocolError(INVALID_FIELD, f"{where}: has {size} bytes, at most {MAX_NAME} are allowed")
    return value


def read_address(value: Any, place: str, means: Means = str) -> str:
    """An address that may be a topic's. place: where it stands, for the error. means: as for `read_subscriber`."""
    if not isinstance(value, str) or not value:
        raise RemoteProtocolError(INVALID_FIELD, f"{place}: must be a string, not {value!r:.60}")
    value = means(value)
    if value.startswith(RESERVED):
        text = f"{place}: {value!r:.60} is reserved; no topic begins with {' or '.join(map(repr, RESERVED))}"
        raise RemoteProtocolError(NOT_FOUND, text)
    return check_name(str(value), place)


def _make_node(terminus: Source | Target, place: str, router: str, token: Callable[[], str] | None) -> str:
    """The address of a dynamic source or target."""
    if token is None:
        raise RemoteProtocolError(NOT_IMPLEMENTED, f"{place}: this router makes no dynamic nodes")
    if terminus.dynamic and terminus.address is not None:
        raise RemoteProtocolError(INVALID_FIELD, f"{place}.address: must be null where dynamic is true")
    return f"{DYNAMIC_PREFIX}{router}/{token()}"


def _ends_with_its_link(source: Source) -> None:
    """Nothing is kept for who receives from a dynamic node (AMQP 3.5.3)."""
    source.timeout, source.expiry_policy = 0, EXPIRE_LINK_DETACH


def _check_parts(attach: Attach, epoch: int | None) -> None:
    if attach.incomplete_unsettled and (epoch is None or attach.unsettled is None):
        # protocol 7.7: parts belong to one map by their epoch
        raise RemoteProtocolError(
            NOT_IMPLEMENTED, f"attach.incomplete-unsettled: needs an unsettled map and the property {names.EPOCH}"
        )


def _expiry_policy(value: str) -> ExpiryPolicy:
    policies = get_args(ExpiryPolicy)
    for policy in policies:
        if value == policy:
            found: ExpiryPolicy = policy
            return found
    raise RemoteProtocolError(
        INVALID_FIELD, f"attach.source.expiry-policy: must be one of {', '.join(policies)}, not {value!r:.60}"
    )


def _kept(asked: Sequence[str]) -> tuple[Symbol, ...]:
    return tuple(each for each in NODES if each in asked)


def _capabilities(asked: Sequence[str], address: AddressConfig) -> tuple[Symbol, ...]:
    """What clients of JMS ask of a node, as far as this one is that. A dynamic node is a topic that ends with its
    link."""
    offered: tuple[Symbol, ...] = (QUEUE,) if address.type == "queue" else (TOPIC,)
    if is_dynamic(address.match):
        offered = (TOPIC, TEMPORARY_TOPIC, TEMPORARY_QUEUE)
    return tuple(each for each in offered if each in asked)
