"""A router's links under test: the real engine on both sides in memory, virtual time, and a core that only notes.

`NotingCore` answers as it is told and keeps every call; `Clients` drives real `amqp10.Connection`s against the
router's `ClientConnection`s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from amqp10.connection import Connection
from amqp10.events import Event, LinkAttached, LinkDetached
from amqp10.link import Link
from amqp10.performatives import RCV_SECOND
from amqp10.receiver import ReceiverLink
from amqp10.sections import Message
from amqp10.sender import SenderLink
from amqp10.session import Session
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from amqp10.types import Symbol
from router.config import Life, RouterConfig
from router.core.agenda import Agenda
from router.core.counters import CountersByAddress
from router.core.memory import Memory
from router.core.owner import Owner
from router.core.ports import PublisherAttach, SubscriberAnswer, SubscriberAttach, Term
from router.links.client_connection import ClientConnection
from router.reporting import NO_LOG
from router.router import Router

MIB = 1 << 20
BODY = Message(b"x").encode()


class NotingCore:
    """In place of `router.core.core.Core`: notes what the links say; the tests say what it answers."""

    def __init__(self, *arguments: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.publishers: Any = []
        self.subscribers: list[Any] = []
        self.addresses: dict[str, Any] = {}
        self.counters = CountersByAddress()
        self.agenda = Agenda()
        self.memory = Memory(RouterConfig("a", memory_limit=1 << 30), lambda when: None)
        self.owner = Owner("a", NO_LOG)
        self.recovery = SimpleNamespace(deferred=0)
        self.window = (1_000, 8 * MIB)
        self.credit = True
        self.on_flush: list[Callable[[], object]] = []
        self.answer_attaches = True
        self.granted_s = 0.0
        self.under_way: dict[Any, int] = {}  # by port
        self.name = "a"
        self.members = SimpleNamespace(up={"b": None, "c": None})
        self.roll_call = SimpleNamespace(draining={}, proofs_missing=False)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]

    def attach_publisher(self, port: Any, attach: PublisherAttach, now: float) -> None:
        self.calls.append(("attach_publisher", attach))
        self.publishers.append(port)
        if self.answer_attaches:
            port.answer(None, (7, "a"), credit=self.credit)
            port.set_window(*self.window, "")

    def attach_subscriber(self, port: Any, attach: SubscriberAttach, now: float) -> None:
        self.calls.append(("attach_subscriber", attach))
        self.subscribers.append(port)
        if self.answer_attaches:
            port.answer(SubscriberAnswer((7, "a"), None, False, [], self.granted_s, attach.expiry_policy))

    def detach_subscriber(self, port: Any, closed: bool, now: float, expiring: bool) -> Term | None:
        self.calls.append(("detach_subscriber", port, closed, expiring))
        return (7, "a") if port.answered else None

    def without_outcome(self, port: Any) -> int:
        return self.under_way.get(port, 0)

    undecided = without_outcome

    def flush(self, now: float) -> None:
        waiting, self.on_flush = self.on_flush, []
        for call in waiting:
            call()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def note(*arguments: Any) -> None:
            self.calls.append((name, *arguments))

        return note


class Client:
    """One client's connection: `link`s on it, and the events it has seen."""

    def __init__(self, clients: Clients, container: str, **settings: Any) -> None:
        self.clients = clients
        self.connection = Connection(
            ConnectionSettings(container_id=container, idle_timeout_s=None, **settings), server=False, now=clients.now
        )
        self.served: ClientConnection = clients.router.connect(clients.now)
        self.events: list[Event] = []
        self.connection.open()
        self.session: Session = self.connection.begin()

    def sender(self, name: str = "out", **attach: Any) -> SenderLink:
        link = self.session.sender(name)
        given: dict[str, Any] = {
            "source": Source(),
            "target": Target("orders"),
            "rcv_settle_mode": RCV_SECOND,
            **attach,
        }
        link.attach(**given)
        self.clients.exchange()
        return link

    def receiver(self, name: str = "in", credit: int = 0, **attach: Any) -> ReceiverLink:
        link = self.session.receiver(name)
        given: dict[str, Any] = {
            "source": Source("orders"),
            "target": Target(),
            "rcv_settle_mode": RCV_SECOND,
            **attach,
        }
        link.attach(**given)
        if credit:
            link.grant(credit)
        self.clients.exchange()
        return link

    def seen(self, kind: type, link: Link | None = None) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind) and (link is None or getattr(e, "link", None) is link)]

    def detached(self, link: Link) -> LinkDetached:
        (event,) = self.seen(LinkDetached, link)
        return event  # type: ignore[no-any-return]

    def answered(self, link: Link) -> Any:
        (event,) = self.seen(LinkAttached, link)
        return event.link.remote_attach

    def lose(self) -> None:
        """The transport goes, without a close."""
        self.clients.clients.remove(self)
        self.served.receive_eof(self.clients.now)
        self.clients.exchange()


