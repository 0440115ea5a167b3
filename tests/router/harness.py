"""A mesh of protocol cores in memory, with ports that note what they are told: virtual time, no engine, no network.

`Mesh.run()` lets everything happen that is not held: messages between routers in FIFO order per pair, flushes, and what
the ends (`PublisherEnd`, `SubscriberEnd`) do by themselves: prove, answer questions, accept.  A pair (a, b) in `held`
keeps back what a sends to b.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from router.config import AddressConfig, RouterConfig
from router.core import Core
from router.ports import (
    MapState,
    Outcome,
    PublisherAttach,
    SubscriberAnswer,
    SubscriberAttach,
    Term,
)
from router.wire import decode

TOPIC = "topic"
START_US = 1_000_000


class End:
    """What both kinds of port have in common: a router, and how it ended."""

    def __init__(self, mesh: Mesh, router: str, container: str) -> None:
        self.mesh = mesh
        self.router = router
        self.core = mesh.cores[router]
        self.container = container
        self.answered = False
        self.ended: tuple[str, Mapping[str, int], bool] | None = None  # condition, info, closed
        self.refused = False
        self.parts = 0

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        assert not self.answered
        self.refused = True
        self.ended = (condition, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        assert self.answered
        self.ended = (condition, info, closed)

    def part(self) -> None:
        self.parts += 1

    @property
    def condition(self) -> str | None:
        return self.ended[0] if self.ended else None


class PublisherEnd(End):
    """A publisher's port, and the publisher behind it."""

    def __init__(self, mesh: Mesh, router: str, container: str) -> None:
        super().__init__(mesh, router, container)
        self.incarnation: int | None = None
        self.term: Term | None = None
        self.credit_withheld = False
        self.is_ready = False
        self.window = (0, 0, "")
        self.proves = True
        self.answers = True
        self.questions = 0
        self.outcomes: dict[int, tuple[Outcome, int, bool]] = {}
        self.told: list[int] = []
        self.next_id = 0

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        self.answered = True
        self.incarnation = incarnation
        self.term = term
        self.credit_withheld = not credit
        if self.proves:
            self.mesh.later(lambda: self.core.proved(self, self.mesh.now))

    def ready(self) -> None:
        self.is_ready = True

    def set_window(self, messages: int, size: int, reason: str) -> None:
        self.window = (messages, size, reason)

    def ask(self) -> None:
        self.questions += 1
        if self.answers:
            self.mesh.later(self.answer_question)

    def answer_question(self) -> None:
        self.core.answered(self, self.mesh.now)

    def outcome(self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool) -> None:
        assert self.ended is None
        for delivery_id in range(first_id, last_id + 1):
            assert delivery_id not in self.outcomes, "one outcome for each delivery"
            self.outcomes[delivery_id] = (outcome, rejected, settled)
            self.told.append(delivery_id)

    def send(self, *bodies: str, tags: list[bytes] | None = None, settled: bool = False, code: int = 0) -> list[int]:
        """One batch.  Tags are the bodies unless given; code: the message format."""
        first = self.next_id
        self.next_id += len(bodies)
        payloads = [body.encode() for body in bodies]
        self.core.transfers(self, first, tags or list(payloads), payloads, settled, code, self.mesh.now)
        self.mesh.run()
        return list(range(first, self.next_id))

    def accepted(self) -> list[int]:
        return [i for i in self.told if self.outcomes[i][0] is Outcome.ACCEPTED]

    def settle(self, first: int, last: int | None = None) -> None:
        self.core.publisher_settled(self, first, first if last is None else last, self.mesh.now)
        self.mesh.run()

    def settle_all_told(self) -> None:
        for delivery_id in self.told:
            self.core.publisher_settled(self, delivery_id, delivery_id, self.mesh.now)
        self.mesh.run()

    def leave(self, closed: bool = False) -> None:
        self.core.detach_publisher(self, closed, self.mesh.now)
        self.mesh.run()


class Got:
    """A transfer that a subscriber received."""

    def __init__(self, delivery_id: int, tag: bytes, payload: bytes | None, kind: str, settled: bool) -> None:
        self.id = delivery_id
        self.tag = tag
        self.payload = payload
        self.kind = kind  # new, resume, again
        self.settled = settled
        self.count = 0
        self.format = 0

    @property
    def body(self) -> str:
        return (self.payload or b"").decode()


