"""Clients of every kind for `test_random`, on connections that read when the dice say so, and break."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from router.core.ports import UNIQUE_TAGS, MapState, Outcome, PublisherAttach, SubscriberAnswer, SubscriberAttach, Term
from tests.router.harness import TOPIC

if TYPE_CHECKING:
    from tests.router.test_random import World


class Link:
    """A connection: what each side has written and the other not read, and a port for the router's side."""

    def __init__(self, world: World, client: Client, router: str) -> None:
        self.world = world
        self.client: Client | None = client
        self.router: str | None = router
        self.core = world.mesh.cores[router]
        self.to_router: deque[Callable[[], None]] = deque()
        self.to_client: deque[Callable[[], None]] = deque()
        self.closing = False
        self.credit = 0

    def up(self, action: Callable[[], None]) -> None:
        if self.router is not None:
            self.to_router.append(action)

    def down(self, action: Callable[[], None]) -> None:
        if self.client is not None:
            self.to_client.append(action)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        client = self.client
        if client is not None:
            self.down(lambda: client.detached(condition, info.get("onceway:epoch", 0)))
        self.router = None

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.detach(condition, description, info, True)

    def answer_map_part(self) -> None:
        raise AssertionError("nobody sends parts here")


class PublisherLink(Link):
    client: Publisher | None

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        self.down(self.tell(lambda client: client.attached()))

    def ready(self) -> None:
        self.down(self.tell(lambda client: client.ready()))

    def waiting(self, waiting: object) -> None:
        pass

    def set_window(self, messages: int, size: int, reason: str) -> None:
        pass

    def ask(self) -> None:
        def reply(client: Publisher) -> None:
            self.up(lambda: self.core.question_answered(self, 0.0))

        self.down(self.tell(reply))

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        for delivery_id in range(first_id, last_id + 1):
            self.down(self.tell(lambda client, i=delivery_id: client.told(i, rejected)))  # type: ignore[misc]

    def tell(self, act: Callable[[Publisher], None]) -> Callable[[], None]:
        return lambda: act(self.client) if self.client is not None else None


class SubscriberLink(Link):
    client: Subscriber | None
    next_id = 0

    def capacity(self) -> int:
        return self.credit

    def answer(self, answer: SubscriberAnswer) -> int:
        self.down(self.tell(lambda client: client.attached(answer)))
        return len(answer.listing or ())

    def send(
        self,
        tags: list[bytes],
        payloads: list[bytes],
        message_format: int,
        settled: bool,
        position: int,
        cache: dict[object, object],
    ) -> int:
        first = self.next_id
        for tag, payload in zip(tags, payloads, strict=True):
            self._transfer(tag, payload, False, settled)
        return first

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        return self._transfer(tag, payload, True, settled)

    def expired(self, payloads: list[bytes], message_format: int) -> list[int]:
        return []

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        return self._transfer(tag, payload, False, False)

    def _transfer(self, tag: bytes, payload: bytes | None, resume: bool, settled: bool) -> int:
        assert self.credit > 0
        self.credit -= 1
        delivery_id = self.next_id
        self.next_id += 1
        self.down(self.tell(lambda client: client.transfer(delivery_id, tag, payload, resume, settled)))
        return delivery_id

    def settle(self, first_id: int, last_id: int) -> None:
        for delivery_id in range(first_id, last_id + 1):
            self.down(self.tell(lambda client, i=delivery_id: client.settled(i)))  # type: ignore[misc]

    def tell(self, act: Callable[[Subscriber], None]) -> Callable[[], None]:
        return lambda: act(self.client) if self.client is not None else None


class Client:
    """What publishers and subscribers have in common."""

    def __init__(self, world: World, name: str, recovering: bool) -> None:
        self.world = world
        self.name = name
        self.recovering = recovering
        self.epoch = 0
        self.link: Any = None
        self.on = False

    def detached(self, condition: str, epoch: int) -> None:
        self.epoch = max(self.epoch, epoch)
        assert condition == "amqp:link:stolen", f"{self.name}: {condition} without cause"
        self.lose()

    def lose(self) -> None:
        """Its connection is gone; the router may not know yet."""
        if self.link is not None:
            self.link.client = None
            self.link.to_client.clear()
            self.link = None
        self.on = False

    def next_epoch(self) -> int | None:
        self.epoch += 1
        return self.epoch if self.recovering else None


