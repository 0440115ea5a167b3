"""The `/status` document: the status of router, network and process, sums over all addresses, and a page of addresses.

`summarize` makes everything but the page. It adds to what the router says
- `state`, one of `STATES`, with `recovering_s`, the seconds left, while it is recovering; and `reason` while not ready,
- `records`: over all addresses, the deliveries that are not settled yet, by state,
- `oldest_in_doubt_s`: how long the oldest delivery in doubt has been so; None where none is,
- `without_credit` and `away`: publishers that get no credit, and subscriptions that are away and waited for; the first
  `NAMED` of each, and how many there are,
- `sums_age_s`: how old these sums are (`onceway.operate.overview` says why they may be).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onceway.topology import format_duration

Document = dict[str, Any]

NAMED: Final = 20
FEW: Final = 3  # entries of the topology file that a reason names
STATES: Final = {
    "starting": "it waits for the other routers",
    "recovering": "it waits for subscriptions from before, and accepts nothing for them yet",
    "isolated": "it reaches none of its neighbours",
    "ready": "it serves",
    "draining": "its clients are sent to other routers",
    "drained": "none is left, and none is taken",
    "stopping": "it ends",
}
RECORDS: Final = {
    "undone": "came from publishers here, and not every subscription has accepted them yet",
    "unsettled": "came from publishers here, were accepted by all, and are not settled by their publisher yet",
    "queued": "wait here for the credit of a subscriber",
    "held": "were sent to subscribers here, and are not settled",
    "in_doubt": "are held by a subscriber here while their publisher has no link to any router",
    "placeholders": "a subscriber here has named in its unsettled map, and their payload is not here yet",
    "owed": "came from publishers here, and wait for a subscription that has no link",
    "free": "came from publishers here to a queue, and are no consumer's: none that may have them has credit",
}
"""What is told of deliveries: "deliveries that ..."."""
ROLES: Final = {"publisher": "links of publishers here", "subscriber": "links of subscribers here"}

SubscriptionKey = tuple[str, str, str]
"""Label of the address, container, link name."""
OTHERS: Final = ("other", "other", "other")
OWN_LAG: Final = 200


@dataclass(slots=True)
class Lag:
    """What a subscription has not accepted yet, as far as one router knows; or all subscriptions behind `OWN_LAG`."""

    messages: int = 0
    oldest_s: float = 0.0


@dataclass(slots=True)
class Row:
    """Sums over the addresses that share a label in the metrics; most addresses have a label of their own."""

    records: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RECORDS, 0))
    publishers: int = 0
    subscribers: int = 0
    homes: dict[str, int] = field(default_factory=dict)  # of subscriptions: a router's name, or "away"
    without_credit: int = 0
    longest_without_credit_s: float = 0.0


@dataclass(slots=True)
class Sums:
    """Sums over the addresses that were added, one after the other."""

    records: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RECORDS, 0))
    oldest_in_doubt_s: float | None = None
    entries: int = 0
    rows: dict[str, Row] = field(default_factory=dict)
    shown: Mapping[SubscriptionKey, Lag] = field(default_factory=dict)  # the last sums'; these keep their place
    lags: dict[SubscriptionKey, Lag] = field(default_factory=dict)
    new: int = 0  # of `lags`, those that are not in `shown`
    without_credit: list[Document] = field(default_factory=list)
    without_credit_count: int = 0
    away: list[Document] = field(default_factory=list)
    away_count: int = 0

    def add(self, name: str, address: Mapping[str, Any]) -> None:
        label = address.get("label", name)
        row = self.rows.setdefault(label, Row())
        for state, number in records(address).items():
            self.records[state] += number
            row.records[state] += number
        row.publishers += len(publishers(address))
        row.subscribers += len(subscribers(address))
        age = address.get("oldest_in_doubt_s")
        if age is not None:
            self.oldest_in_doubt_s = max(age, self.oldest_in_doubt_s or 0.0)
        self.entries += address.get("entries", 0)
        for publisher in publishers(address):
            if publisher.get("no_credit"):
                self.without_credit_count += 1
                row.without_credit += 1
                row.longest_without_credit_s = max(row.longest_without_credit_s, publisher.get("no_credit_s", 0.0))
                if len(self.without_credit) < NAMED:
                    self.without_credit.append(_named(name, publisher, "no_credit", "waiting"))
        for subscription in address.get("subscriptions", ()):
            home = subscription.get("home") or "away"
            row.homes[home] = row.homes.get(home, 0) + 1
            if home == "away":
                self.away_count += 1
                if len(self.away) < NAMED:
                    self.away.append(_named(name, subscription, "away_s", "timeout_s", "owed", "declared"))
                self._add_lag(label, subscription, "owed")
        for subscriber in subscribers(address):
            self._add_lag(label, subscriber, "not_accepted")

    def _add_lag(self, label: str, one: Mapping[str, Any], key: str) -> None:
        subscription = (label, one.get("container", ""), one.get("name", ""))
        if subscription not in self.shown and subscription not in self.lags:
            if self.new >= OWN_LAG - len(self.shown):
                subscription = OTHERS
            else:
                self.new += 1
        lag = self.lags.setdefault(subscription, Lag())
        lag.messages += one.get(key, 0)
        lag.oldest_s = max(lag.oldest_s, one.get("oldest_s", 0.0))


def summarize(raw: Mapping[str, Any], sums: Sums, age_s: float | None) -> Document:
    """`raw` is what a router says of itself without its addresses; `sums` are over these, and `age_s` old.
    age_s None: they have not been made yet, and are zero."""
    state, reason = state_of(raw)
    return {
        **{key: raw[key] for key in ("name", "network", "program", "pid", "incarnation", "uptime_s") if key in raw},
        "state": state,
        "recovering_s": raw.get("recovering_s"),
        "reason": reason,
        "publishers": 0,
        "subscribers": 0,
        "records": sums.records,
        "oldest_in_doubt_s": sums.oldest_in_doubt_s,
        "without_credit": {"count": sums.without_credit_count, "first": sums.without_credit},
        "away": {"count": sums.away_count, "first": sums.away},
        "sums_age_s": None if age_s is None else round(age_s, 3),
        **{key: value for key, value in raw.items() if key != "recovering_s"},
        "entries": sums.entries,
    }


def records(address: Mapping[str, Any]) -> dict[str, int]:
    """The deliveries of one address that are not over, by state."""
    ingress = address.get("ingress", {})
    attached = subscribers(address)
    return {
        "undone": ingress.get("undone", 0),
        "unsettled": ingress.get("unsettled", 0),
        "queued": sum([link.get("queued", 0) for link in attached]),
        "held": sum([link.get("unsettled", 0) for link in attached]),
        "in_doubt": sum([link.get("in_doubt", 0) for link in attached]),
        "placeholders": sum([link.get("placeholders", 0) for link in attached]),
        "owed": sum([entry.get("owed", 0) for entry in address.get("subscriptions", ())]),
        "free": ingress.get("free", 0),
    }


def publishers(address: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The publishers attached here."""
    return list(address.get("ingress", {}).get("publishers", ()))


