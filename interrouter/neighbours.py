"""A router's neighbours: the links of its topology file, the trunks that are open, and why others are not.

Of two neighbours the one whose name sorts first dials (`dials`); if both do, its connection is kept. Otherwise a newer
connection with the same neighbour replaces the older. Read network.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqp10.errors import NOT_ALLOWED, NOT_FOUND
from interrouter.linkstate import LinkStateDatabase
from interrouter.trunk import Hello, Refused, Trunk
from router.reporting import Log


def dials(name: str, neighbour: str) -> bool:
    """Whether the router `name` is the one that connects to this neighbour."""
    return name < neighbour


class Neighbours:
    def __init__(self, hello: Hello, costs: Mapping[str, int], log: Log) -> None:
        assert all(cost > 0 for cost in costs.values())
        assert hello.name not in costs
        self.trunks: dict[str, Trunk] = {}
        """Neighbour -> its open trunk."""
        self.failures: dict[str, str] = {}
        """Neighbour, "?" if unknown -> why the last trunk with it was lost or refused."""
        self.changed = False
        """Trunks or costs have, since `links` was asked for."""
        self.sign = False
        """A trunk has opened, or a neighbour without one has said something over others: the network is there, and who
        dials does so now."""
        self._ours = hello
        self._log = log
        self._costs = dict(costs)
        self._removed: dict[str, float] = {}  # neighbour that has left the topology file -> when its trunk closes
        self._lost_at: dict[str, float] = {}  # neighbour -> when its trunk was

    def set_costs(self, costs: Mapping[str, int], until: float) -> None:
        """The links of the topology file have changed. until: when a trunk that is no longer wanted closes at the
        latest."""
        removed = [name for name in self._costs if name not in costs]
        self._removed = {name: self._removed.get(name, until) for name in removed if name in self.trunks}
        for name in removed:
            self.failures.pop(name, None)
            self._lost_at.pop(name, None)
        self._costs = {**{name: self._costs[name] for name in self._removed}, **costs}
        self.changed = True

    def links(self) -> dict[int, int]:
        """Returns the cost of the link to each neighbour, by incarnation."""
        self.changed = False
        return {trunk.incarnation: self._costs[name] for name, trunk in self.trunks.items()}

    def first_hops(self) -> dict[int, Trunk]:
        return {trunk.incarnation: trunk for trunk in self.trunks.values()}

    def spared(self, database: LinkStateDatabase, now: float) -> Trunk | None:
        """Returns a trunk of a removed link that nobody is reached by alone, or whose time is over."""
        for name, at in self._removed.items():
            trunk = self.trunks[name]
            if now >= at or database.reaches_all_without(trunk.incarnation):
                return trunk
        return None

    def version_with(self, trunk: Trunk, hello: Hello, database: LinkStateDatabase) -> int:
        """Returns the version that both speak. Raises Refused if the other end may not be our neighbour."""
        try:
            return self._check(trunk, hello, database)
        except Refused:
            if trunk.dialled is None and hello.name in self._costs:
                trunk.claimed = hello.name
            raise

    def opened(self, trunk: Trunk, now: float) -> None:
        """The other end has been accepted, and an older trunk with it is lost."""
        name = trunk.neighbour
        assert name is not None
        self.trunks[name] = trunk
        self.changed = self.sign = True
        text = "neighbour {neighbour} connected"
        known = {"incarnation": f"{trunk.incarnation:016x}", "version": trunk.version}
        lost_at = self._lost_at.pop(name, now)
        if lost_at < now:
            text += " again after {away_s} s"
            known["away_s"] = round(now - lost_at, 1)
        self._log.info("neighbour_connected", text, neighbour=name, **known)
        self.failures.pop(name, None)

    def lost(self, trunk: Trunk, reason: str, now: float) -> None:
        told = trunk.failure is not None
        if trunk.ended(reason):
            assert trunk.neighbour is not None
            del self.trunks[trunk.neighbour]
            self.changed = True
            self.failures[trunk.neighbour] = reason
            self._lost_at[trunk.neighbour] = now
            text = "neighbour {neighbour} lost: {reason}"
            self._log.warning("neighbour_lost", text, neighbour=trunk.neighbour, reason=reason)
            if self._removed.pop(trunk.neighbour, None) is not None:
                del self._costs[trunk.neighbour], self.failures[trunk.neighbour], self._lost_at[trunk.neighbour]
        elif trunk.neighbour is None and not told:
            name = trunk.dialled or trunk.claimed
            if name in self._costs:
                if self.failures.get(name) == reason:
                    return  # it is dialled again and again: a reason is told when it changes
                self.failures[name] = reason
            text = "connection with neighbour {neighbour} refused or failed: {reason}"
            self._log.warning("neighbour_refused", text, neighbour=name, reason=reason)

    def heard_of(self, name: str) -> None:
        """The link state of this router has come."""
        if name in self._costs and name not in self.trunks:
            self.sign = True

    def sign_seen(self) -> None:
        self.sign = False

    def status(self) -> dict[str, Any]:
        return {
            name: {
                "cost": cost,
                "up": name in self.trunks,
                **({"trunk": self.trunks[name].status()} if name in self.trunks else {}),
                **({"failure": self.failures[name]} if name in self.failures else {}),
            }
            for name, cost in sorted(self._costs.items())
        }

    def check_invariants(self) -> None:
        for name, trunk in self.trunks.items():
            assert trunk.up, f"trunk to {name} is registered and not up"
            assert trunk.neighbour == name, f"trunk to {trunk.neighbour} is registered for {name}"
            trunk.check_invariants()

    def _check(self, trunk: Trunk, hello: Hello, database: LinkStateDatabase) -> int:
        ours = self._ours
        if hello.network != ours.network:
            raise Refused(NOT_ALLOWED, f"this router belongs to network {ours.network!r}, not {hello.network!r}")
        version = ours.versions.common(hello.versions)
        if version is None:
            text = f"router {hello.name!r} speaks version {hello.versions} of the wire between routers"
            raise Refused(NOT_ALLOWED, f"{text}, and router {ours.name!r} {ours.versions}")
        if hello.name == ours.name:
            raise Refused(NOT_ALLOWED, f"this is router {ours.name!r} itself, or another process of that name")
        if trunk.dialled is not None and hello.name != trunk.dialled:
            raise Refused(NOT_ALLOWED, f"router {trunk.dialled!r} was dialled, but router {hello.name!r} answers")
        if hello.name not in self._costs or hello.name in self._removed:
            raise Refused(NOT_FOUND, f"router {ours.name!r} has no neighbour {hello.name!r} in its topology file")
        if database.is_former(hello.incarnation):
            raise Refused(NOT_ALLOWED, f"a newer process of router {hello.name!r} is known")
        old = self.trunks.get(hello.name)
        if old is not None and old.incarnation == hello.incarnation:
            ours_to_dial = dials(ours.name, hello.name)
            if (old.dialled is None) != ours_to_dial and (trunk.dialled is None) == ours_to_dial:
                raise Refused(NOT_ALLOWED, f"router {hello.name!r} is connected already")
        return version
