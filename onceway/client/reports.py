"""What happens without the application having asked: handed to `on_report` (all of them), `on_gap`, `on_undecided`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RouterConnected:
    """A connection to a router is up; `router` is its container-id.  Links are attaching."""

    url: str
    router: str


@dataclass(frozen=True, slots=True)
class RouterLost:
    """The connection is gone, or could not be made; the next URL is tried after `retry_in_s`."""

    url: str
    reason: str
    retry_in_s: float


@dataclass(frozen=True, slots=True)
class SubscriptionGap:
    """A subscription may have missed messages, for `reason`.  It has joined (or is joining) again as a new one.

    `dropped` deliveries had been handed out and not been accepted: their accept has no effect any more, they may
    come again as new.
    """

    address: str
    name: str
    reason: str
    dropped: int


@dataclass(frozen=True, slots=True)
class PublicationsUndecided:
    """Publications that may or may not have arrived and will not be sent again: (sequence, payload) each."""

    address: str
    name: str
    reason: str
    publications: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """A link works at `router`.  `resumed`: an earlier attachment goes on.  `guarantee`: what was negotiated."""

    role: str
    address: str
    name: str
    router: str
    resumed: bool
    guarantee: str


Report = RouterConnected | RouterLost | SubscriptionGap | PublicationsUndecided | LinkAttached