def subscribers(address: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The subscribers attached here."""
    return list(address.get("egress", {}).get("subscribers", ()))


def state_of(raw: Mapping[str, Any]) -> tuple[str, str]:
    """(state, why it is not ready). Ready means booted, established (protocol 4.4), and in touch with a neighbour."""
    drain = raw.get("drain")
    left = f", {count(drain['connections'], 'connection')} left" if drain and drain["connections"] else ""
    if raw.get("stopping"):
        return "stopping", f"stopping{left}"
    if drain:
        return ("draining", f"draining{left}") if left else ("drained", "drained")
    booted, established = raw.get("booted", False), raw.get("established", False)
    if booted and established:
        neighbours: Mapping[str, Any] = raw.get("neighbours", {})
        if not neighbours or raw.get("ready_when_isolated") or any(each["up"] for each in neighbours.values()):
            return "ready", ""
        return "isolated", f"isolated: none of its neighbours can be reached ({', '.join(neighbours)})"
    if not booted:
        return "starting", "waiting for the other routers"
    recovering_s, awaited = raw.get("recovering_s"), raw.get("awaited")
    why = f"recovering, waiting for {', '.join(awaited)}" if awaited else "recovering"
    if recovering_s is None:
        return "recovering", why
    return "recovering", f"{why}, {recovering_s:.1f} s left{_waiting_addresses(raw.get('recovery', ()))}"


def _waiting_addresses(recovery: Iterable[Mapping[str, Any]]) -> str:
    """Which addresses accept nothing yet, for how long at most, and from which setting that comes."""
    waiting = [each for each in recovery if not each["established"] and each["left_s"] is not None]
    waiting.sort(key=lambda each: -each["left_s"])
    named = []
    for each in waiting[:FEW]:
        setting = format_duration(each["subscription_timeout_s"])
        named.append(f"{each['match']} {each['left_s']:.1f} s (subscription_timeout {setting})")
    if len(waiting) > FEW:
        named.append(f"{len(waiting) - FEW} more")
    return f": {', '.join(named)}" if named else ""


def _named(address: str, one: Mapping[str, Any], *keys: str) -> Document:
    return {"address": address, **{key: one.get(key) for key in ("container", "name", *keys)}}


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
