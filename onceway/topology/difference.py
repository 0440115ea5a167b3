"""What changes from one topology file to the next, in lines for people, and when each change takes effect.

Each row of the table (`onceway.topology.table`) says when a change of its key takes effect in running routers. What
they cannot change to while they run depends on several values, and is here. Nothing is applied here: that is
`onceway.serve.server`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from onceway.base.values import format_duration
from onceway.topology.addresses import ADDRESS
from onceway.topology.links import LINK
from onceway.topology.model import Topology
from onceway.topology.said import Said, sections, what_holds_instead
from onceway.topology.sections import TOP
from onceway.topology.subscriptions import SUBSCRIPTIONS
from onceway.topology.table import When
from router.config import SHARED, is_queue, kinds_of

_ORDER: Final = (TOP.title, *TOP.by_key)
MOST_FASTER: Final = 3
"""A router forgets another one after 200 of its own heartbeats, which repeats what it says every 60 of its own. So the
heartbeats of two routers may differ by this factor, not by more."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a plan. `router`: the only one that it concerns. `refused`: why running routers cannot change to it,
    and the remedy. `place`: the key that has another value."""

    text: str
    router: str | None = None
    when: When = When.AT_ONCE
    refused: str = ""
    place: str = ""

    @property
    def restart(self) -> bool:
        """Whether it takes effect when that router, or each, is restarted."""
        return self.when is When.RESTART

    def __str__(self) -> str:
        place = f"router {self.router}: " if self.router else ""
        after = self.refused or self.when.value
        return f"{place}{self.text}{': ' if after else ''}{after}"


def difference(old: Topology, new: Topology, started: Mapping[str, Topology] = MappingProxyType({})) -> list[Change]:
    """What changes, in the order of the table; empty if nothing does.

    Args:
        old: What the routers follow.
        new: What they are to follow.
        started: What each router was started with, for all that needs a restart; where none is named, `old`.
    """
    before = {each.identity: each for each in sections(old)}
    first = {name: {each.identity: each for each in sections(one)} for name, one in started.items()}
    after = {each.identity: each for each in sections(new)}
    found: list[tuple[int, int, Change]] = []

    def note(key: str, kind: int, changes: Iterable[Change]) -> None:
        found.extend((_ORDER.index(key), kind, change) for change in changes)

    for key, each in {**before, **after}.items():
        section = "routers" if each.router is not None else each.section.title
        if key not in after and each.thing:
            note(section, 0, [Change(f"removed {each.thing}"), *_subscriptions("removed", each)])
        elif key not in before and each.thing:
            note(section, 1, _added(each))
        elif each.router is None or (each.router in old.routers and each.router in new.routers):
            was = before.get(key) or replace(each, values=what_holds_instead(each, old))
            now = after.get(key) or replace(each, values=what_holds_instead(each, new))
            own = [said for name, said in first.items() if each.router in (None, name)]
            note(section, 2, _changed(was, [said.get(key, was) for said in own] or [was], now))
    note("policies", 0, _policies(old, new))
    note("addresses", 3, [*_order(old, new), *_kinds(old, new)])
    return _refuse(old, new, [change for _, _, change in sorted(found, key=itemgetter(0, 1))])


def _added(each: Said) -> Iterator[Change]:
    cost = each.values["cost"] if each.section is LINK else 1
    yield Change(f"added {each.thing}" + (f", cost {cost}" if cost != 1 else ""))
    yield from _subscriptions("added", each)


def _changed(was: Said, runs: Sequence[Said], now: Said) -> Iterator[Change]:
    """runs: What the routers have that it concerns, where a change needs a restart."""
    same_type = was.values.get("type") == now.values.get("type")
    for row in now.section.rows:
        if row.key not in now.values:
            continue
        other = now.values[row.key]
        before = [each.values[row.key] for each in (runs if row.when is When.RESTART else [was])]
        changed = [one for one in before if one != other and not (row.of and not same_type and None in (one, other))]
        if row.form is SUBSCRIPTIONS and changed:
            yield from _subscriptions("removed", was, now)
            yield from _subscriptions("added", now, was)
            continue
        for one in dict.fromkeys(map(row.show, changed)):
            place = f"{now.label}{row.key}"
            yield Change(f"changed {place} {one} -> {row.show(other)}", now.router, row.when, place=place)


def _subscriptions(what: str, there: Said, not_there: Said | None = None) -> Iterator[Change]:
    """The declared subscriptions of an address, each by its name."""
    if there.section is not ADDRESS:
        return
    others = not_there.values["subscriptions"] or () if not_there is not None else ()
    for each in there.values["subscriptions"] or ():
        if each not in others:
            yield Change(f"{what} {there.label}subscriptions {SUBSCRIPTIONS.of.show(each)}")


def _policies(old: Topology, new: Topology) -> Iterator[Change]:
    before, after = old.settings.policies, new.settings.policies
    if (before is None) != (after is None):
        yield Change("removed policies" if after is None else "added policies")
    yield from (Change(f"removed policy {policy}") for policy in before or () if policy not in (after or ()))
    yield from (Change(f"added policy {policy}") for policy in after or () if policy not in (before or ()))


def _order(old: Topology, new: Topology) -> Iterator[Change]:
    before, after = ([each.config.match for each in topology.given] for topology in (old, new))
    if [match for match in before if match in after] != [match for match in after if match in before]:
        yield Change("changed the order of addresses: the first that matches an address holds for it")


def _kinds(old: Topology, new: Topology) -> Iterator[Change]:
    """What is a topic in one file and a queue in the other: routers serve it when they agree (protocol 16.13)."""
    one, other = (kinds_of(topology.addresses) for topology in (old, new))
    for match in dict.fromkeys([match for match, _ in (*one, *other)]):
        queue = is_queue(other, match)
        if queue != is_queue(one, match):
            place = "shared subscriptions of MQTT" if match.startswith(SHARED) else f"address {match}"
            yield Change(f"{place}: {'queue' if queue else 'topic'} from when all routers follow this file")


def _refuse(old: Topology, new: Topology, changes: list[Change]) -> list[Change]:
    """Says of the changes that running routers cannot make why they cannot."""
    timers = _timers_refused(old, new)
    found = []
    for each in changes:
        if each.when is When.NEVER:
            each = replace(each, refused=f"another network: stop {old.network}, then start {new.network}")
        elif each.place in ("settings.heartbeat", "settings.dead_after"):
            each = replace(each, refused=timers)
        found.append(each)
    return found


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
