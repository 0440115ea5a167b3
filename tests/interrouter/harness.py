"""Several `Network`s in one process, joined by in-memory transports, in virtual time that only `run` moves.

    net = Net("abc", ["ab", "bc"], seed=7)
    net.run_until(net.converged)
    net.send("a", "bc", b"hello")
    net.run(1.0)
    net["c"].received["a"]        # [b"hello"]

Links can be slow, cut (with what is under way lost from a random byte on), silenced in one direction, and are dialled
again after `redial_s`; routers can be killed and restarted. With `amqp=False` trunks are `PlainTrunk`s, the same without
an AMQP connection: faster, and what they carry can be counted.

`loss` of the packets that pass through a plain trunk go missing, or come late or twice. With `replies` a router answers
some messages while it works through the list of events.

Every router judges what it gets: each message of `chatter` names its sender's session and its place in it, so that a
loss, a repetition, a message of another session, or an up without a down before it fails at once (`Broken`).
"""

from __future__ import annotations

import heapq
import random
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from interrouter.network import Hello, Network, PeerDown, PeerMessage, PeerUp, Timers
from interrouter.stream import whole
from interrouter.trunk import Trunk
from router.versions import SPOKEN, Versions
from tests.builds import COMPILED, STAND_INS
from tests.interrouter.transports import Broken, Connection, Link, LinkName, PlainTrunk

CHATTER = struct.Struct(">4sQIII")  # magic, sender's incarnation, its session with the receiver, place in it, size
MAGIC = b"chat"


@dataclass(slots=True)
class Talk:
    """One session as its owner has seen it."""

    number: int  # at this router, with this peer
    sent: int = 0
    theirs: tuple[int, int] | None = None  # the peer's incarnation and its number of the session
    got: int = 0


@dataclass(slots=True)
class Site:
    """One router process."""

    name: str
    network: Network
    up: dict[str, Talk] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)
    received: dict[str, list[bytes]] = field(default_factory=dict)
    log: list[tuple[float, str, str]] = field(default_factory=list)
    """(when, "up" | "down" | "down reachable", peer)."""
    pairs: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """(peer, its incarnation, its session) -> our session it was read in."""
    downs: list[PeerDown] = field(default_factory=list)


