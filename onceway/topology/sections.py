"""What a topology file may say: its keys, their meaning and limits, and what must fit together.

Reading goes on after a problem, so that all of them come at once; a value that could not be read is left at its
default and not judged again.  The result is only used when there was no problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

from onceway.base.values import (
    format_duration,
    format_host_port,
    is_loopback,
    is_unspecified,
    read_host,
    read_host_port,
    read_name,
    read_switch,
)
from onceway.topology.admin import read_admin
from onceway.topology.document import Bounds, Entry, Form, Item, Problems, read_quantity, suggest
from onceway.topology.limits import read_limits, read_users
from onceway.topology.listeners import (
    BY_KEY,
    FOR_CLIENTS,
    FOR_OTHERS,
    LISTENERS,
    SECURE,
    HostPort,
    RouterAddress,
)
from onceway.topology.model import Link, Topology
from onceway.topology.mqtt import read_mqtt
from onceway.topology.pipes import log_address, read_pipe
from onceway.topology.policies import read_policies
from onceway.topology.sasl import ANONYMOUS, read_sasl
from onceway.topology.subscriptions import (
    OTHER_SUBSCRIPTIONS,
    check_owners,
    check_subscriptions,
    read_subscriptions,
)
from onceway.topology.tls import TlsProfile, check_trunks_stay, read_profile_name, read_tls, read_trunks
from onceway.topology.websocket import read_websocket
from router.config import AddressConfig, Limits, NoSubscribers, OtherSubscriptions, RouterConfig, UserLimits
from router.names import GUARANTEES, Guarantee

TOP_KEYS: Final = (
    "network",
    "defaults",
    "settings",
    "limits",
    "users",
    "policies",
    "addresses",
    "mqtt",
    "tls",
    "sasl",
    "trunks",
    "websocket",
    "hostnames",
    "admin",
    "routers",
    "links",
)
DEFAULT_HOST: Final = "127.0.0.1"
NO_SUBSCRIBERS: Final = ("hold", "accept", "release")
LINK_KEYS: Final = ("between", "cost", "via")
ADDRESS_KEYS: Final = (
    "match",
    "type",
    "guarantee",
    "subscription_timeout",
    "publisher_timeout",
    "no_subscribers",
    "expire",
    "priority",
    "max_redeliveries",
    "subscriptions",
    "other_subscriptions",
    "stores",
    "store_data",
    "store_metrics",
    "store_tls",
    "retention",
    "user",
)
ROUTER_KEYS: Final = (*BY_KEY, "host", "tls", "limits")
_ROUTER: Final = "a mapping such as {amqp: 5672, interrouter: 7671, admin: 8671}"

_MOST: Final = float(1 << 40)

# key in the file -> (field of RouterConfig, form, least, most)
SETTINGS: Final[dict[str, tuple[str, Form, Bounds]]] = {
    "heartbeat": ("heartbeat_s", "duration", (0.01, 60)),
    "dead_after": ("dead_after_s", "duration", (0.05, 600)),
    "discovery": ("discovery_s", "duration", (0.01, 600)),
    "idle_timeout": ("idle_timeout_s", "duration", (0.1, 86_400)),
    "proof_after": ("proof_after_s", "duration", (0.01, 600)),
    "window_messages": ("window_messages", "count", (1, 1 << 20)),
    "window_bytes": ("window_bytes", "size", (1, _MOST)),
    "unsettled_window": ("unsettled_window", "count", (1, 1 << 24)),
    "max_message_size": ("max_message_size", "size", (1, _MOST)),
    "max_frame_size": ("max_frame_size", "size", (512, (1 << 32) - 1)),  # 2.7.1: 512 is AMQP's least
    "stream_above": ("stream_above", "size", (0, _MOST)),
    "memory_limit": ("memory_limit", "size", (1 << 20, _MOST)),
    "presettled_queue": ("presettled_queue", "count", (1, 1 << 24)),
    "ready_when_isolated": ("ready_when_isolated", "switch", (0, 1)),
    "done_bytes": ("done_bytes", "size", (0, _MOST)),
}
# Settings that an address may have of its own.
ADDRESS_SETTINGS: Final[dict[str, tuple[str, Form, Bounds]]] = {
    "subscription_timeout": ("subscription_timeout_s", "duration", (0.05, 30 * 86_400)),
    "publisher_timeout": ("publisher_timeout_s", "duration", (0.05, 60 * 86_400)),
}


def read_topology(root: Item, problems: Problems) -> Topology | None:
    top = root.fields(TOP_KEYS, "a mapping with network, routers and links", required=("network", "routers"))
    if top is None:
        return None
    network = top["network"].scalar(read_name, "a name") if "network" in top else None
    host = _read_defaults(top.get("defaults"))
    settings, address_settings = read_settings(top.get("settings"))
    trial = RouterConfig(name="", **settings)
    limits = read_limits(top.get("limits"), trial, Limits())
    tls = read_tls(top.get("tls"))
    sasl = read_sasl(top.get("sasl"))
    users = read_users(top.get("users"), trial, named=sasl is not None)
    policies = read_policies(top.get("policies"), named=sasl is not None)
    trunk_tls, trunk_key = read_trunks(top.get("trunks"), tls)
    origins = read_websocket(top.get("websocket"))
    names = top["hostnames"].items("a list of hosts, such as amqp.example.org") if "hostnames" in top else None
    hostnames = [name for item in names or () if (name := item.scalar(read_host, "a host")) is not None]
    admin = read_admin(top.get("admin"), tls, sasl)
    routers = _read_routers(top.get("routers"), host, tls)
    listener_limits = _read_listener_limits(top.get("routers"), trial, limits)
    sign_of_life_s = longest_sign_of_life_s(trial, [limits, *listener_limits.values(), *(one for _, one in users)])
    defaults = AddressConfig(**address_settings)
    addresses = read_addresses(top.get("addresses"), address_settings, sign_of_life_s, tls)
    if "addresses" in top and sasl is not None and ANONYMOUS not in sasl.mechanisms:
        check_owners(addresses, top["addresses"])
    if not any(address.match == "*" for address in addresses):
        check_sign_of_life(defaults, top.get("settings", root), sign_of_life_s)
    if "mqtt" not in top:
        _check_no_mqtt(top.get("routers"))
    mqtt, addresses = read_mqtt(top.get("mqtt"), addresses, defaults)
    links, via = read_links(top.get("links"), list(routers), top.get("routers"))
    if "trunks" not in top:
        ends = (end for link in links for end in link[:2])
        check_trunks_stay(top.get("links", root), {end: routers[end]["interrouter"] for end in ends})
    if problems.found:
        return None
    assert network is not None
    config = RouterConfig(
        name="",
        routers=tuple(routers),
        addresses=addresses,
        defaults=defaults,
        limits=limits,
        users=users,
        policies=policies,
        hostnames=tuple(name.lower() for name in hostnames),
        **mqtt,
        **settings,
    )
    path, warnings = Path(problems.file), tuple(problems.warnings)
    secured = tls, sasl, trunk_tls, trunk_key, origins, admin
    return Topology(network, path, routers, tuple(links), config, via, listener_limits, *secured, warnings)


def _read_defaults(entry: Entry | None) -> str:
    if entry is not None and (fields := entry.fields(("host",), "a mapping such as {host: 127.0.0.1}")):
        return fields["host"].scalar(read_host, "a host") or DEFAULT_HOST
    return DEFAULT_HOST


# --- settings -----------------------------------------------------------------------------------------------------


def read_settings(entry: Entry | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """(fields of RouterConfig, fields of AddressConfig for addresses that don't say otherwise)."""
    settings: dict[str, Any] = {}
    for_addresses: dict[str, Any] = {}
    if entry is None:
        return settings, for_addresses
    known = (*SETTINGS, *ADDRESS_SETTINGS)
    fields = entry.fields(known, "a mapping of settings") or {}
    for key, item in fields.items():
        table, target = (SETTINGS, settings) if key in SETTINGS else (ADDRESS_SETTINGS, for_addresses)
        name, form, limits = table[key]
        value = read_quantity(item, form, limits)
        if value is not None:
            target[name] = value
    if "max_message_size" in fields and "stream_above" not in fields:
        settings["stream_above"] = 0  # who says what the largest message is means all of them
    trial = RouterConfig(name="", **settings)
    if trial.dead_after_s < 2 * trial.heartbeat_s:
        item = fields.get("dead_after") or fields["heartbeat"]
        item.problem(
            f"dead_after {format_duration(trial.dead_after_s)} leaves no room for two heartbeats of "
            f"{format_duration(trial.heartbeat_s)}",
            f"make dead_after at least {format_duration(2 * trial.heartbeat_s)}",
        )
    if trial.max_message_size > trial.memory_limit:
        item = fields.get("max_message_size") or fields["memory_limit"]
        item.problem("max_message_size exceeds memory_limit: such a message could never pass", "raise memory_limit")
    check_timeouts(AddressConfig(**for_addresses), fields, entry)
    return settings, for_addresses


# --- addresses ----------------------------------------------------------------------------------------------------


def read_addresses(
    entry: Entry | None,
    defaults: dict[str, Any],
    sign_of_life_s: float = 0.0,
    tls: Mapping[str, TlsProfile] = MappingProxyType({}),
) -> tuple[AddressConfig, ...]:
    addresses: list[AddressConfig] = []
    if entry is None:
        return ()
    for item in entry.items("a list of addresses, each with match") or []:
        address = _read_address(item, defaults, sign_of_life_s, tls)
        if address is None:
            continue
        for i, earlier in enumerate(addresses):
            if earlier.matches(address.match.removesuffix("*")) and (
                earlier.match.endswith("*") or not address.match.endswith("*")
            ):
                item.problem(
                    f'never used: addresses[{i}] ("{earlier.match}") takes all that "{address.match}" matches',
                    "the first match wins, so put the narrower one first, or leave it out",
                )
                break
        addresses.append(address)
        if len(address.stores) > 1:
            addresses.append(log_address(address))
    return tuple(addresses)


def _read_address(
    item: Item, defaults: dict[str, Any], sign_of_life_s: float, tls: Mapping[str, TlsProfile]
) -> AddressConfig | None:
    fields = item.fields(ADDRESS_KEYS, "a mapping such as {match: orders}", required=("match",))
    if fields is None:
        return None
    values: dict[str, Any] = dict(defaults)
    if "match" in fields:
        values["match"] = fields["match"].scalar(_read_match, "an address, or a prefix ending in *")
    if "type" in fields:
        kind = fields["type"].choice(("topic", "queue", "pipe"))
        if kind is not None:
            values["type"] = kind
    if "guarantee" in fields and (guarantee := fields["guarantee"].choice(GUARANTEES)):
        values["guarantee"] = cast(Guarantee, guarantee)
    if "no_subscribers" in fields and (choice := fields["no_subscribers"].choice(NO_SUBSCRIBERS)):
        values["no_subscribers"] = cast(NoSubscribers, choice)
    if "max_redeliveries" in fields:
        redeliveries = read_quantity(fields["max_redeliveries"], "count", (0, 1 << 20))
        if redeliveries is not None:
            values["max_redeliveries"] = redeliveries
    if "expire" in fields and (expire := fields["expire"].scalar(read_switch, "true or false")) is not None:
        values["expire"] = expire
    if "priority" in fields and (priority := fields["priority"].scalar(read_switch, "true or false")) is not None:
        values["priority"] = priority
    for key, (name, form, limits) in ADDRESS_SETTINGS.items():
        if key in fields and (value := read_quantity(fields[key], form, limits)) is not None:
            values[name] = value
    if "subscriptions" in fields:
        values["subscriptions"] = read_subscriptions(fields["subscriptions"])
    if "other_subscriptions" in fields and (choice := fields["other_subscriptions"].choice(OTHER_SUBSCRIPTIONS)):
        values["other_subscriptions"] = cast(OtherSubscriptions, choice)
    if values.get("match") is None:
        return None
    values.update(read_pipe(values, fields, item, tls))
    if values.get("type") == "queue":
        _check_queue(values, fields)
    elif values.get("priority"):
        fields["priority"].problem("only a queue has priorities", "write type: queue, or leave the line out")
    address = AddressConfig(**values)
    check_subscriptions(address, fields)
    if any(key in fields for key in ADDRESS_SETTINGS):
        check_timeouts(address, fields, item)
        check_sign_of_life(address, item, sign_of_life_s)
    return address


def _check_queue(values: Mapping[str, Any], fields: Mapping[str, Entry]) -> None:
    for key in ("subscriptions", "other_subscriptions"):
        if key in fields:
            fields[key].problem(f"{key} of a queue", "leave the line out: consumers of a queue are not declared")
    if values.get("guarantee") == "at-most-once":
        fields["guarantee"].problem("a queue that is at-most-once", "write at-least-once or exactly-once")
    if values.get("no_subscribers") == "accept":
        fields["no_subscribers"].problem("a queue that accepts for nobody", "write hold or release")


def _read_match(text: str) -> str:
    if not text:
        raise ValueError("an empty address", 'write a name, or "*" for all')
    if "*" in text[:-1]:
        raise ValueError(f'"{text}" has a * that is not at its end', "write an exact name, or a prefix ending in *")
    return text


# --- routers ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Taken:
    address: HostPort
    item: Entry
    machine: str  # by which the other routers reach its router


def _read_routers(entry: Entry | None, host: str, tls: Mapping[str, TlsProfile]) -> dict[str, RouterAddress]:
    if entry is None:
        return {}
    expected = "a mapping such as a: {amqp: 5672, interrouter: 7671, admin: 8671}"
    entries = entry.entries(expected)
    if entries is None:
        return {}
    if not entries:
        entry.problem("there are no routers", f"write {expected}")
    routers: dict[str, RouterAddress] = {}
    taken: list[_Taken] = []
    for name, item in entries.items():
        try:
            read_name(name)
        except ValueError as error:
            item.problem(*error.args)
        if name.split("-")[0] == "supervisor":  # the names of supervisors' control sockets
            item.problem(f'"{name}" is the name of a supervisor', "choose another name")
        routers[name] = _read_router(item, host, tls, taken)
    return routers


def _read_router(item: Entry, host: str, tls: Mapping[str, TlsProfile], taken: list[_Taken]) -> RouterAddress:
    read = item.fields(ROUTER_KEYS, _ROUTER)
    fields = read or {}
    required = (*((FOR_CLIENTS[0],) if fields.keys().isdisjoint(FOR_CLIENTS) else ()), *FOR_OTHERS)
    for key in required if read is not None else ():
        if key not in fields:
            item.problem(f"{key} is missing", f"add {key}: ...")
    if "host" in fields:
        host = fields["host"].scalar(read_host, "a host") or host
    listeners: dict[str, HostPort] = {}
    for key in BY_KEY:
        address: HostPort | None = None
        if key in fields:
            address = fields[key].scalar(lambda text: read_host_port(text, host), "a port, or host:port")
        if address is not None:
            if BY_KEY[key].reach == "neighbours" and is_unspecified(address[0]):
                fields[key].problem(
                    f"{format_host_port(address)} is no address that a neighbour can connect to",
                    "write the host by which the other routers reach this one",
                )
            one = _Taken(address, fields[key], _machine(fields.get("interrouter"), host))
            for other in taken:
                if _clash(other, one):
                    fields[key].problem(
                        f"{format_host_port(address)} is taken by {other.item.place} (line {other.item.line})",
                        "give each listener a port of its own",
                    )
                    break
            else:
                taken.append(one)
        if key in required or key in fields:
            listeners[key] = address or (host, 0)
    secure = [fields[key] for key in BY_KEY if key in SECURE and key in fields]
    if secure and "tls" not in fields:
        secure[0].problem("a listener with TLS and no certificate", "add tls: the name of a profile under tls")
    if "tls" in fields and not secure:
        *some, last = (row.key for row in LISTENERS if row.secure)
        fields["tls"].problem("no listener has TLS", f"add {', '.join(some)} or {last}: a port for clients with TLS")
    return RouterAddress(listeners, read_profile_name(fields.get("tls"), tls))


def _check_no_mqtt(entry: Entry | None) -> None:
    """A listener for MQTT needs the section that says which topics there are."""
    for item in (entry.entries("a mapping of routers") or {}).values() if entry is not None else ():
        fields = item.entries(_ROUTER) or {}
        for key, row in BY_KEY.items():
            if row.needs == "mqtt" and key in fields:
                fields[key].problem(
                    "a listener for MQTT, and no topics", 'add a section mqtt: {topics: {"#": ADDRESS}}'
                )


def _read_listener_limits(entry: Entry | None, settings: RouterConfig, limits: Limits) -> dict[str, Limits]:
    """Of the routers that have `limits` of their own; whatever else is wrong with them has been said."""
    found: dict[str, Limits] = {}
    for name, item in (entry.entries("a mapping of routers") or {}).items() if entry is not None else ():
        fields = item.entries(_ROUTER) or {}
        if "limits" in fields:
            found[name] = read_limits(fields["limits"], settings, limits)
    return found


def _machine(interrouter: Entry | None, host: str) -> str:
    """The host by which the other routers reach this one; what is wrong with it is said elsewhere."""
    if interrouter is None or not interrouter.is_scalar:
        return host
    try:
        return read_host_port(interrouter.text, host)[0]
    except ValueError:
        return host


def _clash(one: _Taken, other: _Taken) -> bool:
    """Whether both cannot listen. Loopback and unspecified addresses are each machine's own: routers that others reach
    by different hosts may both have them."""
    if one.address[1] != other.address[1]:
        return False
    hosts = {"127.0.0.1" if each.address[0] == "localhost" else each.address[0].lower() for each in (one, other)}
    machines = {each.machine.lower() for each in (one, other)}
    if len(machines) == 2 and not any(map(is_loopback, machines)):
        return len(hosts) == 1 and not any(is_loopback(host) or is_unspecified(host) for host in hosts)
    return len(hosts) == 1 or any(map(is_unspecified, hosts))


# --- links --------------------------------------------------------------------------------------------------------


def read_links(
    entry: Entry | None, routers: Sequence[str], routers_entry: Item | None
) -> tuple[list[Link], dict[frozenset[str], HostPort]]:
    links: list[Link] = []
    vias: dict[frozenset[str], HostPort] = {}
    lines: dict[frozenset[str], Item] = {}
    sound = True
    items = [] if entry is None else entry.items('a list of links, each "a - b" or {between: [a, b], cost: 2}') or []
    for item in items:
        read = _read_link(item, routers)
        if read is None:
            sound = False
            continue
        link, via = read
        pair = frozenset(link[:2])
        if pair in lines:
            first = lines[pair]
            item.problem(f"{link[0]} - {link[1]} is given already, in line {first.line}", "leave one of them out")
            continue
        lines[pair] = item
        links.append(link)
        if via is not None:
            vias[pair] = via
    if sound and routers_entry is not None:
        _check_connected(entry or routers_entry, routers, links)
    return links, vias


def _read_link(item: Item, routers: Sequence[str]) -> tuple[Link, HostPort | None] | None:
    cost = 1
    via: HostPort | None = None
    ends: list[tuple[Item, str]] = []
    if item.is_scalar:
        names = item.text.split(" - ")
        if len(names) != 2:
            item.problem(f'"{item.text}" is no link', "write two routers as: a - b")
            return None
        ends = [(item, name.strip()) for name in names]
    else:
        fields = item.fields(LINK_KEYS, '"a - b" or {between: [a, b], cost: 2}', required=("between",))
        if fields is None or "between" not in fields:
            return None
        between = fields["between"].items("a list of two routers")
        if between is None:
            return None
        if len(between) != 2:
            fields["between"].problem(f"{len(between)} routers", "a link is between two: between: [a, b]")
            return None
        for end in between:
            name = end.scalar(str, "the name of a router")
            if name is None:
                return None
            ends.append((end, name))
        if "cost" in fields:
            read = read_quantity(fields["cost"], "count", (1, 1 << 20))
            if read is None:
                return None
            cost = int(read)
        if "via" in fields:
            via = fields["via"].scalar(lambda text: read_host_port(text, DEFAULT_HOST), "a port, or host:port")
            if via is None:
                return None
    known = True
    for end, name in ends:
        if name not in routers:
            end.problem(f'no router "{name}"', suggest(name, routers, "routers are") or "add it under routers")
            known = False
    if not known:
        return None
    (_, one), (_, other) = ends
    if one == other:
        item.problem(f"a link from {one} to itself", "a link is between two routers")
        return None
    return (one, other, cost), via


def _check_connected(item: Item, routers: Sequence[str], links: Sequence[Link]) -> None:
    """Every router must be reachable from every other: two halves would be two networks."""
    pieces: list[list[str]] = []
    left = list(routers)
    while left:
        piece = [left.pop(0)]
        for name in piece:
            for one, other, _ in links:
                far = other if one == name else one if other == name else None
                if far in left:
                    left.remove(far)
                    piece.append(far)
        pieces.append([name for name in routers if name in piece])
    if len(pieces) > 1:
        item.problems.add(
            item.line,
            "links",
            f"the network falls apart into {' | '.join(', '.join(piece) for piece in pieces)}",
            f"add a link, for example: {pieces[0][0]} - {pieces[1][0]}",
        )


def check_timeouts(address: AddressConfig, fields: Mapping[str, Entry], entry: Item) -> None:
    """No delivery may be forgotten while a subscription may still hold it in doubt (protocol 12.4)."""
    least = address.subscription_timeout_s + 2 * address.margin_s
    if address.publisher_expires_s > least:
        return
    item = fields.get("publisher_timeout") or fields.get("subscription_timeout") or entry
    item.problem(
        f"publisher_timeout {format_duration(address.publisher_expires_s)} must exceed subscription_timeout + 2 margin"
        f" = {format_duration(least)}",
        f"make publisher_timeout more than {format_duration(least)}, "
        f"or leave it out for {format_duration(address.subscription_timeout_s + 60)}",
    )


def longest_sign_of_life_s(settings: RouterConfig, limits: Sequence[Limits | UserLimits]) -> float:
    """Seconds until a publisher that is back, sends nothing and answers no echo has proved twice that it is there, by
    heartbeats later than `proof_after` (protocol 5.2).
    """
    idle_s = max([settings.idle_timeout_s, *(one.idle_timeout_s or 0.0 for one in limits)])
    return 2 * (idle_s / 2 + settings.proof_after_s)


def check_sign_of_life(address: AddressConfig, item: Item, sign_of_life_s: float) -> None:
    """Warns; publishers that bring epochs, as ours do, are not concerned."""
    if address.publisher_expires_s > sign_of_life_s:
        return
    item.warn(
        f"publisher_timeout {format_duration(address.publisher_expires_s)} is not more than publishers without epochs"
        f" may need to show that they live (idle_timeout + 2 proof_after = {format_duration(sign_of_life_s)}): such"
        " ones that come back may be told that they have expired",
        f"make publisher_timeout several times {format_duration(sign_of_life_s)}, or idle_timeout shorter",
    )
