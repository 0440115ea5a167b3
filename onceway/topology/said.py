"""What a topology says, section by section, as the rows of the table name it.

`difference` compares two of these, `digest` makes a number of one, and a router shows what it follows by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from onceway.topology import admin, mqtt, sasl, settings, tls, websocket
from onceway.topology.addresses import ADDRESS
from onceway.topology.forms import NONE
from onceway.topology.limits import LIMITS
from onceway.topology.links import LINK, said
from onceway.topology.model import Topology
from onceway.topology.routers import ROUTER
from onceway.topology.sections import TOP
from onceway.topology.table import Section, When
from router.config import Limits, UserLimits


@dataclass(frozen=True, slots=True)
class Said:
    """One mapping of a topology.

    Attributes:
        section: Its rows.
        label: What stands before its keys in a line of a plan.
        values: By key.
        thing: How it is called when it is added or removed; empty: it is always there.
        router: The only one that it concerns.
    """

    section: Section
    label: str
    values: dict[str, Any]
    thing: str = ""
    router: str | None = None

    @property
    def identity(self) -> tuple[str | None, str, str]:
        return self.router, self.section.title, self.label


def sections(topology: Topology) -> Iterator[Said]:
    """Yields what the topology says, in the order of the table; policies, which have no name, are not among it."""
    config = topology.settings
    yield Said(TOP, "", TOP.values(topology, config))
    yield Said(settings.SETTINGS, "settings.", settings.SETTINGS.values(config, config.defaults))
    yield Said(LIMITS, "limits.", LIMITS.values(config.limits))
    for user, of_user in config.users:
        yield Said(LIMITS, f"users.{user}.limits.", LIMITS.values(of_user))
    for address in topology.given:
        match = address.config.match
        yield Said(ADDRESS, f"address {match}.", address.said, f"address {match}")
    if topology.mqtt is not None:
        yield Said(mqtt.MQTT, "mqtt.", mqtt.MQTT.values(topology.mqtt), "mqtt")
    for name, profile in topology.tls.items():
        yield Said(tls.PROFILE, f"tls.{name}.", tls.PROFILE.values(profile), f"tls.{name}")
    if topology.sasl is not None:
        yield Said(sasl.SASL, "sasl.", sasl.SASL.values(topology.sasl), "sasl")
    yield Said(tls.TRUNKS, "trunks.", tls.TRUNKS.values(topology))
    yield Said(websocket.WEBSOCKET, "websocket.", websocket.WEBSOCKET.values(topology))
    yield Said(admin.ADMIN, "admin.", admin.ADMIN.values(topology.admin))
    for name, at in topology.routers.items():
        yield Said(ROUTER, "", ROUTER.values(at.listeners, at), f"router {name}", name)
        if name in topology.limits:
            yield Said(LIMITS, "limits.", LIMITS.values(topology.limits[name]), router=name)
    for link in topology.links:
        one, other = sorted(link[:2])
        values = LINK.values(said(link, topology.via))
        yield Said(LINK, f"link {one} - {other}: ", {**values, "between": (one, other)}, f"link {link[0]} - {link[1]}")


def what_holds_instead(of: Said, topology: Topology) -> dict[str, Any]:
    """The values of a section that the topology does not have."""
    if of.section is not LIMITS:
        return {row.key: of.section.default(row) for row in of.section.rows}
    if of.router is not None:
        return LIMITS.values(topology.settings.limits)
    return LIMITS.values(UserLimits() if of.label != "limits." else Limits())


def in_force(topology: Topology, started: Topology, name: str) -> Topology:
    """Returns what holds in router `name`, which follows `topology`: what needs a restart is as it was started with."""

    def kept(section: Section, part: object) -> dict[str, Any]:
        return {row.name: getattr(part, row.name) for row in section.rows if row.when is When.RESTART}

    return replace(
        topology,
        **kept(tls.TRUNKS, started),
        admin=replace(topology.admin, **kept(admin.ADMIN, started.admin)),
        routers={**topology.routers, name: started.routers[name]},
    )


def configuration(topology: Topology, started: Topology, name: str) -> dict[str, str]:
    """Returns every value in words: `settings.heartbeat` -> `500ms`.

    Args:
        topology: What a router follows.
        started: What it was started with: what needs a restart is as that says.
        name: Of the router.
    """
    found = {}
    for each in sections(in_force(topology, started, name)):
        place = f"router {each.router}: {each.label}" if each.router is not None else each.label
        for row in each.section.rows:
            if row.key in each.values and not row.shown_by:
                found[place + row.key] = row.show(each.values[row.key])
    policies = topology.settings.policies
    return {**found, "policies": ", ".join(map(str, policies)) if policies is not None else NONE}


def digest(topology: Topology) -> str:
    """Returns 16 hexadecimal digits. Files that say the same have the same, whatever their order of keys, routers and
    links, and in every version that knows their keys: what is as its default is left out."""
    said: list[object] = []
    for each in sections(topology):
        defaults = what_holds_instead(each, topology)
        given = [(key, repr(value)) for key, value in sorted(each.values.items()) if value != defaults.get(key)]
        if given or each.thing:
            said.append((each.router or "", each.section.title, each.label, given))
    order = [each.config.match for each in topology.given]  # the first that matches holds
    whole = repr((sorted(said, key=repr), order, topology.settings.policies))
    return blake2b(whole.encode(), digest_size=8).hexdigest()
