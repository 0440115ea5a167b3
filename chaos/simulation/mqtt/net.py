"""Protocol cores of several routers in one process, and MQTT clients: what can happen next, and what then happens.

Between routers messages are bytes, in order; a session ends at both ends at once. (The families of
`chaos.simulation.random` have all else that may happen to routers and networks; what is new here is the clients.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from chaos.simulation.mqtt.clients import (
    TOPIC,
    Client,
    Publisher,
    PublisherSession,
    Session,
    Subscriber,
    SubscriberSession,
)
from chaos.simulation.world.checker import Checker, Violation
from router.config import AddressConfig, RouterConfig
from router.core.core import Core
from router.core.keeping import KeptLink
from router.core.messages import Message
from router.peers.wire import decode, encode

ADDRESS = AddressConfig(subscription_timeout_s=8.0, publisher_timeout_s=20.0)
Event = tuple[Any, ...]


class Net:
    def __init__(self, names: str, publishers: list[Publisher], subscribers: list[Subscriber]) -> None:
        self.names = names
        self.publishers, self.subscribers = publishers, subscribers
        self.clients: dict[str, Client] = {c.name: c for c in [*publishers, *subscribers]}
        self.checker = Checker(strict=True)
        self.checker.without_memory |= {s.name for s in subscribers}
        self.now = 100.0
        self.incarnations = 0
        self.cores: dict[str, Core] = {}
        self.wires: dict[tuple[str, str], deque[bytes]] = {}
        self.sessions: list[Session] = []
        self.later: deque[Callable[[], object]] = deque()
        self.history: list[Event] = []
        for client in self.clients.values():
            client.net = self
        for name in names:
            self._start(name, fresh=True)
        for place, a in enumerate(names):
            for b in names[place + 1 :]:
                self._join(a, b)

    def _start(self, name: str, *, fresh: bool) -> None:
        self.incarnations += 1

        def send(peers: tuple[str, ...], message: Message) -> None:
            data = encode(message)
            for peer in peers:
                self.wires[name, peer].append(data)

        config = RouterConfig(name, tuple(self.names), defaults=ADDRESS)
        self.cores[name] = Core(
            config, name, self.incarnations, send, self.now, lambda: int(self.now * 1_000_000), fresh
        )

    def _join(self, a: str, b: str) -> None:
        self.wires[a, b], self.wires[b, a] = deque(), deque()
        self.cores[a].peer_up(b, self.now)
        self.cores[b].peer_up(a, self.now)

    def _part(self, a: str, b: str) -> None:
        for x, y in ((a, b), (b, a)):
            del self.wires[x, y]
            if x in self.cores:
                self.cores[x].peer_down(y, self.now)

    # ------------------------------------------------------------------------------------------------ what can happen

    def enabled(self) -> list[Event]:
        """What happens by itself, and what clients do next."""
        events: list[Event] = [("msg", a, b) for (a, b), wire in self.wires.items() if wire]
        for place, session in enumerate(self.sessions):
            alive = self.cores.get(session.router) is session.core
            if session.to_router and alive and not session.over:
                events.append(("read", place))
            if session.to_client and session.client.session is session:
                events.append(("client", place))
            if alive and not session.over and session.client.session is not session and not session.to_router:
                events.append(("notice", place))
        for client in self.clients.values():
            if client.session is None:
                events += [("connect", client.name, router) for router in self.cores]
            elif self.cores.get(client.session.router) is not client.session.core and not client.session.to_client:
                events.append(("drop", client.name))
        events += [("publish", p.name) for p in self.publishers if p.can_publish()]
        return events

    def happen(self, event: Event) -> None:
        self.now += 0.0001
        self.history.append(event)
        getattr(self, "do_" + event[0])(*event[1:])
        while self.later:
            self.later.popleft()()
        for core in list(self.cores.values()):
            core.flush(self.now)
            core.tick(self.now)
            core.flush(self.now)
            try:
                core.check_invariants()
            except AssertionError as error:
                raise Violation(f"I {core.name}: {error}") from error

    def do_msg(self, a: str, b: str) -> None:
        self.cores[b].peer_message(a, decode(self.wires[a, b].popleft()), self.now)

    def do_read(self, place: int) -> None:
        session = self.sessions[place]
        session.read(session.to_router.popleft())  # type: ignore[attr-defined]

    def do_client(self, place: int) -> None:
        session = self.sessions[place]
        session.client.read(session.to_client.popleft())  # type: ignore[attr-defined]

    def do_notice(self, place: int) -> None:
        """The router learns that the client has gone, when it has read all that the client had written."""
        self.sessions[place].end(False)  # type: ignore[attr-defined]

    def do_connect(self, name: str, router: str) -> None:
        client = self.clients[name]
        kind: Any = PublisherSession if isinstance(client, Publisher) else SubscriberSession
        session = kind(self, router, client)
        client.session = session
        self.sessions.append(session)
        session.begin()

    def do_drop(self, name: str) -> None:
        """The client loses its connection."""
        self.clients[name].hang_up()

    def do_publish(self, name: str) -> None:
        publisher = self.clients[name]
        assert isinstance(publisher, Publisher)
        publisher.publish()

    def do_crash(self, name: str) -> None:
        del self.cores[name]
        self.checker.died((name, 0))
        for other in self.names:
            if other != name and (name, other) in self.wires:
                self._part(name, other)

    def do_restart(self, name: str) -> None:
        self._start(name, fresh=False)
        for other in self.cores:
            if other != name:
                self._join(name, other)

    def do_part(self, a: str, b: str) -> None:
        """The session between two routers ends, and the next begins."""
        self._part(a, b)
        self._join(a, b)

    def do_wait(self, seconds: float) -> None:
        self.now += seconds

    # ------------------------------------------------------------------------------------------------------ at the end

    def recovered(self) -> bool:
        """Says whether another router may die: all are there and know each subscription, and each map is kept at two of
        them."""
        links = [link for core in self.cores.values() for a in core.addresses.values() for link in a.kept.links]
        return (
            len(self.cores) == len(self.names)
            and all(core.established for core in self.cores.values())
            and all(client.session is not None and client.session.answered for client in self.clients.values())
            and not any((link.whole and link.kept.items) or link.acknowledged < link.kept.number for link in links)
            and all(self._knows(core, link) for core in self.cores.values() for link in links)
        )

    def _knows(self, core: Core, link: KeptLink) -> bool:
        address = core.addresses.get(TOPIC)
        entry = address.subscriptions.entries.get(link.name) if address is not None else None
        return entry is not None and entry.home == link.core.name

    def left_over(self) -> list[str]:
        left = [f"{p.name} {p.unfinished}, sent {p.sent} of {p.total}" for p in self.publishers if p.unfinished]
        left += [f"{p.name} sent {p.sent} of {p.total}" for p in self.publishers if p.sent < p.total]
        left += [f"{s.name} holds {s.held}" for s in self.subscribers if s.held]
        for name, core in self.cores.items():
            left += [f"{name}: {core.payload_bytes} bytes"] if core.payload_bytes else []
            for address in core.addresses.values():
                left += [f"{name}: {link.name} {link.kept.items}" for link in address.kept.links if link.kept.items]
                left += [f"{name}: a settlement is not complete"] if address.completion else []
                left += [f"{name}: FINISH is not answered"] if address.finishing else []
        return left