class Publisher(Client):
    """Recovering: brings epochs and its map.  Otherwise: unique tags, and sends again what it was not told."""

    def __init__(self, world: World, name: str, recovering: bool) -> None:
        super().__init__(world, name, recovering)
        self.sent = 0
        self.unsettled: dict[int, bool] = {}  # number -> told accepted
        self.ids: dict[int, int] = {}

    def connect(self, router: str) -> None:
        link = self.link = PublisherLink(self.world, self, router)
        epoch = self.next_epoch()
        unsettled: Any = UNIQUE_TAGS
        if self.recovering:
            told = {True: Outcome.ACCEPTED, False: None}
            unsettled = {b"%d" % n: told[done] for n, done in self.unsettled.items()} if self.epoch > 1 else None
        attach = PublisherAttach(self.name, "out", TOPIC, epoch, 1 if self.recovering else None, unsettled=unsettled)
        self.ids = {}
        link.up(lambda: link.core.attach_publisher(link, attach, 0.0))
        self.world.links.append(link)

    def attached(self) -> None:
        link = self.link
        if self.recovering:
            link.up(lambda: link.core.proved(link, 0.0))
        else:
            self.ready()

    def ready(self) -> None:
        if self.on:
            return
        self.on = True
        again = [number for number, told in self.unsettled.items() if not told]
        while again:
            n = self.world.rng.randint(1, len(again))
            self.transfer(again[:n])
            del again[:n]

    def send(self) -> None:
        first = self.sent
        self.sent = min(self.world.total, first + self.world.rng.randint(1, 4))
        numbers = list(range(first, self.sent))
        for number in numbers:
            self.unsettled[number] = False
            self.world.sent(self.name, number)
        self.transfer(numbers)

    def transfer(self, numbers: list[int]) -> None:
        link = self.link
        first = len(self.ids)
        self.ids.update(enumerate(numbers, first))
        tags = [b"%d" % number for number in numbers]
        bodies = [f"{self.name} {number}".encode() for number in numbers]
        link.up(lambda: link.core.transfers(link, first, tags, bodies, False, 0, 0.0))

    def told(self, delivery_id: int, rejected: int) -> None:
        number = self.ids[delivery_id]
        if self.unsettled.get(number) is False:
            self.world.accepted(self.name, number, rejected)
            self.unsettled[number] = True

    def settle(self) -> None:
        """Forgets first, then tells."""
        number = next(n for n, told in self.unsettled.items() if told)
        del self.unsettled[number]
        link = self.link
        found = [i for i, n in self.ids.items() if n == number]
        if found:
            last = found[0]
            while self.unsettled.get(self.ids.get(last + 1, -1)) is True:  # as a range
                last += 1
                del self.unsettled[self.ids[last]]
            link.up(lambda: link.core.publisher_settled(link, found[0], last, 0.0))
        elif self.recovering:
            link.up(lambda: link.core.publisher_settled_tag(link, b"%d" % number, 0.0))


