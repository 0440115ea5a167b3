"""What happens without the application having asked: all of it goes to `on_report` and into the log.

`str` of a report is its line in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any


@dataclass(frozen=True, slots=True)
class RouterConnected:
    """A connection to a router is up, and links are attaching.

    Attributes:
        url: The router's URL, without user and password.
        router: Its container-id.
    """

    url: str
    router: str

    def __str__(self) -> str:
        return f"connected to router {self.router!r} at {self.url}"


@dataclass(frozen=True, slots=True)
class RouterLost:
    """The connection to a router is gone, or could not be made.

    Attributes:
        url: The router's URL, without user and password.
        reason: Why, in words.
        retry_in_s: After so many seconds the next URL is tried.
    """

    url: str
    reason: str
    retry_in_s: float

    def __str__(self) -> str:
        return f"no connection to {self.url}: {self.reason}; next try in {self.retry_in_s:.2f} s"


@dataclass(frozen=True, slots=True)
class SubscriptionGap:
    """A subscription may have missed messages; it was created again.

    Attributes:
        address: The topic.
        name: The subscriber's link name.
        reason: Why, in words.
        dropped: How many deliveries had been handed out and have no outcome.  Accepting them has no effect any more;
            they may come again as new.
    """

    address: str
    name: str
    reason: str
    dropped: int

    def __str__(self) -> str:
        dropped = f"; {self.dropped} deliveries in hand may come again" if self.dropped else ""
        return f"subscriber {self.name!r} of {self.address!r} may have missed messages: {self.reason}{dropped}"


@dataclass(frozen=True, slots=True)
class PublicationsUndecided:
    """Publications without outcome.  They may or may not have arrived.

    They are not sent again, except by the next process where the journal keeps them.

    Attributes:
        address: The topic.
        name: The publisher's link name.
        reason: Why there is no outcome, in words.
        publications: (sequence, payload) of each.
        kept: The journal keeps them, and the next process sends them again.
    """

    address: str
    name: str
    reason: str
    publications: tuple[tuple[int, bytes], ...]
    kept: bool = False

    def __str__(self) -> str:
        who = f"publisher {self.name!r} of {self.address!r}"
        return f"{who} has undecided publications ({len(self.publications)}): {self.reason}"


@dataclass(frozen=True, slots=True)
class PublisherWaiting:
    """A publisher has had no credit for some seconds, or no outcome can come, and the router has said why.

    Attributes:
        address: The topic.
        name: The publisher's link name.
        router: Container-id of the router that says so.
        reason: `no-subscribers`, `window`, `unsettled-window`, `memory-limit`, `recovering`, `draining`, or what a
            later router says.
        count: For how many subscriptions its messages wait; 0 where the reason is another.
        subscriptions: The first of them, if they are of this publisher's user: container-id, link name, and the router
            where it is attached ("" while it is away).
        seconds: How long that may take at most, counted from this report, where the router knows; else None.
        setting: The setting in the topology file that limits it, as `subscription_timeout`; else "".
    """

    address: str
    name: str
    router: str
    reason: str
    count: int = 0
    subscriptions: tuple[tuple[str, str, str], ...] = ()
    seconds: int | None = None
    setting: str = ""

    def __str__(self) -> str:
        return f"publisher {self.name!r} of {self.address!r} waits: {self.why}"

    @property
    def why(self) -> str:
        """The reason in words."""
        limit = "" if self.seconds is None else f", for {self.seconds} s at most ({self.setting})"
        if self.reason == "window":
            named = ", ".join(_subscription(*each) for each in self.subscriptions)
            more = self.count - len(self.subscriptions)
            if not named:
                named = f"{self.count} subscriptions" if self.count else "all subscriptions"
            elif more > 0:
                named += f" and {more} more"
            return f"what it has sent has not been accepted by {named}{limit}"
        return f"{_REASONS.get(self.reason, self.reason).format(self=self)}{limit}"


_REASONS = {
    "no-subscribers": "nobody subscribes to {self.address!r} (no_subscribers: hold)",
    "unsettled-window": "too many of its messages have an outcome that it has not settled",
    "memory-limit": "router {self.router!r} holds as much payload as its memory_limit allows",
    "recovering": "the network is recovering: it waits for subscriptions that it may have had before it stopped",
    "draining": "router {self.router!r} is being drained",
}


def waiting_from(address: str, name: str, router: str, told: Mapping[str, Any]) -> PublisherWaiting:
    """Of the map that a router sends; what has another form than expected is left out."""
    count, seconds, subscriptions = told.get("count"), told.get("seconds"), told.get("subscriptions")
    return PublisherWaiting(
        address,
        name,
        router,
        str(told.get("reason")),
        count if isinstance(count, int) else 0,
        tuple(
            (each[0], each[1], each[2])
            for each in (subscriptions if isinstance(subscriptions, list) else ())
            if isinstance(each, list) and len(each) == 3 and all(isinstance(part, str) for part in each)
        ),
        ceil(seconds) if isinstance(seconds, int | float) else None,
        str(told.get("setting") or ""),
    )


def _subscription(container: str, name: str, router: str) -> str:
    return f"{container}/{name} ({f'at {router}' if router else 'away'})"


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """A publisher or subscriber is attached at a router.

    Attributes:
        role: `publisher` or `subscriber`.
        address: The topic.
        name: The link name.
        router: The router's container-id.
        resumed: It resumes an earlier attachment.
        guarantee: What was negotiated.
    """

    role: str
    address: str
    name: str
    router: str
    resumed: bool
    guarantee: str

    def __str__(self) -> str:
        how = "resumed" if self.resumed else "attached"
        return f"{self.role} {self.name!r} of {self.address!r} {how} at router {self.router!r}, {self.guarantee}"


Report = RouterConnected | RouterLost | SubscriptionGap | PublicationsUndecided | PublisherWaiting | LinkAttached
