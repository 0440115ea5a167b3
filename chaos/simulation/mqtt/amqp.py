"""A recovering publisher of AMQP beside clients of MQTT, without the wire: it calls the core as its link would.

It presents what is unsettled, with an epoch above every earlier one, and sends again what has no outcome, first and in
order (protocol 15). It never loses its memory. A link that it has left stays at its router until it is stolen there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from amqp10.sections import Data, Message, Properties
from router.core.ports import Outcome, PublisherAttach, Term, Waiting
from router.names import EPOCH

if TYPE_CHECKING:
    from chaos.simulation.mqtt.net import Net
    from router.router import Router


def payload(topic: str, name: str, number: int) -> bytes:
    return Message(Data(f"{name} {number}".encode()), properties=Properties(subject=topic)).encode()


class Link:
    """One attachment: the core's PublisherPort."""

    def __init__(self, owner: AmqpPublisher, name: str, router: Router) -> None:
        self.owner, self.name, self.router = owner, name, router
        self.numbers: list[int] = []  # by delivery-id
        self.answered = False
        self.asked = True  # the answer to its attach asks for a sign of life
        self.room = 0

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        self.answered = True

    def ready(self) -> None: ...

    def waiting(self, waiting: Waiting | None) -> None: ...

    def set_window(self, messages: int, size: int, reason: str) -> int:
        self.room = messages
        return 0

    def ask(self) -> None:
        self.asked = True

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        if self.owner.link is self:
            for number in self.numbers[first_id : last_id + 1]:
                self.owner.told(number, outcome)

    def answer_map_part(self) -> None:
        raise AssertionError("its maps have one part")

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.detach(condition, description, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        if self.owner.link is self:
            self.owner.epoch = max(self.owner.epoch, info.get(EPOCH, 0))
            self.owner.link = None


class AmqpPublisher:
    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.sent = 0
        self.epoch = 0
        self.unsettled: dict[int, Outcome | None] = {}
        self.link: Link | None = None
        self.net: Net = None  # type: ignore[assignment]  # set by the net

    @property
    def is_unfinished(self) -> bool:
        return bool(self.unsettled) or self.sent < self.total

    def told(self, number: int, outcome: Outcome) -> None:
        assert outcome is Outcome.ACCEPTED, f"{self.name} {number}: {outcome}"
        assert self.link is not None
        self.unsettled[number] = outcome
        told = (self.name, number), (self.link.name, self.link.router.core.incarnation)
        self.net.checker.told_accepted(*told)
        if self.net.members:
            self.net.group.told_accepted(*told)

    def can(self) -> list[str]:
        """What it may do next."""
        link = self.link
        if link is None or self.net.routers.get(link.name) is not link.router:
            return ["attach"]
        if not link.answered:
            return []
        again = [number for number, outcome in self.unsettled.items() if outcome is None and number not in link.numbers]
        found = ["answer"] if link.asked else []
        if again or (self.sent < self.total and link.room > 0 and self.net.may_publish()):
            found.append("send")
        if any(outcome is not None for outcome in self.unsettled.values()):
            found.append("settle")
        return found

    def do(self, what: str, router: str) -> None:
        net, link = self.net, self.link
        if what == "attach":
            self.epoch += 1
            link = self.link = Link(self, router, net.routers[router])
            unsettled = {b"%d" % number: outcome for number, outcome in self.unsettled.items()}
            attach = PublisherAttach(self.name, "out", net.topic, epoch=self.epoch, incarnation=1, unsettled=unsettled)
            link.router.core.attach_publisher(link, attach, net.now)
            return
        assert link is not None
        core = link.router.core
        if what == "answer":
            link.asked = False
            core.proved(link, net.now)
            core.question_answered(link, net.now)
        elif what == "send":
            again = [n for n, outcome in self.unsettled.items() if outcome is None and n not in link.numbers]
            if not again:
                self.sent += 1
                self.unsettled[self.sent] = None
                net.sent((self.name, self.sent))
            number = (again or [self.sent])[0]
            link.numbers.append(number)
            body = payload(net.topic, self.name, number)
            core.transfers(link, len(link.numbers) - 1, [b"%d" % number], [body], False, 0, net.now)
        else:
            number = next(number for number, outcome in self.unsettled.items() if outcome is not None)
            del self.unsettled[number]
            if number in link.numbers:
                delivery_id = link.numbers.index(number)
                core.publisher_settled(link, delivery_id, delivery_id, net.now)
            else:
                core.publisher_settled_tag(link, b"%d" % number, net.now)
