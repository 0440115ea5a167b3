"""Ports that note what they are told, and do by themselves what a client does: prove, answer questions, accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from router.core.ports import MapState, Outcome, Part, SubscriberAnswer, Term, Waiting

if TYPE_CHECKING:
    from tests.router.harness import Mesh


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
        self.why = ""
        self.parts = 0

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        assert not self.answered
        self.refused, self.why = True, description
        self.ended = (condition, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        assert self.answered
        self.ended = (condition, info, closed)

    def answer_map_part(self) -> None:
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
        self.waits: list[Waiting | None] = []
        self.proves = True
        self.answers = True
        self.questions = 0
        self.outcomes: dict[int, tuple[Outcome, int, bool]] = {}
        self.reasons: dict[int, bytes] = {}
        self.told: list[int] = []
        self.complete: list[int] = []
        self.complete_tags: list[bytes] = []
        self._held_back = False
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

    def waiting(self, waiting: Waiting | None) -> None:
        self.waits.append(waiting)

    def set_window(self, messages: int, size: int, reason: str) -> int:
        self.window = (messages, size, reason)
        return 0

    def ask(self) -> None:
        self.questions += 1
        if self.answers:
            self.mesh.later(self.answer_question)

    def completed(self, first_id: int, last_id: int) -> None:
        self.complete += range(first_id, last_id + 1)

    def tag_completed(self, tag: bytes) -> None:
        self.complete_tags.append(tag)

    def answer_question(self) -> None:
        self.core.question_answered(self, self.mesh.now)

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        assert self.ended is None
        for delivery_id in range(first_id, last_id + 1):
            assert delivery_id not in self.outcomes, "one outcome for each delivery"
            self.outcomes[delivery_id] = (outcome, rejected, settled)
            self.reasons[delivery_id] = why
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

    def hold_back(self, held: bool) -> None:
        self._held_back = held

    def is_held_back(self) -> bool:
        return self._held_back

    def part(self, body: str, tag: str = "t", *, last: bool = False, aborted: bool = False, first: bool = False) -> int:
        """A part of a large delivery."""
        self.next_id += first
        part = Part(self.next_id - 1, tag.encode(), body.encode(), first, last or aborted, aborted)
        self.core.part(self, part, self.mesh.now)
        self.mesh.run()
        return self.next_id - 1

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
        self.dead: set[bytes] = set()  # payloads that have expired
        self.accepts = True
        self.settles = False  # sends settled with its outcome
        self.fits = 10**9  # entries of our map that fit into the answer
        self.said: SubscriberAnswer | None = None
        self.got: list[Got] = []
        self.settled: list[int] = []
        self.next_id = 500
        self.room = 1 << 30  # bytes of a large delivery that can be written
        self.open: Got | None = None  # that is being written
        self.aborted: list[Got] = []

    def capacity(self) -> int:
        return self.credit if self.open is None else 0

    def bare_at(self, payload: bytes) -> int:
        """What is before the bar is not the publisher's own."""
        return payload.find(b"|") + 1

    def begin(
        self, tag: bytes, head: bytes, message_format: int, settled: bool, state: MapState | None, failures: int
    ) -> tuple[int, int]:
        kind = "resume" if state is not None else "again" if failures else "new"
        accepts, self.accepts = self.accepts, False
        self.open = self._note(tag, b"", kind, settled)
        self.accepts = accepts
        return self.open.id, 0

    def part_capacity(self) -> int:
        return self.room

    def add(self, payload: bytes, *, more: bool) -> None:
        got = self.open
        assert got is not None
        assert len(payload) <= self.room
        self.room -= len(payload)
        got.payload = (got.payload or b"") + payload
        if not more:
            self.open = None
            if self.accepts and not got.settled:
                self.mesh.later(lambda: self._dispose(got.id, Outcome.ACCEPTED))

    def abort(self) -> None:
        assert self.open is not None
        self.got.remove(self.open)
        self.aborted.append(self.open)
        self.open = None

    def make_room(self, room: int) -> None:
        self.room = room
        self.core.subscriber_credit(self, self.mesh.now)
        self.mesh.run()

    def link_credit(self) -> int:
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

    def expired(self, payloads: list[bytes], message_format: int) -> list[int]:
        return [i for i, payload in enumerate(payloads) if payload in self.dead]

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

    def settle(self, first_id: int, last_id: int, at_once: bool = False) -> None:
        for delivery_id in range(first_id, last_id + 1):
            assert delivery_id < self.next_id
            assert delivery_id not in self.settled, "settled once"
            self.settled.append(delivery_id)

    def _dispose(self, delivery_id: int, outcome: Outcome) -> None:
        if self.ended is None:
            self.core.subscriber_disposition(self, delivery_id, delivery_id, outcome, self.settles, self.mesh.now)

    def dispose(
        self, outcome: Outcome, first: int, last: int | None = None, settled: bool = False, why: bytes = b""
    ) -> None:
        last = first if last is None else last
        self.core.subscriber_disposition(self, first, last, outcome, settled, self.mesh.now, why)
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


def answered(*ends: End) -> list[bool]:
    return [end.answered for end in ends]
