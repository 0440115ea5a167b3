"""`mqtt` of a topology file: which topic names are which addresses, and how long sessions live (docs/mqtt.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mqtt import name_fault
from mqtt.topics import SHARE, filter_fault
from onceway.base.values import read_name
from onceway.topology.document import Entry, read_quantity
from router.config import SHARED, AddressConfig
from router.mqtt.lease import SESSIONS
from router.mqtt.retained import LINK
from router.mqtt.topic_map import DEFAULT, TopicMap
from router.policies import NOBODY, owned

KEYS: Final = ("topics", "shared", "retained", "session_expiry")
LONGEST_S: Final = 30 * 86_400.0
_SHARED: Final = "a mapping such as {shared: {workers/jobs/#: jobs}}"
_RETAINED: Final = "a mapping such as {retained: {address: retained, stores: [s, t]}}"
_EXAMPLE: Final = 'a mapping such as {topics: {"#": telemetry}}'


def store_subscription(store: str) -> tuple[str, str]:
    """Container-id and link name by which a store of retained messages subscribes to their address."""
    return f"onceway-retained:{store}", LINK


def read_mqtt(
    entry: Entry | None, addresses: tuple[AddressConfig, ...], defaults: AddressConfig
) -> tuple[dict[str, Any], tuple[AddressConfig, ...]]:
    """Returns what a router's configuration has of MQTT, and the addresses with that of the sessions and that of the
    retained messages."""
    if entry is None:
        return {}, addresses
    fields = entry.fields(KEYS, _EXAMPLE, required=("topics",)) or {}
    if "topics" not in fields:
        return {}, addresses
    topics: dict[str, str] = {}
    longest_s = LONGEST_S
    for prefix, item, address in _read_topics(fields["topics"]):
        topics[prefix] = address
        found = next((each for each in addresses if each.matches(address)), defaults)
        longest_s = min(longest_s, found.subscription_timeout_s)
        if found.type != "topic":
            item.problem(f"{address} is a {found.type}, and MQTT has topics only", "name an address of type topic")
        elif found.no_subscribers == "hold":
            item.warn(
                f"what clients of MQTT publish to {address} is not acknowledged while nobody subscribes to it",
                "give the address no_subscribers: accept, if that is not meant",
            )
    if not topics:
        fields["topics"].problem("no topic", f"write {_EXAMPLE}")
    shared: dict[str, str] = {}
    for text, item, address in _read_shared(fields["shared"]) if "shared" in fields else ():
        found = next((each for each in addresses if each.matches(address)), defaults)
        if found.type != "queue":
            item.problem(f"{address} is a {found.type}", f"give the address {address} type: queue")
        elif address in shared.values():
            item.problem(f"{address} is another group's", "give each shared subscription a queue of its own")
        elif not TopicMap(topics).addresses_of(text.partition("/")[2]):
            item.problem("no topic name that it matches has an address", "name a topic in topics")
        else:
            shared[text] = address
            longest_s = min(longest_s, found.subscription_timeout_s)
    if "session_expiry" in fields:
        asked_s = read_quantity(fields["session_expiry"], "duration", (0.05, LONGEST_S))
        if asked_s is not None and asked_s > longest_s:
            fields["session_expiry"].problem(
                "sessions would live longer than subscriptions of these addresses",
                "raise subscription_timeout of the addresses, or lower session_expiry",
            )
        longest_s = asked_s or longest_s
    sessions = AddressConfig(SESSIONS, subscription_timeout_s=longest_s, no_subscribers="release")
    shares = AddressConfig(f"{SHARED}*", type="queue", subscription_timeout_s=longest_s, no_subscribers="accept")
    values: dict[str, Any] = {"mqtt_topics": tuple(topics.items()), "mqtt_shared": tuple(shared.items())}
    retained = _read_retained(fields["retained"], addresses) if "retained" in fields else None
    if retained is None:
        return values, (sessions, shares, *addresses)
    return {**values, "mqtt_retained": retained.match}, (sessions, shares, retained, *addresses)


def _read_topics(entry: Entry) -> Iterator[tuple[str, Entry, str]]:
    for prefix, item in (entry.entries(_EXAMPLE) or {}).items():
        fault = None if prefix == DEFAULT else name_fault(prefix)
        if fault is not None:
            item.problem(f'"{prefix}": {fault}', 'write whole levels such as "plant/press", or "#" for all other names')
            continue
        address = item.scalar(_read_address, "an address")
        if address is not None:
            yield prefix, item, address


def _read_shared(entry: Entry) -> Iterator[tuple[str, Entry, str]]:
    for text, item in (entry.entries(_SHARED) or {}).items():
        fault = filter_fault(SHARE + text, 5)
        if fault is not None:
            item.problem(f'"{text}": {fault}', 'write a group and a topic filter such as "workers/jobs/#"')
            continue
        address = item.scalar(_read_address, "an address")
        if address is not None:
            yield text, item, address


def _read_retained(entry: Entry, addresses: tuple[AddressConfig, ...]) -> AddressConfig | None:
    """The address of the retained messages: its stores are declared, so that each gets all."""
    fields = entry.fields(("address", "stores", "user"), _RETAINED, required=("address", "stores"))
    if not fields or "address" not in fields or "stores" not in fields:
        return None
    address = fields["address"].scalar(_read_address, "an address")
    names = [item.scalar(read_name, "the name of a store") for item in fields["stores"].items(_RETAINED) or ()]
    user = fields["user"].scalar(str, "the name of a user") if "user" in fields else None
    if any(each.match == address for each in addresses):
        fields["address"].problem(f"{address} is in addresses, too", "leave it out there, or name another one here")
    if not names:
        fields["stores"].problem("no store", f"write {_RETAINED}")
    if address is None or None in names:
        return None
    stores = [store_subscription(name) for name in names if name is not None]
    subscriptions = tuple((owned(user or NOBODY.user, container), link) for container, link in stores)
    return AddressConfig(address, no_subscribers="hold", subscriptions=subscriptions)


def _read_address(text: str) -> str:
    if not text or text.endswith("*") or text.startswith(("_mqtt/", "_dynamic/")):
        raise ValueError(f'"{text}" is no address of clients', "write the name of one address")
    return text