class Clients:
    """A router and its clients, with the time they share."""

    def __init__(self, router: Router, now: float) -> None:
        self.router = router
        self.now = now
        self.clients: list[Client] = []

    def connect(self, container: str = "client", **settings: Any) -> Client:
        client = Client(self, container, **settings)
        self.clients.append(client)
        self.exchange()
        return client

    def exchange(self) -> None:
        """Bytes both ways until nobody has any."""
        for _ in range(50):
            moved = False
            for client in self.clients:
                data = client.connection.data_to_send()
                if data:
                    moved = True
                    client.served.receive_data(data, self.now)
            self.router.flush(self.now)
            self.router.take_dirty()
            for client in self.clients:
                data = client.served.data_to_send()
                if data:
                    moved = True
                    client.events += client.connection.receive_data(data, self.now)
            if not moved and not self.router.wants_flush:
                return
        raise AssertionError("the two sides never come to rest")

    def to_router(self, client: Client) -> None:
        """What the client has to say, and nothing back yet."""
        data = client.connection.data_to_send()
        if data:
            client.served.receive_data(data, self.now)

    def sleep(self, seconds: float) -> None:
        """Time passes as for a process that is not stalled: in small steps."""
        end = self.now + seconds
        while self.now < end:
            deadline = self.router.next_deadline()
            self.now = end if deadline is None else min(end, max(deadline, self.now + 0.01))
            self.router.tick(self.now)

    def stall(self, seconds: float) -> None:
        """Time passes, and the router has no turn."""
        self.now += seconds


def symbols(**properties: Any) -> dict[Symbol, Any]:
    """onceway_epoch=1 -> {onceway:epoch: 1}"""
    return {Symbol(key.replace("onceway_", "onceway:").replace("_", "-")): value for key, value in properties.items()}


def make(
    config: RouterConfig,
    core: type[Any] | None = None,
    now: float = 1_000.0,
    token: Callable[[], str] | None = None,
    fresh: bool = True,
) -> Clients:
    router = Router(config, Life(1, now, fresh), wall_us=lambda: 1_000_000, token=token)
    return Clients(router, now)


def payloads(events: Sequence[Any]) -> list[bytes]:
    return [payload for event in events for payload in event.payloads]


def send(client: Client, link: SenderLink, count: int = 1, first: int = 1, settled: bool = False) -> int:
    """Transfers of a publisher, seen by the router; returns the first delivery-id."""
    tags = [b"%d" % n for n in range(first, first + count)]
    first_id = link.send(tags, [BODY] * count, settled=settled)
    client.clients.exchange()
    return first_id


def attached(clients: Clients, core: Any, credit: int = 100, **attach: Any) -> tuple[Client, Any, Any]:
    """A subscription: its client, its link and its port in the core."""
    client = clients.connect()
    link = client.receiver(credit=credit, **attach)
    return client, link, core.subscribers[-1]


def deliver(port: Any, count: int, position: int = 0, settled: bool = False) -> int:
    """Transfers of the core to a subscription; returns the first delivery-id."""
    tags = [b"t%d" % n for n in range(position, position + count)]
    first_id: int = port.send(tags, [BODY] * count, 0, settled, position, {})
    return first_id
