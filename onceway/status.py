"""The `/status` document: what the router, the network and the process say of themselves, and what people ask first.

`complete` adds to it
- `state`: starting, recovering (with `recovering_s`, the seconds left), ready, stopping; and `reason` while not ready,
- `records`: over all addresses, the deliveries that are not over yet, by state,
- `publishers`, `subscribers`: how many links of each kind are attached here,
- `oldest_in_doubt_s`: how long the oldest delivery in doubt has been so; None where none is.
The parts below it are for people and metrics; their keys are those of the layer that knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Document = dict[str, Any]

RECORDS: Final = ("undone", "unsettled", "queued", "held", "in_doubt", "placeholders", "owed")
"""undone: taken here, not accepted by all yet.  unsettled: of those taken here, not settled by their publisher.
queued: waiting here for a subscriber's credit.  held: with a subscriber here, not settled.  in_doubt: of those, the
ones whose publisher has no ingress now.  placeholders: named by a subscriber, payload not here yet.  owed: taken here
for subscriptions that have no router now."""


def complete(raw: Mapping[str, Any]) -> Document:
    addresses: Mapping[str, Any] = raw.get("addresses", {})
    state, reason = _state(raw)
    return {
        **{key: raw[key] for key in ("name", "network", "pid", "incarnation", "uptime_s") if key in raw},
        "state": state,
        "recovering_s": raw.get("recovering_s"),
        "reason": reason,
        "publishers": sum(len(publishers(address)) for address in addresses.values()),
        "subscribers": sum(len(subscribers(address)) for address in addresses.values()),
        "records": {state: sum(counts[state] for counts in map(records, addresses.values())) for state in RECORDS},
        "oldest_in_doubt_s": oldest_in_doubt(raw),
        **{key: value for key, value in raw.items() if key != "recovering_s"},
    }


def records(address: Mapping[str, Any]) -> dict[str, int]:
    """The deliveries of one address that are not over, by state."""
    ingress = address.get("ingress", {})
    attached = subscribers(address)
    return {
        "undone": ingress.get("undone", 0),
        "unsettled": ingress.get("unsettled", 0),
        "queued": sum(link.get("queued", 0) for link in attached),
        "held": sum(link.get("unsettled", 0) for link in attached),
        "in_doubt": sum(link.get("in_doubt", 0) for link in attached),
        "placeholders": sum(link.get("placeholders", 0) for link in attached),
        "owed": sum(entry.get("owed", 0) for entry in address.get("subscriptions", ())),
    }


def publishers(address: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The publishers attached here."""
    return list(address.get("ingress", {}).get("publishers", ()))


def subscribers(address: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The subscribers attached here."""
    return list(address.get("egress", {}).get("subscribers", ()))


def oldest_in_doubt(raw: Mapping[str, Any]) -> float | None:
    ages = [address.get("oldest_in_doubt_s") for address in raw.get("addresses", {}).values()]
    return max((age for age in ages if age is not None), default=None)


def _state(raw: Mapping[str, Any]) -> tuple[str, str]:
    """(state, why it is not ready).  PROTOCOL 4: ready is booted and established."""
    if raw.get("stopping"):
        return "stopping", "stopping"
    booted, established = raw.get("booted", False), raw.get("established", False)
    if booted and established:
        return "ready", ""
    if not booted:
        return "starting", "waiting for the other routers"
    left, awaited = raw.get("recovering_s"), raw.get("awaited")
    why = f"recovering, waiting for {', '.join(awaited)}" if awaited else "recovering"
    return "recovering", why if left is None else f"{why}, {left:.1f} s left"
