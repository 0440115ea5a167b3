"""Several routers in one process, and MQTT clients: what can happen next, and what then happens.

Between routers messages are bytes, in order; a session ends at both ends at once. (The families of
`chaos.simulation.random` have all else that may happen to routers and networks; what is new here is the clients.)
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from amqp10.sasl import Success
from chaos.simulation.defects.taking import Patch, always
from chaos.simulation.mqtt.amqp import AmqpPublisher
from chaos.simulation.mqtt.clients import (
    EXPIRY_S,
    GROUP,
    QUEUE,
    TOPIC,
    Client,
    Connection,
    Member,
    Publisher,
    Subscriber,
)
from chaos.simulation.world.checker import Checker, Violation
from chaos.simulation.world.queue_checker import QueueChecker
from router.config import SHARED, AddressConfig, Life, RouterConfig
from router.core.core import Core
from router.core.keeping import KeptLink
from router.mqtt.base import SESSIONS
from router.mqtt.lease import NAME
from router.mqtt.outgoing import UPPER, Identifiers
from router.peers.wire import Encoded
from router.router import Router

ADDRESS = AddressConfig("*", subscription_timeout_s=float(EXPIRY_S), publisher_timeout_s=20.0)
LEASES = AddressConfig(SESSIONS, subscription_timeout_s=float(EXPIRY_S), no_subscribers="release")
SHARES = replace(ADDRESS, match=f"{SHARED}*", type="queue", no_subscribers="accept")
Event = tuple[Any, ...]
CLASHING: list[Patch] = [(Identifiers, "preferred", always(UPPER))]
"""All deliveries prefer one identifier, as some do live. Otherwise the hash would hide that a map was lost."""


class Net:
    """`checker` observes the topic's subscribers, `group` the members of its shared subscription; without members there
    is none."""

    def __init__(
        self,
        names: str,
        publishers: list[Publisher],
        subscribers: list[Subscriber],
        members: list[Member] | None = None,
        *,
        named: bool = True,
        amqp: list[AmqpPublisher] | None = None,
    ) -> None:
        """named: the file names the queue of the shared subscription. Otherwise it is there while it has a member, and
        publishers wait for the first one."""
        self.named = named
        self.address = replace(ADDRESS, match=TOPIC)  # what the file says of it, for routers that start
        self.topic = TOPIC
        self.amqp = {each.name: each for each in amqp or ()}
        self.names = names
        self.publishers, self.subscribers, self.members = publishers, subscribers, members or []
        self.clients: dict[str, Client] = {c.name: c for c in [*publishers, *subscribers, *self.members]}
        self.group = QueueChecker(strict=True, consumers=2)  # without order: what goes back is overtaken
        self.checker = Checker(strict=True)
        self.checker.without_memory |= {s.name for s in subscribers}
        self.now = 100_000.0
        self.ahead_s: dict[str, float] = {}  # clocks of routers
        self.incarnations = 0
        self.routers: dict[str, Router] = {}
        self.wires: dict[tuple[str, str], deque[Encoded]] = {}
        self.connections: list[Connection] = []
        self.history: list[Event] = []
        for client in self.clients.values():
            client.net = self
        for each in self.amqp.values():
            each.net = self
        for name in names:
            self._start(name, fresh=True)
        for place, a in enumerate(names):
            for b in names[place + 1 :]:
                self._join(a, b)

    @property
    def cores(self) -> dict[str, Core]:
        return {name: router.core for name, router in self.routers.items()}

    def _start(self, name: str, *, fresh: bool) -> None:
        self.incarnations += 1
        shared = ((GROUP, QUEUE),) if self.members and self.named else ()
        addresses = (LEASES, SHARES, replace(ADDRESS, match=QUEUE, type="queue"), self.address, ADDRESS)
        config = RouterConfig(name, tuple(self.names), addresses, mqtt_topics=(("#", TOPIC),), mqtt_shared=shared)
        self.routers[name] = Router(
            config,
            Life(self.incarnations, self.now, fresh),
            wall_us=lambda: int((self.now + self.ahead_s.get(name, 0.0)) * 1_000_000),
        )

    def _settle(self, name: str, router: Router) -> None:
        """Writes what the router has to say, until it has done everything."""
        again = True
        while again:
            router.tick(self.now)
            again = router.flush(self.now)
            for peers, data in router.take_messages():
                for peer in peers:
                    if (name, peer) in self.wires:
                        self.wires[name, peer].append(data)
            for end in router.take_dirty():
                for connection in self.connections:
                    if connection.end is end:
                        connection.to_client += connection.reader.receive_data(end.data_to_send())
                again = True

    def _join(self, a: str, b: str) -> None:
        self.wires[a, b], self.wires[b, a] = deque(), deque()
        self.routers[a].peer_up(b, self.now)
        self.routers[b].peer_up(a, self.now)

    def _part(self, a: str, b: str) -> None:
        for x, y in ((a, b), (b, a)):
            del self.wires[x, y]
            if x in self.routers:
                self.routers[x].peer_down(y, self.now)

    def may_publish(self) -> bool:
        """Says whether whoever is to get it is there: a shared subscription that no file names begins with a member."""
        return self.named or not self.members or self.members[0].subscribed

    def sent(self, mid: tuple[str, int]) -> None:
        self.checker.sent(mid)
        self.group.sent(mid)

    # ------------------------------------------------------------------------------------------------ what can happen

    def enabled(self) -> list[Event]:
        """What happens by itself, and what clients do next."""
        events: list[Event] = [("msg", a, b) for (a, b), wire in self.wires.items() if wire]
        for place, connection in enumerate(self.connections):
            here = connection.client.connection is connection
            alive = self._is_alive(connection) and not connection.end.closed
            if connection.to_router and alive:
                events.append(("read", place))
            if connection.to_client and here:
                events.append(("client", place))
            if alive and not here and not connection.to_router and not connection.noticed:
                events.append(("notice", place))
        for client in self.clients.values():
            connection_of = client.connection
            if connection_of is None:
                events += [("connect", client.name, router) for router in self.routers]
            elif not connection_of.to_client and (
                not self._is_alive(connection_of) or (connection_of.end.closed and not connection_of.to_client)
            ):
                events.append(("drop", client.name))
        events += [("publish", p.name) for p in self.publishers if p.can_publish()]
        for each in self.amqp.values():
            for what in each.can():
                events += [("amqp", each.name, what, router) for router in (self.routers if what == "attach" else "-")]
        return events

    def _is_alive(self, connection: Connection) -> bool:
        return self.routers.get(connection.name) is connection.router

    def happen(self, event: Event) -> None:
        self.now += 0.0001
        self.history.append(event)
        getattr(self, "do_" + event[0])(*event[1:])
        for name, router in list(self.routers.items()):
            self._settle(name, router)
            try:
                router.core.check_invariants()
            except AssertionError as error:
                raise Violation(f"I {name}: {error}") from error

    def do_msg(self, a: str, b: str) -> None:
        self.routers[b].peer_message(a, self.wires[a, b].popleft(), self.now)

    def do_read(self, place: int) -> None:
        connection = self.connections[place]
        connection.end.receive_data(connection.to_router.popleft(), self.now)

    def do_client(self, place: int) -> None:
        connection = self.connections[place]
        connection.client.read(connection.to_client.popleft())

    def do_notice(self, place: int) -> None:
        """The router learns that the client has gone, when it has read all that the client had written."""
        self.connections[place].noticed = True
        self.connections[place].end.receive_eof(self.now)

    def do_connect(self, name: str, router: str) -> None:
        client, there = self.clients[name], self.routers[router]
        end = there.connect_mqtt(
            self.now, f"{name}:{len(self.connections)}", secure=False, authenticate=lambda *_: Success("anonymous")
        )
        connection = Connection(router, there, end, client)
        self.connections.append(connection)
        client.connect(connection)

    def do_drop(self, name: str) -> None:
        """The client loses its connection."""
        self.clients[name].hang_up()

    def do_publish(self, name: str) -> None:
        publisher = self.clients[name]
        assert isinstance(publisher, Publisher)
        publisher.publish()

    def do_amqp(self, name: str, what: str, router: str) -> None:
        self.amqp[name].do(what, router)

    def do_leave(self, name: str) -> None:
        member = self.clients[name]
        assert isinstance(member, Member)
        assert member.connection is not None
        member.left.add(member.connection.name)
        member.leave()

    def do_crash(self, name: str) -> None:
        del self.routers[name]
        self.checker.died((name, 0))
        for member in self.members:
            if name in member.left:
                self.group.went(member.name)
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

    def do_separate(self, a: str, b: str) -> None:
        """Two routers lose each other."""
        self._part(a, b)

    def do_join(self, a: str, b: str) -> None:
        """They have each other again."""
        self._join(a, b)

    def do_wait(self, seconds: float) -> None:
        self.now += seconds

    # ------------------------------------------------------------------------------------------------------ at the end

    def recovered(self) -> bool:
        """Says whether another router may die: all are there and know each subscription, and each map is kept at two of
        them."""
        links = [link for core in self.cores.values() for a in core.addresses.values() for link in a.egress.kept.links]
        return (
            len(self.cores) == len(self.names)
            and all(core.recovery.established for core in self.cores.values())
            and all(client.ready and self._is_leased(client) for client in self.clients.values())
            and not any((link.whole and link.kept.items) or link.acknowledged < link.kept.number for link in links)
            and all(self._knows(core, link) for core in self.cores.values() for link in links)
        )

    def _is_leased(self, client: Client) -> bool:
        """Says whether all routers know where the client's session is."""
        return all(
            (entry := core.address(SESSIONS).subscriptions.entries.get((client.name, NAME))) is not None
            and client.connection is not None
            and entry.home == client.connection.name
            for core in self.cores.values()
        )

    def _knows(self, core: Core, link: KeptLink) -> bool:
        address = core.addresses.get(link.attach.address)
        entry = address.subscriptions.entries.get(link.name) if address is not None else None
        return entry is not None and entry.home == link.core.name

    def left_over(self) -> list[str]:
        left = [f"{p.name} {p.unfinished}, sent {p.sent} of {p.total}" for p in self.publishers if p.unfinished]
        left += [f"{p.name} sent {p.sent} of {p.total}" for p in self.publishers if p.sent < p.total]
        left += [f"{a.name} {a.unsettled}, sent {a.sent}" for a in self.amqp.values() if a.is_unfinished]
        left += [f"{s.name} holds {s.held}" for s in [*self.subscribers, *self.members] if s.held]
        for name, core in self.cores.items():
            left += [f"{name}: {core.memory.payload_bytes} bytes"] if core.memory.payload_bytes else []
            for address in core.addresses.values():
                links = address.egress.kept.links
                left += [f"{name}: {link.name} {link.kept.items}" for link in links if link.kept.items]
                left += [f"{name}: a settlement is not complete"] if address.ingress.streams.completion else []
                left += [f"{name}: FINISH is not answered"] if address.ingress.streams.completion.finishing else []
        return left