class SubscriberEnd(End):
    """A subscription's port, and the subscriber behind it."""

    def __init__(self, mesh: Mesh, router: str, container: str, credit: int) -> None:
        super().__init__(mesh, router, container)
        self.credit = credit
        self.accepts = True
        self.settles = False  # sends settled with its outcome
        self.fits = 10**9  # entries of our map that fit into the answer
        self.said: SubscriberAnswer | None = None
        self.got: list[Got] = []
        self.settled: list[int] = []
        self.next_id = 500

    def capacity(self) -> int:
        return self.credit

    def answer(self, answer: SubscriberAnswer) -> int:
        self.answered = True
        self.said = answer
        return min(self.fits, len(answer.listing or ()))

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
            assert isinstance(payload, bytes)
            self._note(tag, payload, "new", settled).format = message_format
        return first

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        return self._note(tag, payload, "resume", settled).id

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        got = self._note(tag, payload, "again", False)
        got.count = delivery_count
        return got.id

    def _note(self, tag: bytes, payload: bytes | None, kind: str, settled: bool) -> Got:
        assert self.answered
        assert self.ended is None
        assert self.credit > 0, "a transfer without credit"
        self.credit -= 1
        got = Got(self.next_id, tag, payload, kind, settled)
        self.next_id += 1
        self.got.append(got)
        if self.accepts and not settled:
            self.mesh.later(lambda: self._dispose(got.id, Outcome.ACCEPTED))
        return got

    def settle(self, first_id: int, last_id: int) -> None:
        for delivery_id in range(first_id, last_id + 1):
            assert delivery_id < self.next_id
            assert delivery_id not in self.settled, "settled once"
            self.settled.append(delivery_id)

    def _dispose(self, delivery_id: int, outcome: Outcome) -> None:
        if self.ended is None:
            self.core.subscriber_disposition(self, delivery_id, delivery_id, outcome, self.settles, self.mesh.now)

    def dispose(self, outcome: Outcome, first: int, last: int | None = None, settled: bool = False) -> None:
        self.core.subscriber_disposition(self, first, first if last is None else last, outcome, settled, self.mesh.now)
        self.mesh.run()

    def accept(self, first: int, last: int | None = None) -> None:
        self.dispose(Outcome.ACCEPTED, first, last)

    def give_credit(self, credit: int) -> None:
        self.credit += credit
        self.core.subscriber_credit(self, self.mesh.now)
        self.mesh.run()

    def leave(self, closed: bool = False, expiring: bool = True) -> Term | None:
        term = self.core.detach_subscriber(self, closed, self.mesh.now, expiring)
        self.mesh.run()
        return term

    def bodies(self, kind: str = "new") -> list[str]:
        return [got.body for got in self.got if got.kind == kind]

    def unsettled(self) -> list[Got]:
        return [got for got in self.got if not got.settled and got.id not in self.settled]

    def map(self, state: MapState) -> dict[bytes, MapState]:
        """Its unsettled map, with every delivery in this state."""
        return {got.tag: state for got in self.unsettled()}


