"""Which routers are in session, and what they have said of others (protocol 4.2, 4.4). This module decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import Final

from router.core.messages import Hello

NEVER: Final = float("inf")


class LatestHello:
    """What a peer has said of routers by its latest HELLO of the present session."""

    __slots__ = ("all_recovered", "incarnation", "life", "recovered", "routers", "settings_digest", "up")

    def __init__(self, hello: Hello) -> None:
        self.life = hello.incarnation
        self.incarnation = hello.incarnation  # 0: what it has said counts no more
        self.all_recovered = hello.all_recovered
        self.recovered = frozenset(hello.recovered)
        self.routers = hello.routers
        self.settings_digest = hello.settings_digest
        self.up = hello.up

    def knows(self, match: str, settings_digest: int) -> bool:
        """Says whether the addresses of this entry are recovered there. An entry of the same name may match other
        addresses in a file with other settings (protocol 4.4)."""
        return self.all_recovered or (match in self.recovered and settings_digest == self.settings_digest)


class Membership:
    """Who `name` is in session with. `routers` are those of its topology file, beside the digest of its settings."""

    __slots__ = (
        "_expected", "_gone", "_gone_for_good_at", "_hellos", "_name", "_own_file", "_resumed_at", "_settings_digest",
        "apart", "began", "chosen", "clocks", "keeper", "peers", "speaks", "together_since", "up",
    )  # fmt: skip

    def __init__(self, name: str, routers: Iterable[str], settings_digest: int, now: float) -> None:
        self._name = name
        self._own_file: frozenset[str] = frozenset()
        self._expected: frozenset[str] = frozenset()  # of our file, and of those of the routers in session
        self._hellos: dict[str, LatestHello] = {}  # by those whose HELLO has come in the present session
        self._gone: dict[str, tuple[int, float]] = {}  # router -> its incarnation, and when our session with it ended
        self._gone_for_good_at = -NEVER  # when the latest session ended with one that was started again since
        self._resumed_at = now  # when this process was suspended last, or has begun
        self.up: dict[str, None] = {}
        self.began: dict[str, float] = {}
        """Peer -> when we began the session: it has sent nothing in it before."""
        self.speaks: dict[str, int] = {}
        """Peer -> the version of the wire between routers in this session."""
        self.apart: Callable[[str], Collection[str]] = _nobody
        """Returns the routers in session that take an entry for something else (protocol 16.13)."""
        self.clocks: dict[str, int] = {}
        """Router -> by how many microseconds its clock was ahead of ours when it told it last (protocol 3.4.7)."""
        self.chosen = 0
        """The greatest number that another router has chosen for a term, in a JOIN that has come (protocol 1.4)."""
        self.peers: tuple[str, ...] = ()  # the same, sorted
        self.together_since = NEVER
        """Since when every router of the topology file has been in session."""
        self.keeper: str | None = None  # the other router that keeps all maps of this one (protocol 7.9.4)
        self.reconfigure(routers, settings_digest, now)

    def choose_keeper(self) -> bool:
        """A session has begun, or has ended. Says whether the keeper is another one now."""
        if self.keeper in self.up:
            return False
        former, later = self.keeper, [peer for peer in self.peers if peer > self._name]
        self.keeper = next(iter(later or self.peers), None)
        return self.keeper != former

    def reconfigure(self, routers: Iterable[str], settings_digest: int, now: float) -> None:
        """The topology file has these routers and settings now."""
        self._own_file = frozenset(routers)
        self._settings_digest = settings_digest
        self._look(now)

    def _look(self, now: float) -> None:
        """Files differ while a change is on its way: a router counts if it is in one of them (protocol 12.8)."""
        former, self._expected = self._expected, self._in_files() - {self._name}
        if not self._expected <= self.up.keys():
            self.together_since = NEVER
        elif self.together_since == NEVER or not self._expected <= former:
            self.together_since = now  # nobody has noted since when an added one has been in session

    def _in_files(self) -> frozenset[str]:
        return self._own_file.union(*(said.routers for said in self._hellos.values()))

    def session_began(self, peer: str, now: float, began: float, version: int) -> None:
        """A session with a router has begun: all of the topology file may be together now (protocol 2.5)."""
        self.up[peer] = None
        self.began[peer] = began
        self.speaks[peer] = version
        self.peers = tuple(sorted(self.up))
        self._look(now)

    def session_ended(self, peer: str, now: float) -> None:
        """The session with a router has ended: its HELLO is void, and the network is not complete (protocol 2.5,
        4.4)."""
        self.up.pop(peer, None)
        self.began.pop(peer, None)
        self.speaks.pop(peer, None)
        self.peers = tuple(sorted(self.up))
        said = self._hellos.pop(peer, None)
        if said is not None:
            self._gone[peer] = (said.life, now)
        self._look(now)

    def gone_since(self, time: float) -> bool:
        """Says whether a router was in session at that time, or since, and is not any more. What it has done since is
        not known here (protocol 2.9)."""
        return self.gone_for_good_since(time) or any(ended >= time for _, ended in self._gone.values())

    def gone_for_good_since(self, time: float) -> bool:
        """Says whether such a router has been started again: it does not know what it had done (protocol 2.9)."""
        return self._gone_for_good_at >= time

    def process_resumed(self, since: float) -> bool:
        """Our process was suspended: no session is known to have lasted meanwhile (protocol 8.4, 12). Says whether that
        is news."""
        self.together_since = max(self.together_since, since)
        before, self._resumed_at = self._resumed_at, max(self._resumed_at, since)
        return since > before

    def doubt_hellos(self) -> None:
        """What peers have said may be out of date: they count as not having said anything of routers (protocol 4.6)."""
        for said in self._hellos.values():
            said.incarnation, said.all_recovered, said.recovered = 0, False, frozenset()

    def is_all_recovered(self, peer: str) -> bool:
        """Says whether all is recovered at a peer, by its latest HELLO (protocol 4.4)."""
        return peer in self._hellos and self._hellos[peer].all_recovered

    def hello_received(self, sender: str, hello: Hello, now: float) -> bool:
        """Notes a HELLO. Says whether it is the first of its session (protocol 4.4)."""
        first = sender not in self._hellos
        self._hellos[sender] = LatestHello(hello)
        incarnation, ended = self._gone.pop(sender, (hello.incarnation, now))
        if incarnation != hello.incarnation:
            self._gone_for_good_at = max(self._gone_for_good_at, ended)
        self._look(now)
        return first

    def all_said_hello(self) -> bool:
        """Says whether the HELLO of every router of the topology file has come (protocol 4.1)."""
        return self._expected <= self._hellos.keys()

    def missing(self, present: Container[str]) -> list[str]:
        """Returns the other routers of the topology files that are not among those present (protocol 12.8)."""
        return sorted(router for router in self._expected if router not in present)

    def awaited(self, match: str) -> list[str]:
        """Returns the routers that are in session with one at which this entry is recovered, and have not said HELLO to
        us (protocol 4.4).

        A router that has gone is awaited until those that were in session with it report its end. It may have told them
        what it did not tell us; their next HELLO contains that.
        """
        lists = [said.up for said in self._who_know(match)]
        return sorted({router for up in lists for router, life in up if not self.has_said_hello(router, life)})

    def has_said_hello(self, router: str, incarnation: int) -> bool:
        """Says whether that incarnation of a router has said HELLO to us. A later one does not know what it knew
        (protocol 4.4)."""
        said = self._hellos.get(router)
        return router == self._name or (said is not None and said.incarnation == incarnation)

    def is_recovered_elsewhere(self, match: str) -> bool:
        """Says whether a router at which this entry is recovered has said HELLO to us (protocol 4.4)."""
        return any(self._who_know(match))

    def _who_know(self, match: str) -> Iterator[LatestHello]:
        apart = self.apart(match)
        for router, said in self._hellos.items():
            if said.knows(match, self._settings_digest) and router not in apart:
                yield said

    def not_known_recovered(self) -> list[str]:
        """Returns the routers in session at which not every address is known to be recovered (protocol 4.4)."""
        return [peer for peer in self.peers if not (peer in self._hellos and self._hellos[peer].all_recovered)]

    def up_list(self) -> tuple[tuple[str, int], ...]:
        """Returns what HELLO lists: the routers in session, each with its incarnation, 0 before its HELLO
        (protocol 4.2)."""
        said = self._hellos
        return tuple([(router, said[router].incarnation if router in said else 0) for router in self.peers])

    def check_invariants(self) -> None:
        assert self.peers == tuple(sorted(self.up))
        assert self._name not in self.up
        assert self.speaks.keys() == self.up.keys()
        assert self._hellos.keys() <= self.up.keys(), "the HELLO of a session that is over"
        assert not self._hellos.keys() & self._gone.keys(), "gone, and in session"
        assert (self.together_since < NEVER) == (self._expected <= self.up.keys())


def _nobody(match: str) -> Collection[str]:
    return ()