class Net:
    def __init__(
        self,
        names: Iterable[str],
        links: Iterable[str | tuple[str, str, int]],
        *,
        seed: int = 1,
        amqp: bool = True,
        redial_s: float = 0.1,
        window: int | None = None,
        check: bool = True,
        loss: float = 0.0,
        replies: bool = False,
        versions: Mapping[str, Versions] | None = None,
    ) -> None:
        """versions: of the routers that do not speak what this program does."""
        self.now = 1000.0
        self.rng = random.Random(seed)
        self.amqp = amqp
        self.redial_s = redial_s
        self.window = window
        self.check = check
        self.loss = loss
        self.replies = replies
        self.versions = versions or {}
        self.silenced: set[tuple[str, str]] = set()
        self.links: dict[LinkName, Link] = {}
        for one, other, *cost in links:
            link = Link((one, other), int(cost[0]) if cost else 1)
            self.links[link.ends] = link
        self.sites: dict[str, Site] = {}
        self.names = list(names)
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._woken: dict[str, float] = {}
        self._connections: dict[Trunk, tuple[Connection, int]] = {}
        for name in self.names:
            self.start(name)
        for link in self.links.values():
            self._dial(link)

    def __getitem__(self, name: str) -> Site:
        return self.sites[name]

    def link(self, one: str, other: str) -> Link:
        return self.links[min(one, other), max(one, other)]

    def trunk(self, at: str, to: str) -> Trunk:
        """The end at this router of its link with that one."""
        connection = self.link(at, to).connection
        return connection.ends[connection.names.index(at)]

    # Routers and links -------------------------------------------------------------------------------------------

    def start(self, name: str) -> Site:
        costs = {}
        for (one, other), link in self.links.items():
            if name in (one, other):
                costs[other if name == one else one] = link.cost
        options = {} if self.window is None else {"window": self.window}
        network = Network(
            Hello("test", name, self.rng.getrandbits(63) + 1, self.versions.get(name, SPOKEN)),
            costs,
            rng=random.Random(self.rng.random()),
            now=self.now,
            timers=Timers(**options),
        )
        self.sites[name] = Site(name, network)
        self._wake(name)
        return self.sites[name]

    def kill(self, name: str, notice: float = 0.0) -> None:
        """The process is gone. Neighbours see their sockets close, after so long."""
        del self.sites[name]
        for link in self.links.values():
            if name in link.ends and link.connection is not None and any(link.connection.open):
                link.connection.open[link.connection.names.index(name)] = False
                link.connection.cut((notice, notice))

    def cut(self, one: str, other: str, *, for_good: bool = True, notice: tuple[float, float] = (0.0, 0.0)) -> None:
        link = self.link(one, other)
        if for_good:
            link.enabled = False
        if link.connection is not None:
            link.connection.cut(notice)

    def mend(self, one: str, other: str) -> None:
        self.link(one, other).enabled = True

    def alive(self, trunk: Trunk) -> bool:
        site = self.sites.get(trunk.network.hello.name)
        return site is not None and site.network is trunk.network

    def connect(self, one: str, other: str, *, link: Link | None = None) -> Connection:
        """Dial, whoever should."""
        ends: list[Trunk] = []
        for name, neighbour in ((one, other), (other, None)):
            network = self[name].network
            if self.amqp:
                ends.append(network.connect(self.now, neighbour=neighbour))
            elif COMPILED:
                pytest.skip(STAND_INS)
            else:
                plain = PlainTrunk(network, dialled=neighbour, now=self.now)
                plain.net = self
                ends.append(plain)
        connection = Connection(self, link or self.link(one, other), (ends[0], ends[1]), (one, other))
        self._connections[ends[0]] = (connection, 0)
        self._connections[ends[1]] = (connection, 1)
        self.attend(one)
        self.attend(other)
        return connection

    def _dial(self, link: Link) -> None:
        if link.enabled and link.over and all(name in self.sites for name in link.ends):
            link.connection = self.connect(*link.ends, link=link)
        self.at(self.now + self.redial_s, lambda: self._dial(link))

    # Time --------------------------------------------------------------------------------------------------------

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, action))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            when, _, action = heapq.heappop(self._heap)
            self.now = max(self.now, when)
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit: float = 30.0) -> float:
        """How long it took; AssertionError after `limit` seconds of virtual time."""
        start = self.now
        while not condition():
            assert self.now - start < limit, f"not within {limit} s: {condition}; {self.describe()}"
            self.run(0.01)
        return self.now - start

    def attend(self, name: str) -> None:
        """What an owner does after each input: flush, write, handle events, and again while there are any."""
        site = self.sites.get(name)
        if site is None:
            return
        network = site.network
        while True:
            network.flush(self.now)
            for trunk in network.work.take_dirty():
                found = self._connections.get(trunk)
                if found is not None:
                    found[0].pump(found[1])
                deadline = trunk.next_deadline()
                if deadline is not None:
                    self.at(deadline, lambda trunk=trunk: self._trunk_timer(name, trunk))
                if trunk.closed and found is not None:
                    del self._connections[trunk]
            events = network.take_events()
            if not events and not network.more:
                break
            for event in events:
                self._handle(site, event)
        network.check_invariants()
        for other in self.sites.values():
            network.sessions.check_against(other.network.sessions)
        self._wake(name)

    def _wake(self, name: str) -> None:
        deadline = self.sites[name].network.next_deadline()
        if self._woken.get(name) != deadline:
            self._woken[name] = deadline
            self.at(deadline, lambda: self._tick(name, deadline))

    def _tick(self, name: str, deadline: float) -> None:
        if name in self.sites and self._woken.get(name) == deadline:
            self._woken.pop(name)
            self.sites[name].network.tick(self.now)
            self.attend(name)

    def _trunk_timer(self, name: str, trunk: Trunk) -> None:
        deadline = trunk.next_deadline()
        if self.alive(trunk) and deadline is not None and deadline <= self.now:
            trunk.handle_timer(self.now)
            self.attend(name)

    # Messages ----------------------------------------------------------------------------------------------------

    def send(self, source: str, peers: Iterable[str], message: bytes) -> None:
        self[source].network.send(tuple(peers), message)
        self.attend(source)

    def chatter(self, source: str, peer: str, size: int = 0) -> bool:
        """A message that its receiver can judge; False if the session is not up."""
        site = self[source]
        talk = site.up.get(peer)
        if talk is None:
            return False
        head = CHATTER.pack(MAGIC, site.network.hello.incarnation, talk.number, talk.sent, size)
        talk.sent += 1
        site.network.send((peer,), head + bytes(size))
        return True

    def _handle(self, site: Site, event: PeerUp | PeerDown | PeerMessage) -> None:
        peer = event.peer
        if isinstance(event, PeerUp):
            if peer in site.up:
                raise Broken(f"{site.name}: {peer} is up twice")
            site.count[peer] = site.count.get(peer, 0) + 1
            site.up[peer] = Talk(site.count[peer])
            site.log.append((self.now, "up", peer))
        elif isinstance(event, PeerDown):
            if peer not in site.up:
                raise Broken(f"{site.name}: {peer} is down and was not up")
            del site.up[peer]
            site.log.append((self.now, "down reachable" if event.reachable else "down", peer))
        else:
            if peer not in site.up:
                raise Broken(f"{site.name}: a message of {peer}, which is not up")
            data = whole(event.data)
            if data[:4] == MAGIC and self.check:
                self._judge(site, peer, data)
            else:
                site.received.setdefault(peer, []).append(data)

    def _judge(self, site: Site, peer: str, data: bytes) -> None:
        _, incarnation, number, place, size = CHATTER.unpack_from(data)
        talk = site.up[peer]
        theirs = (incarnation, number)
        if talk.theirs is None:
            talk.theirs = theirs
            before = site.pairs.setdefault((peer, *theirs), talk.number)
            if before != talk.number:
                raise Broken(f"{site.name}: session {theirs} of {peer} read in sessions {before} and {talk.number}")
        if talk.theirs != theirs:
            raise Broken(f"{site.name}: {peer} speaks in sessions {talk.theirs} and {theirs} within one of ours")
        if place != talk.got:
            raise Broken(f"{site.name}: message {place} of {peer}, not {talk.got}")
        if len(data) != CHATTER.size + size or any(data[CHATTER.size :]):
            raise Broken(f"{site.name}: message {place} of {peer} came as {len(data)} bytes, not {size}")
        talk.got += 1
        if self.replies and talk.got % 5 == 0 and size:
            self.chatter(site.name, peer)

    # Judgement ---------------------------------------------------------------------------------------------------

    def converged(self) -> bool:
        """Every router that can be reached over the links that are up has a session, both ways."""
        for name in self.sites:
            reach = self._reach(name)
            if set(self[name].up) != reach - {name}:
                return False
            for peer in reach - {name}:
                ours = self[name].network.sessions.by_peer[peer]
                theirs = self[peer].network.sessions.by_peer.get(name)
                if theirs is None or ours.token != theirs.token:
                    return False
        return True

    def delivered(self) -> bool:
        """Everything that was said in sessions that stand has been heard."""
        return all(
            self[peer].up[name].got == talk.sent
            for name, site in self.sites.items()
            for peer, talk in site.up.items()
            if peer in self.sites and name in self[peer].up
        )

    def check_pairs(self) -> None:
        """What A reads in its session n as B's session m is what B reads as A's session n in its session m."""
        for name, site in self.sites.items():
            for (peer, incarnation, theirs), ours in site.pairs.items():
                other = self.sites.get(peer)
                if other is None or other.network.hello.incarnation != incarnation:
                    continue
                back = other.pairs.get((name, site.network.hello.incarnation, ours))
                if back is not None and back != theirs:
                    raise Broken(f"{name}'s session {ours} is {peer}'s {theirs}, but {peer} read it in its {back}")

    def _reach(self, name: str) -> set[str]:
        found, todo = {name}, [name]
        while todo:
            here = todo.pop()
            for ends, link in self.links.items():
                if here in ends and link.enabled:
                    there = ends[1] if here == ends[0] else ends[0]
                    if there in self.sites and there not in found:
                        found.add(there)
                        todo.append(there)
        return found

    def describe(self) -> str:
        lines = []
        for name, site in self.sites.items():
            trunks = [n for n, neighbour in site.network.status()["neighbours"].items() if neighbour["up"]]
            lines.append(f"{name}: up {sorted(site.up)}, trunks {trunks}")
        return "; ".join(lines)