class Mesh:
    """Routers that see each other, all booted and established unless told otherwise."""

    def __init__(
        self,
        names: str = "a",
        *,
        fresh: bool = True,
        joined: bool = True,
        address: AddressConfig | None = None,
        **config: Any,
    ) -> None:
        self.names = names
        self.now = 100.0
        self.config = config
        self.address = address or AddressConfig()
        self.cores: dict[str, Core] = {}
        self.wires: dict[tuple[str, str], deque[bytes]] = {}
        self.held: set[tuple[str, str]] = set()
        self.waiting: deque[Callable[[], object]] = deque()
        self.incarnations = 0
        for name in names:
            self.start(name, fresh=fresh)
        if joined:
            for i, a in enumerate(names):
                for b in names[i + 1 :]:
                    self.join(a, b)
            self.run()

    def start(self, name: str, *, fresh: bool = False) -> Core:
        self.incarnations += 1
        config = RouterConfig(name, tuple(self.names), defaults=self.address, **self.config)

        def send(peers: tuple[str, ...], data: bytes) -> None:
            for peer in peers:
                wire = self.wires.get((name, peer))
                if wire is not None:  # else it has died, and this router has not noticed yet
                    wire.append(data)

        core = Core(config, name, self.incarnations, send, self.now, self.clock_us, fresh)
        self.cores[name] = core
        return core

    def clock_us(self) -> int:
        return int(self.now * 1_000_000)

    def join(self, a: str, b: str) -> None:
        self.wires[a, b] = deque()
        self.wires[b, a] = deque()
        self.cores[a].peer_up(b, self.now)
        self.cores[b].peer_up(a, self.now)

    def part(self, a: str, b: str) -> None:
        """Both notice that the session is over."""
        for x, y in ((a, b), (b, a)):
            self.wires.pop((x, y), None)
            if x in self.cores and y in self.cores[x].up:
                self.cores[x].peer_down(y, self.now)

    def crash(self, name: str) -> None:
        """It dies, and the others notice."""
        del self.cores[name]
        for other in self.names:
            if other != name and other in self.cores:
                self.part(other, name)

    def later(self, action: Callable[[], object]) -> None:
        self.waiting.append(action)

    def run(self) -> None:
        busy = True
        while busy:
            busy = False
            while self.waiting:
                self.waiting.popleft()()
                busy = True
            for core in list(self.cores.values()):
                core.flush(self.now)
            for (a, b), wire in list(self.wires.items()):
                if wire and (a, b) not in self.held and b in self.cores:
                    self.cores[b].peer_message(a, wire.popleft(), self.now)
                    busy = True

    def pending(self, a: str, b: str) -> list[str]:
        """What a has sent to b and b has not read yet."""
        return [type(decode(data)).__name__ for data in self.wires[a, b]]

    def pass_time(self, seconds: float) -> None:
        """In steps, with every router's timers."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + max(seconds / 20, 0.001))
            for core in list(self.cores.values()):
                core.tick(self.now)
            self.run()

    def publisher(
        self, router: str, container: str = "p", *, run: bool = True, proves: bool = True, **attach: Any
    ) -> PublisherEnd:
        end = PublisherEnd(self, router, container)
        end.proves = proves
        end.core.attach_publisher(end, PublisherAttach(container, "out", TOPIC, **attach), self.now)
        if run:
            self.run()
        return end

    def subscriber(
        self,
        router: str,
        container: str = "s",
        *,
        credit: int = 1_000,
        accepts: bool = True,
        fits: int = 10**9,
        run: bool = True,
        **attach: Any,
    ) -> SubscriberEnd:
        attach.setdefault("timeout_s", 60.0)
        attach.setdefault("expiry_policy", "link-detach")
        end = SubscriberEnd(self, router, container, credit)
        end.accepts = accepts
        end.fits = fits
        end.core.attach_subscriber(end, SubscriberAttach(container, "in", TOPIC, **attach), self.now)
        if run:
            self.run()
        return end

    def assert_settled(self) -> None:
        """No record, no delivery, no byte of payload is left anywhere."""
        left = {name: _leftovers(core) for name, core in self.cores.items()}
        assert not any(left.values()), left

    def assert_empty(self) -> None:
        for name, core in self.cores.items():
            assert not core.addresses, f"{name}: {core.status()}"
            assert not [*core.publishers, *core.subscribers], name


def _leftovers(core: Core) -> dict[str, object]:
    """What a router still keeps of deliveries, by name."""
    left: dict[str, object] = {"meter": core.meter}
    for address in core.addresses.values():
        ingress, log = address.ingress, address.egress.log
        for name in ("undone", "settled", "kept", "rejected"):
            left[f"ingress.{name}"] = getattr(ingress, name)
        left["awaited"] = [home for home, tokens in ingress.awaited.items() if tokens]
        for link in ingress.publishers.values():
            for name in ("live", "undone", "unsettled", "undone_bytes", "tags", "repeats", "held", "need"):
                left[f"publisher {link.container} {name}"] = getattr(link, name)
        for name in ("alive", "open", "rejected"):
            left[f"arrivals.{name}"] = getattr(log, name)
        for name in ("accepts", "sync_accepts"):
            left[f"egress.{name}"] = getattr(address.egress, name)
        for each in address.egress.subscribers.values():
            names = ("held", "gone", "refused", "irregular", "ids", "bound", "by_sync", "slots", "skip", "again")
            for name in (*names, "line", "resumes", "presettled"):
                left[f"subscriber {each.name} {name}"] = getattr(each, name)
            left[f"subscriber {each.name} owes"] = each.owes.overlap(0, log.end)
        for entry in address.subscriptions.values():
            left[f"subscription {entry.name} syncing"] = entry.syncing
            left[f"subscription {entry.name} owed"] = entry.owed if entry.home is not None else None
    return {name: value for name, value in left.items() if value}
