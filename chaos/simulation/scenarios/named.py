"""What named schedules are made of, and where they are kept. Each module of this package adds its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.simulation.publishers import Publisher
from chaos.simulation.schedule import Schedule
from chaos.simulation.subscribers import Subscriber
from chaos.simulation.world import World
from router.config import AddressConfig

Worlds = Callable[..., World]
Scenario = Callable[[Worlds], None]
SCENARIOS: dict[str, Scenario] = {}

SHORT = AddressConfig(subscription_timeout_s=40.0, publisher_timeout_s=100.0)  # margin 5 s
EXPIRY_S = 46.0
PUBLISHER_EXPIRY_S = 106.0
ACCEPT = AddressConfig(no_subscribers="accept")


def wider(world: Worlds, kind: type[World]) -> Worlds:
    """For schedules that need more than a plain world has."""
    return kind if world is World else world


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def P(name: str = "p0", kind: str = "recovering") -> Publisher:
    return Publisher(name, kind)


def S(name: str = "s0", kind: str = "recovering", **options: Any) -> Subscriber:
    return Subscriber(name, kind, **options)


def limit(guarantee: str, do: Callable[[], None]) -> None:
    """What is documented as not promised does break this guarantee here."""
    try:
        do()
    except AssertionError as violation:
        if str(violation).startswith(guarantee):
            return
        raise
    raise AssertionError("this limit is no more: say so where it is documented")


def finish(s: Schedule, **totals: int) -> None:
    """The publishers send no more than this; everything drains."""
    for publisher in s.w.publishers:
        publisher.total = totals.get(publisher.name, publisher.seq)
    s.end()


# ---------------------------------------------------------------------- beginnings that several have in common
def half_accepted(
    world: Worlds, s0: str, s1: str, p0: str, *, names: str = "AB", publisher: Publisher | None = None,
    subscriber: Subscriber | None = None, **options: Any,
) -> Schedule:  # fmt: skip
    """All three at these routers. s0 has accepted m0; s1 has it in hand, and accepts nothing before `hold` is cleared,
    so that P has not been told."""
    s = Schedule(world(names, [publisher or P()], [subscriber or S("s0"), S("s1")], **options))
    s.up(("s0", s0), ("s1", s1), ("p0", p0))
    s.hold.append(("accept", "s1"))
    s.send("p0")
    s.run()
    return s
