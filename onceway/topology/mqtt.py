"""`mqtt` of a topology file: which topic names are which addresses, and how long sessions live (docs/mqtt.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqtt import name_fault
from mqtt.topics import SHARE, filter_fault
from onceway.topology.addresses import is_for_clients
from onceway.topology.document import Item
from onceway.topology.forms import NAME, USER_NAME, Duration, Scope, Text
from onceway.topology.table import ByName, Given, ListOf, Read, Row, Section, Table, When
from router.config import SHARED, AddressConfig
from router.mqtt.base import SESSIONS
from router.mqtt.retained import LINK
from router.mqtt.topic_map import DEFAULT, TopicMap
from router.policies import NOBODY, owned

LONGEST_S: Final = 30 * 86_400.0
_SHARED: Final = "a mapping such as {shared: {workers/jobs/#: jobs}}"
_RETAINED: Final = "a mapping such as {retained: {address: retained, stores: [s, t]}}"
_EXAMPLE: Final = 'a mapping such as {topics: {"#": telemetry}}'


@dataclass(frozen=True, slots=True)
class Retained:
    """Which stores keep the retained messages of which address, and as whom they log in."""

    address: str
    stores: tuple[str, ...]
    user: str = NOBODY.user


@dataclass(frozen=True, slots=True)
class Mqtt:
    """What a file says of MQTT."""

    topics: Mapping[str, str] = field(default_factory=dict)  # prefix of topic names -> address
    shared: Mapping[str, str] = field(default_factory=dict)  # GROUP/FILTER -> queue
    retained: Retained | None = None
    session_expiry_s: float | None = None  # the longest that a session lives without a connection

    @property
    def of_routers(self) -> dict[str, Any]:
        """Fields of RouterConfig."""
        retained = {"mqtt_retained": self.retained.address} if self.retained is not None else {}
        return {"mqtt_topics": tuple(self.topics.items()), "mqtt_shared": tuple(self.shared.items()), **retained}

    @property
    def addresses(self) -> Iterator[AddressConfig]:
        """Those of the sessions and of the retained messages. Stores of these are declared, so that each gets all."""
        longest_s = LONGEST_S if self.session_expiry_s is None else self.session_expiry_s
        yield AddressConfig(SESSIONS, subscription_timeout_s=longest_s, no_subscribers="release")
        yield AddressConfig(f"{SHARED}*", type="queue", subscription_timeout_s=longest_s, no_subscribers="accept")
        if self.retained is not None:
            names = map(store_subscription, self.retained.stores)
            stores = tuple((owned(self.retained.user, container), link) for container, link in names)
            yield AddressConfig(self.retained.address, no_subscribers="hold", subscriptions=stores)


def store_subscription(store: str) -> tuple[str, str]:
    """Container-id and link name by which a store of retained messages subscribes to their address."""
    return f"onceway-retained:{store}", LINK


def _read_address(text: str) -> str:
    if not text or text.endswith("*") or not is_for_clients(text):
        raise ValueError(f'"{text}" is no address of clients', "write the name of one address")
    return text


def _read_prefix(text: str) -> str:
    fault = None if text == DEFAULT else name_fault(text)
    if fault is not None:
        raise ValueError(f'"{text}": {fault}', 'write whole levels such as "plant/press", or "#" for all other names')
    return text


def _read_shared(text: str) -> str:
    fault = filter_fault(SHARE + text, 5)
    if fault is not None:
        raise ValueError(f'"{text}": {fault}', 'write a group and a topic filter such as "workers/jobs/#"')
    return text


_PREFIX: Final = Text(_read_prefix, 'a prefix of topic names, or "#"')
_GROUP: Final = Text(_read_shared, "a group and a topic filter")
_ADDRESS: Final = Text(_read_address, "an address", ".")


def _check_stores(item: Item, found: list[Read[str]], scope: Scope) -> tuple[str, ...]:
    if not item.node.value:
        item.problem("no store", f"write {_RETAINED}")
    return tuple(each.value for each in found)


def _make_retained(given: Given, scope: Scope) -> Retained | None:
    address = given.values.get("address")
    if "address" in given.entries and any(each.match == address for each in scope.addresses):
        given.entries["address"].problem(
            f"{address} is in addresses, too", "leave it out there, or name another one here"
        )
    return Retained(**given.values) if {"address", "stores"} <= given.values.keys() else None


RETAINED: Final = Section(
    "retained",
    _RETAINED,
    (
        Row("address", _ADDRESS, When.AT_ONCE, "a topic of its own, which `addresses` must not have", required=True),
        Row("stores", ListOf(Text(NAME.parse, "the name of a store", NAME.pattern), _RETAINED, _check_stores),
            When.AT_ONCE, "the names of the stores", required=True),
        Row("user", USER_NAME, When.AT_ONCE, "as whom the stores log in"),
    ),
    Retained,
)  # fmt: skip
MQTT: Final = Section(
    "mqtt",
    _EXAMPLE,
    (
        Row("topics", ByName(_ADDRESS, _EXAMPLE, _PREFIX), When.AT_ONCE,
            "prefix of topic names, or `#` for all others, with the address that they belong to", required=True),
        Row("shared", ByName(_ADDRESS, _SHARED, _GROUP), When.AT_ONCE,
            "GROUP/FILTER of [shared subscriptions](mqtt.md#shared-subscriptions) that clients of AMQP are to "
            "receive from, with the queue of each, an address of `type: queue`", default="none"),
        Row("retained", Table(RETAINED, _make_retained), When.AT_ONCE,
            "`address` and `stores` of [retained messages](mqtt.md#retained-messages), and `user`, as whom the "
            "stores log in. The address is a topic of its own, and `addresses` must not have it", default="none"),
        Row("session_expiry", Duration(0.05, LONGEST_S), When.AT_ONCE,
            "how long a session may live without a connection", "session_expiry_s",
            default="the shortest `subscription_timeout` of these addresses"),
    ),
    Mqtt,
)  # fmt: skip


def _make(given: Given, scope: Scope) -> Mqtt | None:
    """Topics need topics, shared subscriptions need queues, and no session outlives its subscriptions."""
    if "topics" not in given.entries:
        return None
    values = given.values
    topics: dict[str, str] = values.get("topics", {})
    longest_s = LONGEST_S
    for prefix, address in topics.items():
        found = _address(address, scope)
        entry = (given.entries["topics"].entries("") or {})[prefix]
        longest_s = min(longest_s, found.subscription_timeout_s)
        if found.type != "topic":
            entry.problem(f"{address} is a {found.type}, and MQTT has topics only", "name an address of type topic")
        elif found.no_subscribers == "hold":
            entry.warn(
                f"what clients of MQTT publish to {address} is not acknowledged while nobody subscribes to it",
                "give the address no_subscribers: accept, if that is not meant",
            )
    if not topics:
        given.entries["topics"].problem("no topic", f"write {_EXAMPLE}")
    shared: dict[str, str] = {}
    for text, address in values.get("shared", {}).items():
        found = _address(address, scope)
        entry = (given.entries["shared"].entries("") or {})[text]
        if found.type != "queue":
            entry.problem(f"{address} is a {found.type}", f"give the address {address} type: queue")
        elif address in shared.values():
            entry.problem(f"{address} is another group's", "give each shared subscription a queue of its own")
        elif not TopicMap(topics).addresses_of(text.partition("/")[2]):
            entry.problem("no topic name that it matches has an address", "name a topic in topics")
        else:
            shared[text] = address
            longest_s = min(longest_s, found.subscription_timeout_s)
    asked_s = values.get("session_expiry_s")
    if asked_s is not None and asked_s > longest_s:
        given.entries["session_expiry"].problem(
            "sessions would live longer than subscriptions of these addresses",
            "raise subscription_timeout of the addresses, or lower session_expiry",
        )
    return Mqtt(topics, shared, values.get("retained"), asked_s or longest_s)


def _address(name: str, scope: Scope) -> AddressConfig:
    defaults = AddressConfig(**scope.for_addresses)
    return next((each for each in scope.addresses if each.matches(name)), defaults)


FORM: Final = Table(MQTT, _make)
