"""MQTT clients that keep identifiers as the standard says, and their router's end of a session on the core's ports.

A client uses the lowest free identifier, again at once. When it connects again it sends PUBLISH, or PUBREL, for
what is not complete, and nothing else: it presents no map. A subscriber holds the identifier of what it has received
until PUBREL; what comes under one that it holds is a repeat. Packets are tuples, and each session has a connection of
its own: what its client has not read when it goes is lost, what its router has not read is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from router.core.keeping import KeptLink
from router.core.ports import (
    UNIQUE_TAGS,
    Outcome,
    PublisherAttach,
    SubscriberAnswer,
    SubscriberAttach,
    Term,
)
from router.core.waiting import Waiting

if TYPE_CHECKING:
    from chaos.simulation.mqtt.net import Net

TOPIC = "topic"
Mid = tuple[str, int]


class Session:
    """A router's end, with the connection. `to_router`, `to_client`: packets under way."""

    def __init__(self, net: Net, router: str, client: Client) -> None:
        self.net, self.router, self.client = net, router, client
        self.core = net.cores[router]
        self.incarnation = self.core.incarnation
        self.to_router: deque[tuple[Any, ...]] = deque()
        self.to_client: deque[tuple[Any, ...]] = deque()
        self.answered = self.over = False  # over: the core knows nothing of it any more
        self.why = ""

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.detach(condition, description, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self.over, self.why = True, condition
        self.client.lost(self)

    def answer_map_part(self) -> None:
        raise AssertionError


class PublisherSession(Session):
    """The core's CompletionPort."""

    client: Publisher

    def __init__(self, net: Net, router: str, client: Publisher) -> None:
        super().__init__(net, router, client)
        self.next_id = 0
        self.by_id: dict[int, int] = {}  # delivery-id -> packet identifier
        self.known: dict[int, list[Any]] = {}  # identifier -> delivery-id, outcome or None
        self.asked = False

    def begin(self) -> None:
        attach = PublisherAttach(self.client.name, "mqtt", TOPIC, unsettled=UNIQUE_TAGS, wants_completion=True)
        self.core.attach_publisher(self, attach, self.net.now)

    def read(self, packet: tuple[Any, ...]) -> None:
        kind, identifier = packet[0], packet[1]
        tag = identifier.to_bytes(2, "big")
        if kind == "publish":
            known = self.known.get(identifier)
            if known is not None:
                if known[1] is not None:
                    self.to_client.append(("pubrec", identifier))
                return
            self.known[identifier] = [self.next_id, None]
            self.by_id[self.next_id] = identifier
            self.next_id += 1
            payload = repr(packet[2]).encode()
            self.core.transfers(self, self.next_id - 1, [tag], [payload], False, 0, self.net.now)
        elif kind == "pubrel":
            known = self.known.get(identifier)
            if known is not None and known[1] is not None:
                self.core.publisher_settled(self, known[0], known[0], self.net.now)
            elif known is None:
                self.core.publisher_settled_tag(self, tag, self.net.now)
        elif kind == "ping":
            self.core.proved(self, self.net.now)
            if self.asked:
                self.asked = False
                self.core.question_answered(self, self.net.now)

    def end(self, closed: bool) -> None:
        self.over = True
        self.core.detach_publisher(self, closed, self.net.now)

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        self.answered = True
        self.client.connected(self)

    def ready(self) -> None: ...

    def set_window(self, messages: int, size: int, reason: str) -> None: ...

    def waiting(self, waiting: Waiting | None) -> None: ...

    def ask(self) -> None:
        self.asked = True
        if self.client.session is self:  # what it sends from now on is sent after the question
            self.to_router.append(("ping", 0))

    def outcome(self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool) -> None:
        for delivery_id in range(first_id, last_id + 1):
            identifier = self.by_id[delivery_id]
            self.known[identifier][1] = outcome
            self.to_client.append(("pubrec", identifier))

    def completed(self, first_id: int, last_id: int) -> None:
        for delivery_id in range(first_id, last_id + 1):
            identifier = self.by_id.pop(delivery_id)
            del self.known[identifier]
            self.to_client.append(("pubcomp", identifier))

    def tag_completed(self, tag: bytes) -> None:
        self.to_client.append(("pubcomp", int.from_bytes(tag, "big")))


class SubscriberSession(Session):
    """The core's KeptMapPort: it has so many identifiers, which is its receive maximum."""

    client: Subscriber

    def __init__(self, net: Net, router: str, client: Subscriber) -> None:
        super().__init__(net, router, client)
        self.used: dict[int, bytes] = {}  # identifier -> tag
        self.link = KeptLink(
            self.core,
            self,
            SubscriberAttach(client.name, "mqtt", TOPIC, timeout_s=8.0, expiry_policy="link-detach", keeps_map=True),
        )

    def begin(self) -> None:
        self.link.begin(self.net.now)

    def read(self, packet: tuple[Any, ...]) -> None:
        kind, identifier = packet
        tag = self.used.get(identifier)
        if tag is not None and kind == "pubrec":
            self.link.received(tag, Outcome.ACCEPTED, False, self.net.now)
        elif tag is not None and kind == "pubcomp":
            del self.used[identifier]
            self.link.released(tag, self.net.now)
            self.link.credit(self.net.now)

    def end(self, closed: bool) -> None:
        self.over = True
        self.link.end(closed, self.net.now)

    def capacity(self) -> int:
        return self.client.most - len(self.used) if self.answered and not self.over else 0

    def answer(self, answer: SubscriberAnswer) -> int:
        self.answered = True
        self.used = {identifier: tag for identifier, (tag, _) in answer.identifiers.items()}
        self.net.later.append(lambda: self.link.credit(self.net.now))
        self.client.answered(self, answer.resumed)
        return 0

    def identify(self, tags: list[bytes], payloads: list[bytes], message_format: int) -> list[int]:
        found: list[int] = []
        for tag in tags:
            identifier = min(i for i in range(1, self.client.most + 2) if i not in self.used)
            self.used[identifier] = tag
            found.append(identifier)
        return found

    def publish_settled(self, payloads: list[bytes], message_format: int) -> None:
        raise AssertionError("nobody sends settled messages here")

    def publish(self, tags: list[bytes], payloads: list[bytes], message_format: int, repeated: bool) -> None:
        for tag, payload in zip(tags, payloads, strict=True):
            self.to_client.append(("publish", self._identifier(tag), payload, repeated))

    def release(self, tag: bytes) -> None:
        self.to_client.append(("pubrel", self._identifier(tag)))

    def forget(self, tag: bytes) -> None:
        del self.used[self._identifier(tag)]

    def _identifier(self, tag: bytes) -> int:
        found = [identifier for identifier, each in self.used.items() if each == tag]
        assert len(found) == 1, f"{tag.hex()} has the identifiers {found}"
        return found[0]


class Client:
    """One process, which never loses its memory."""

    session: Session | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.net: Net = None  # type: ignore[assignment]  # set by the net

    def hang_up(self) -> None:
        """Its connection is gone: what it has not read is lost."""
        if self.session is not None:
            self.session.to_client.clear()
            self.session = None

    def lost(self, session: Session) -> None:
        """Its router has ended the session."""
        if self.session is session:
            self.hang_up()

    def connected(self, session: Session) -> None: ...


class Publisher(Client):
    """Sends `total` messages, `most` at a time."""

    def __init__(self, name: str, total: int = 6, most: int = 2) -> None:
        super().__init__(name)
        self.total, self.most = total, most
        self.sent = 0
        self.unfinished: dict[int, tuple[int, bool]] = {}  # identifier -> (number, whether PUBREC has come)

    def connected(self, session: Session) -> None:
        if self.session is session:
            for identifier, (number, received) in self.unfinished.items():
                packet = ("pubrel", identifier) if received else ("publish", identifier, (self.name, number))
                session.to_router.append(packet)

    def can_publish(self) -> bool:
        return (
            self.session is not None
            and self.session.answered
            and self.sent < self.total
            and len(self.unfinished) < self.most
        )

    def publish(self) -> None:
        assert self.session is not None
        identifier = min(i for i in range(1, self.most + 1) if i not in self.unfinished)
        self.sent += 1
        self.unfinished[identifier] = (self.sent, False)
        self.net.checker.sent((self.name, self.sent))
        self.session.to_router.append(("publish", identifier, (self.name, self.sent)))

    def read(self, packet: tuple[Any, ...]) -> None:
        assert self.session is not None
        kind, identifier = packet
        found = self.unfinished.get(identifier)
        if found is None:
            return
        if kind == "pubrec":
            if not found[1]:
                self.unfinished[identifier] = (found[0], True)
                self.net.checker.told_accepted((self.name, found[0]), (self.session.router, self.session.incarnation))
            self.session.to_router.append(("pubrel", identifier))
        elif found[1]:
            del self.unfinished[identifier]


class Subscriber(Client):
    def __init__(self, name: str, most: int = 2) -> None:
        super().__init__(name)
        self.most = most
        self.held: set[int] = set()
        self.subscribed = False

    def answered(self, session: Session, resumed: bool) -> None:
        assert resumed or not self.subscribed, f"{self.name}: its session is not present"
        if self.session is session and not self.subscribed:
            self.subscribed = True
            self.net.checker.confirmed(self.name)

    def lost(self, session: Session) -> None:
        super().lost(session)
        assert session.why == "amqp:link:stolen", f"{self.name}: {session.why}"

    def read(self, packet: tuple[Any, ...]) -> None:
        assert self.session is not None
        kind, identifier = packet[:2]
        if kind == "publish":
            if identifier not in self.held:
                self.held.add(identifier)
                publisher, number = eval(packet[2], {"__builtins__": {}})
                self.net.checker.handed(self.name, (publisher, number))
                self.net.checker.accepted(self.name, (publisher, number))
            self.session.to_router.append(("pubrec", identifier))
        else:
            self.held.discard(identifier)
            self.session.to_router.append(("pubcomp", identifier))
