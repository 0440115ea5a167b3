"""Which routers are in session, and what they have said of others (PROTOCOL.md 4.2, 4.4): knowledge, no decisions."""

from __future__ import annotations

from collections.abc import Iterable

from router.messages import Hello

INFINITE = float("inf")


class Said:
    """What the latest HELLO of a peer in its present session has said of routers."""

    __slots__ = ("established", "incarnation", "up")

    def __init__(self, hello: Hello) -> None:
        self.incarnation = hello.incarnation
        self.established = hello.established
        self.up = hello.up


class Membership:
    """The routers that `name` is in session with; `expected` are those of the topology file."""

    __slots__ = ("_expected", "_name", "_said", "peers", "together_since", "up")

    def __init__(self, name: str, expected: Iterable[str], now: float) -> None:
        self._name = name
        self._expected = frozenset(expected) - {name}
        self._said: dict[str, Said] = {}  # by those whose HELLO has come in the present session
        self.up: dict[str, None] = {}
        self.peers: tuple[str, ...] = ()  # the same, sorted
        self.together_since = INFINITE if self._expected else now
        """Since when every router of the topology file has been in session."""

    def came(self, peer: str, now: float) -> bool:
        """A session with it has begun. Are all together now?"""
        self.up[peer] = None
        self.peers = tuple(sorted(self.up))
        if not self._expected <= self.up.keys():
            return False
        self.together_since = now
        return True

    def went(self, peer: str) -> None:
        """Its session has ended."""
        self.up.pop(peer, None)
        self.peers = tuple(sorted(self.up))
        self._said.pop(peer, None)
        if peer in self._expected:
            self.together_since = INFINITE

    def went_on(self, since: float) -> None:
        """12: a process that has stood still knows of no session whether it has lasted."""
        self.together_since = max(self.together_since, since)

    def heard(self, sender: str, hello: Hello) -> bool:
        """Is it the first HELLO of its session?"""
        first = sender not in self._said
        self._said[sender] = Said(hello)
        return first

    def all_said(self) -> bool:
        """4.1: the HELLO of every router of the topology file has come."""
        return self._expected <= self._said.keys()

    def awaited(self) -> list[str]:
        """4.4: who is up with an established router and has not said HELLO to us.

        Who has gone is waited for until those who were up with it have said so: what it told them before, it need not
        have told us, and their next HELLO has it."""
        lists = [said.up for said in self._said.values() if said.established]
        return sorted({router for up in lists for router, life in up if not self.is_heard(router, life)})

    def is_heard(self, router: str, incarnation: int) -> bool:
        """Has this life of it said HELLO to us? A later one does not know what it knew."""
        said = self._said.get(router)
        return router == self._name or (said is not None and said.incarnation == incarnation)

    def knows_established(self) -> bool:
        """4.4: has an established router said HELLO to us?"""
        return any(said.established for said in self._said.values())

    def perhaps_waiting(self) -> list[str]:
        """4.4: those in session that are not known to be established."""
        return [peer for peer in self.peers if not (peer in self._said and self._said[peer].established)]

    def list_for_hello(self) -> tuple[tuple[str, int], ...]:
        """4.2: who is up, each with its incarnation, 0 before its HELLO."""
        said = self._said
        return tuple([(router, said[router].incarnation if router in said else 0) for router in self.peers])