class Subscriber(Client):
    """Recovering: brings epochs and its map.  Otherwise: null map, and drops repeats by tag."""

    def __init__(self, world: World, name: str, recovering: bool, window: int) -> None:
        super().__init__(world, name, recovering)
        self.window = window
        self.unsettled: dict[bytes, bool] = {}  # tag -> accepted
        self.ids: dict[bytes, int] = {}
        self.waiting: list[tuple[bytes, str]] = []  # handed to the application, not accepted yet
        self.seen: set[bytes] = set()
        self.born: int | None = None
        self.confirmed = False

    def connect(self, router: str) -> None:
        link = self.link = SubscriberLink(self.world, self, router)
        epoch = self.next_epoch()
        unsettled = None
        if self.recovering and self.confirmed:
            state = {True: MapState.ACCEPTED, False: MapState.UNDECIDED}
            unsettled = {tag: state[accepted] for tag, accepted in self.unsettled.items()}
        born = (epoch if not self.confirmed else self.born) if self.recovering else None
        if not self.confirmed:
            self.born = born
        attach = SubscriberAttach(self.name, "in", TOPIC, epoch, born, unsettled=unsettled, timeout_s=1e6)
        self.ids = {}
        if not self.recovering:
            self.unsettled, self.waiting = {}, []
        link.up(lambda: link.core.attach_subscriber(link, attach, 0.0))
        self.world.links.append(link)

    def attached(self, answer: SubscriberAnswer) -> None:
        self.on = True
        if self.recovering and answer.listing is not None:
            assert set(answer.listing) <= set(self.unsettled)
            self.unsettled = {tag: done for tag, done in self.unsettled.items() if tag in answer.listing}
        if not self.confirmed:
            self.confirmed = True
            self.world.confirmed(self.name)
        self.grant(self.window - len(self.waiting) + len(self.unsettled))

    def grant(self, credit: int) -> None:
        link = self.link

        def flow() -> None:
            link.credit += credit
            link.core.subscriber_credit(link, 0.0)

        if credit > 0:
            link.up(flow)

    def transfer(self, delivery_id: int, tag: bytes, payload: bytes | None, resume: bool, settled: bool) -> None:
        if resume:
            assert tag in self.unsettled, "resumed, and not in the map"
            if settled:
                del self.unsettled[tag]
                return
            self.ids[tag] = delivery_id
            if self.unsettled[tag]:
                self.dispose(tag)
            return
        self.ids[tag] = delivery_id
        assert tag not in self.unsettled, "G2: an unsettled delivery comes as new"
        self.unsettled[tag] = False
        assert payload is not None
        if not self.recovering and tag in self.seen:  # a repeat
            self.dispose(tag)
            self.grant(1)
            return
        body = payload.decode()
        self.world.presented(self.name, body, self.recovering)
        self.waiting.append((tag, body))

    def accept(self) -> None:
        """A few of those that wait; those whose ids run along in one disposition."""
        n = self.world.rng.randint(1, min(4, len(self.waiting)))
        outcome = Outcome.REJECTED if self.world.rng.random() < 0.1 and n == 1 else Outcome.ACCEPTED
        ids: list[int] = []
        for tag, body in self.waiting[:n]:
            self.seen.add(tag)
            self.world.processed(self.name, body)
            if tag in self.unsettled:
                self.unsettled[tag] = True
                if tag in self.ids:
                    ids.append(self.ids[tag])
        del self.waiting[:n]
        if ids and ids == list(range(ids[0], ids[0] + len(ids))):
            self.disposition(ids[0], ids[-1], outcome)
        else:
            for delivery_id in ids:
                self.disposition(delivery_id, delivery_id, outcome)
        if self.on:
            self.grant(n)

    def release(self) -> None:
        """Not now: the last that came is to come again."""
        tag, body = self.waiting.pop()
        if tag in self.unsettled and tag in self.ids:
            del self.unsettled[tag]
            self.world.given_back(self.name, body)
            self.disposition(self.ids[tag], self.ids[tag], Outcome.RELEASED)
            self.grant(1)
        else:
            self.waiting.append((tag, body))

    def dispose(self, tag: bytes) -> None:
        if tag in self.unsettled:
            self.unsettled[tag] = True
        self.disposition(self.ids[tag], self.ids[tag], Outcome.ACCEPTED)

    def disposition(self, first: int, last: int, outcome: Outcome) -> None:
        link = self.link
        link.up(lambda: link.core.subscriber_disposition(link, first, last, outcome, False, 0.0))

    def settled(self, delivery_id: int) -> None:
        for tag, each in self.ids.items():
            if each == delivery_id:
                self.unsettled.pop(tag, None)

    def lose(self) -> None:
        super().lose()
        self.ids = {}
        if not self.recovering:
            self.waiting = []
