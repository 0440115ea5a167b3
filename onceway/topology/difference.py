"""What changes from one topology file to the next, in lines for people, and when each change takes effect.

When a change of each key takes effect in running routers is in docs/topology.md. Nothing is applied here: that is
`onceway.serve.server`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceway.base.values import format_duration, format_host_port, format_size
from onceway.topology.admin import ADMIN_KEYS
from onceway.topology.document import Form
from onceway.topology.limits import LIMITS
from onceway.topology.listeners import BY_KEY
from onceway.topology.model import Topology
from onceway.topology.sasl import SASL_KEYS
from onceway.topology.sections import ADDRESS_SETTINGS, SETTINGS
from onceway.topology.tls import TLS_KEYS
from router.config import SHARED, AddressConfig, Limits, UserLimits, is_queue, kinds_of

MOST_FASTER: Final = 3
"""A router forgets another one after 200 of its own heartbeats, which repeats what it says every 60 of its own. So the
heartbeats of two routers may differ by this factor, not by more."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a plan. `router`: the only one that it concerns. `restart`: it takes effect when that router, or
    each, is restarted. `refused`: why running routers cannot change to it, and the remedy."""

    text: str
    router: str | None = None
    restart: bool = False
    refused: str = ""

    def __str__(self) -> str:
        place = f"router {self.router}: " if self.router else ""
        after = ": needs a restart" if self.restart else f": {self.refused}" if self.refused else ""
        return f"{place}{self.text}{after}"


def difference(old: Topology, new: Topology) -> list[Change]:
    """What changes, in the order of the file; empty if nothing does."""
    return [
        *_network(old, new),
        *_settings(old, new),
        *_limits("limits", old.settings.limits, new.settings.limits),
        *_users(old, new),
        *_policies(old, new),
        *_addresses(old, new),
        *_tls(old, new),
        *_sasl(old, new),
        *_trunks(old, new),
        *_websocket(old, new),
        *_hostnames(old, new),
        *_admin(old, new),
        *_routers(old, new),
        *_links(old, new),
    ]


def _network(old: Topology, new: Topology) -> Iterator[Change]:
    if old.network != new.network:
        refused = f"another network: stop {old.network}, then start {new.network}"
        yield Change(f"changed network {old.network} -> {new.network}", refused=refused)


def _settings(old: Topology, new: Topology) -> Iterator[Change]:
    one, other = old.settings, new.settings
    refused = _timers_refused(old, new)
    for key, (field, form, _) in SETTINGS.items():
        text = _changed(f"settings.{key}", getattr(one, field), getattr(other, field), form)
        if text:
            yield Change(text, refused=refused if key in ("heartbeat", "dead_after") else "")
    yield from _of_address("settings", one.defaults, other.defaults)


def _timers_refused(old: Topology, new: Topology) -> str:
    """While some routers have the old timers and others the new, none may take another one for dead."""
    one, other = old.settings, new.settings
    slowest, fastest = max(one.heartbeat_s, other.heartbeat_s), min(one.heartbeat_s, other.heartbeat_s)
    if slowest > MOST_FASTER * fastest:
        return f"change heartbeat by at most a factor of {MOST_FASTER} at a time: routers forget each other otherwise"
    shortest = min(one.dead_after_s, other.dead_after_s)
    if shortest < 2 * slowest:
        return (
            f"routers with dead_after {format_duration(shortest)} would take those with heartbeat "
            f"{format_duration(slowest)} for dead: in one reload make the longer of the two timers longer, or the "
            "shorter one shorter, and the other in the next; or make the change in smaller steps"
        )
    return ""


def _limits(
    place: str, old: Limits | UserLimits, new: Limits | UserLimits, router: str | None = None
) -> Iterator[Change]:
    for key, (field, form, _) in LIMITS.items():
        text = _changed(f"{place}.{key}", getattr(old, field, None), getattr(new, field, None), form)
        if text:
            yield Change(text, router)


def _users(old: Topology, new: Topology) -> Iterator[Change]:
    before, after = dict(old.settings.users), dict(new.settings.users)
    for name in [*before, *(name for name in after if name not in before)]:
        yield from _limits(f"users.{name}.limits", before.get(name, UserLimits()), after.get(name, UserLimits()))


def _policies(old: Topology, new: Topology) -> Iterator[Change]:
    before, after = old.settings.policies, new.settings.policies
    if (before is None) != (after is None):
        yield Change("removed policies" if after is None else "added policies")
    yield from (Change(f"removed policy {policy}") for policy in before or () if policy not in (after or ()))
    yield from (Change(f"added policy {policy}") for policy in after or () if policy not in (before or ()))


def _addresses(old: Topology, new: Topology) -> Iterator[Change]:
    before = {each.match: each for each in old.addresses}
    after = {each.match: each for each in new.addresses}
    for what, entries, others in (("removed", before, after), ("added", after, before)):
        for match, address in entries.items():
            if match not in others:
                yield Change(f"{what} address {match}")
                yield from _subscriptions(what, f"address {match}", address, AddressConfig())
    for match, address in after.items():
        if match in before:
            yield from _of_address(f"address {match}", before[match], address)
    if [match for match in before if match in after] != [match for match in after if match in before]:
        yield Change("changed the order of addresses: the first that matches an address holds for it")
    yield from _kinds(old, new)


def _kinds(old: Topology, new: Topology) -> Iterator[Change]:
    """What is a topic in one file and a queue in the other: routers serve it when they agree (protocol 16.13)."""
    one, other = (kinds_of(topology.addresses) for topology in (old, new))
    for match in dict.fromkeys([match for match, _ in (*one, *other)]):
        queue = is_queue(other, match)
        if queue != is_queue(one, match):
            place = "shared subscriptions of MQTT" if match.startswith(SHARED) else f"address {match}"
            yield Change(f"{place}: {'queue' if queue else 'topic'} from when all routers follow this file")


def _of_address(place: str, old: AddressConfig, new: AddressConfig) -> Iterator[Change]:
    for key, (_, form, _) in ADDRESS_SETTINGS.items():
        text = _changed(f"{place}.{key}", _timeout(old, key), _timeout(new, key), form)
        if text:
            yield Change(text)
    for key in ("guarantee", "no_subscribers", "max_redeliveries", "other_subscriptions"):
        text = _changed(f"{place}.{key}", getattr(old, key), getattr(new, key), "count")
        if text:
            yield Change(text)
    yield from _subscriptions("removed", place, old, new)
    yield from _subscriptions("added", place, new, old)


def _subscriptions(what: str, place: str, there: AddressConfig, not_there: AddressConfig) -> Iterator[Change]:
    for container, name in there.subscriptions:
        if (container, name) not in not_there.subscriptions:
            link = container if container == name else f"{container} {name}"
            yield Change(f"{what} {place}.subscriptions {link}")


def _timeout(address: AddressConfig, key: str) -> float:
    return address.publisher_expires_s if key == "publisher_timeout" else address.subscription_timeout_s


def _tls(old: Topology, new: Topology) -> Iterator[Change]:
    yield from (Change(f"removed tls.{name}") for name in old.tls if name not in new.tls)
    yield from (Change(f"added tls.{name}") for name in new.tls if name not in old.tls)
    for name, profile in new.tls.items():
        before = old.tls.get(name, profile)
        for key in TLS_KEYS:
            one, other = (_said(getattr(each, key)) for each in (before, profile))
            text = _changed(f"tls.{name}.{key}", one, other, "count")
            if text:
                yield Change(text)


def _sasl(old: Topology, new: Topology) -> Iterator[Change]:
    if old.sasl is None or new.sasl is None:
        if old.sasl != new.sasl:
            yield Change("removed sasl" if new.sasl is None else "added sasl")
        return
    for key in SASL_KEYS:
        one, other = (_said(getattr(each, key)) for each in (old.sasl, new.sasl))
        text = _changed(f"sasl.{key}", one, other, "count")
        if text:
            yield Change(text)


def _said(value: object) -> object:
    if isinstance(value, Mapping):  # certificates by name
        return ", ".join(f"{name}: {pair.certificate} {pair.key}" for name, pair in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value


def _trunks(old: Topology, new: Topology) -> Iterator[Change]:
    for text in (
        _changed("trunks.tls", old.trunk_tls or "off", new.trunk_tls or "off", "count"),
        _changed("trunks.key", old.trunk_key or None, new.trunk_key or None, "count"),
    ):
        if text:
            yield Change(text, restart=True)


def _websocket(old: Topology, new: Topology) -> Iterator[Change]:
    text = _changed("websocket.origins", _said(old.origins) or None, _said(new.origins) or None, "count")
    if text:
        yield Change(text)


def _hostnames(old: Topology, new: Topology) -> Iterator[Change]:
    text = _changed("hostnames", _said(old.settings.hostnames) or None, _said(new.settings.hostnames) or None, "count")
    if text:
        yield Change(text)


def _admin(old: Topology, new: Topology) -> Iterator[Change]:
    for key in ADMIN_KEYS:
        one, other = (_said(getattr(each.admin, key)) or "none" for each in (old, new))
        text = _changed(f"admin.{key}", one, other, "count")
        if text:
            yield Change(text, restart=key == "tls")


def _routers(old: Topology, new: Topology) -> Iterator[Change]:
    yield from (Change(f"removed router {name}") for name in old.routers if name not in new.routers)
    yield from (Change(f"added router {name}") for name in new.routers if name not in old.routers)
    for name, place in new.routers.items():
        if name not in old.routers:
            continue
        before = old.routers[name]
        for text in (
            *(_changed(key, before.listeners.get(key), place.listeners.get(key), "place") for key in BY_KEY),
            _changed("tls", before.tls, place.tls, "count"),
        ):
            if text:
                yield Change(text, name, restart=True)
        if name in old.limits or name in new.limits:
            limits = old.limits.get(name, old.settings.limits)
            yield from _limits("limits", limits, new.limits.get(name, new.settings.limits), name)


def _links(old: Topology, new: Topology) -> Iterator[Change]:
    before = {frozenset(link[:2]): link for link in old.links}
    after = {frozenset(link[:2]): link for link in new.links}
    for pair, (one, other, _) in before.items():
        if pair not in after:
            yield Change(f"removed link {one} - {other}")
    for pair, (one, other, cost) in after.items():
        if pair not in before:
            yield Change(f"added link {one} - {other}" + (f", cost {cost}" if cost != 1 else ""))
            continue
        for text in (
            _changed(f"link {one} - {other}: cost", before[pair][2], cost, "count"),
            _changed(f"link {one} - {other}: via", old.via.get(pair), new.via.get(pair), "place"),
        ):
            if text:
                yield Change(text)


def _changed(place: str, old: Any, new: Any, form: Form | str) -> str:
    return "" if old == new else f"changed {place} {_shown(old, form)} -> {_shown(new, form)}"


def _shown(value: Any, form: Form | str) -> str:
    if value is None:
        return "(none)"
    if form == "switch":
        return str(value).lower()
    if form == "duration":
        return format_duration(value)
    if form == "size":
        return format_size(value)
    return format_host_port(value) if form == "place" else str(value)
