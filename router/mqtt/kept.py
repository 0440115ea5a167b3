"""What a session gets of one address that may go on at another router: the core's KeptMapPort (protocol 7.9).

Its router and another one keep which identifier of QoS 2 the client may hold for which delivery, so the successor of a
router sends each under the same one. PUBREL follows PUBREC when the other router knows of it. Data of the subscription
say which filters it has: a successor knows them from there (protocol 7.10).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from mqtt import Publish, Subscription
from router.border import UNREADABLE
from router.core.containers import change_data
from router.core.keeping import KeptLink
from router.core.ports import MOST_DATA, Outcome, Refusal, SubscriberAnswer
from router.mqtt.base import BaseSession
from router.mqtt.filters import Filter, Match
from router.mqtt.outgoing import Outgoing, State
from router.mqtt.subscriber import NOT_SENT, MqttSubscriber, for_client


class KeptSubscriber(MqttSubscriber):
    """One address's."""

    def __init__(self, session: BaseSession, address: str, epoch: int, born: int) -> None:
        super().__init__(session, address, epoch, born)
        self.attach.data = session.data_of(address)
        self.link = KeptLink(session.core, self, self.attach)
        self.number = 1  # of the latest change of the filters
        self._told = 0  # of the latest one that all routers have been told
        self._held: dict[bytes, Outgoing] = {}  # what has an identifier of QoS 2
        # what is to be published, when it is kept
        self._ready: dict[bytes, tuple[Publish, int] | Outcome | Refusal] = {}
        # tag, outcome, whether the client holds no identifier
        self._outcomes: list[tuple[bytes, Outcome | Refusal, bool]] = []
        self._gone: list[bytes] = []  # tags whose identifiers the client has given up

    # --- for the session

    def begin(self, now: float) -> None:
        self.link.begin(now)

    def tell(self, now: float) -> None:
        self.number += 1
        if self._told == self.number - 1:
            self._change(now)

    def _change(self, now: float) -> None:
        number = self.number

        def done() -> None:
            self._told = number
            self.session.filters_told(self, number)
            if self.number > number and not self.detached:
                self._change(self.session.service.now)

        change_data(self.session.core, self.link, self.session.data_of(self.attach.address), done, now)

    def accepted(self, one: Outgoing) -> bool:
        self._note(one.tag, Outcome.ACCEPTED, False)
        return False

    def finished(self, one: Outgoing, outcome: Outcome | Refusal) -> None:
        self._held.pop(one.tag, None)
        self._note(one.tag, outcome, True)

    def released(self, one: Outgoing) -> None:
        self._held.pop(one.tag, None)
        self._gone.append(one.tag)
        self.session.service.to_flush(self)

    def _note(self, tag: bytes, outcome: Outcome | Refusal, finished: bool) -> None:
        self._outcomes.append((tag, outcome, finished))
        self.session.service.to_flush(self)

    def credit(self, now: float) -> None:
        self.link.credit(now)

    def flush(self, now: float) -> None:
        outcomes, self._outcomes = self._outcomes, []
        gone, self._gone = self._gone, []
        if not self.detached:
            for tag, outcome, finished in outcomes:
                self.link.received(tag, outcome, finished, now)
            for tag in gone:
                self.link.released(tag, now)
            if self.shares and outcomes:  # an acceptance of QoS 0 makes room at the queue and nowhere else
                self.session.service.has_room(self.session)

    def give_back(self, now: float) -> None:
        self.link.give_back(now)

    def detach_from_core(self, now: float, closed: bool) -> None:
        self.link.end(closed, now)

    # --- KeptMapPort: what the core says

    def answer(self, answer: SubscriberAnswer) -> int:
        """What a former router has sent. Of two deliveries of the session with one identifier, which are of different
        addresses, the accepted one is the former: the client has given its identifier up, and the router that died
        had not told."""
        in_flight = self.session.identifiers.in_flight
        for packet_id, (tag, accepted) in answer.identifiers.items():
            other = in_flight.get(packet_id)
            if other is not None and accepted:
                self._gone.append(tag)
                continue
            if other is not None and other.state is State.KEPT:  # neither was sent: the second gets another one
                continue
            if other is not None:
                other.subscriber.released(other)
                self.session.identifiers.octets -= other.octets
            one = Outgoing(self, 0, tag, None, 2)
            one.packet_id, one.state = packet_id, State.RELEASED if accepted else State.KEPT
            in_flight[packet_id] = self._held[tag] = one
        if self._gone:
            self.session.service.to_flush(self)
        self.answered = True
        self._told = 1
        self.session.filters_told(self, 1)
        if self.number > 1:
            self._change(self.session.service.now)
        return 0

    def identify(self, tags: list[bytes], payloads: list[bytes], message_format: int) -> list[int]:
        found: list[int] = []
        ask = self.session.service.border.each
        for tag, prepared in zip(tags, ask(UNREADABLE, self._prepared, payloads, message_format, False), strict=True):
            self._ready[tag] = prepared
            packet_id = 0
            if not isinstance(prepared, NOT_SENT) and prepared[1] == 2:
                one = self._held[tag] = Outgoing(self, 0, tag, prepared[0], 2)
                self.session.identifiers.reserve(one)
                packet_id = one.packet_id
            found.append(packet_id)
        self._note_size(payloads)
        return found

    def publish(self, tags: list[bytes], payloads: list[bytes], message_format: int, repeated: bool) -> None:
        session = self.session
        for tag, payload in zip(tags, payloads, strict=True):
            one = self._held.get(tag)
            if repeated:
                if one is None:
                    one = self._held[tag] = Outgoing(self, 0, tag, None, 2)
                    session.identifiers.reserve(one)
                one.publish, one.repeated = self._again(payload, message_format), True
            prepared = self._ready.pop(tag, None)
            if one is not None:
                one.state = State.SENT
                session.send(one)
            elif isinstance(prepared, NOT_SENT):
                self._note(tag, prepared, True)
            else:
                assert prepared is not None
                publish, qos = prepared
                if qos:
                    session.send(Outgoing(self, 0, tag, publish, qos))
                else:
                    session.send_unacknowledged(publish)
                    self._note(tag, Outcome.ACCEPTED, True)

    def _again(self, payload: bytes, message_format: int) -> Publish:
        """What the client may hold already comes again, whatever its filters and the message's expiry say by now."""
        session = self.session
        message = session.service.messages.read(payload, message_format, self.attach.address)
        publish = message.publish  # type: ignore[union-attr]  # it had a form when it was sent
        found = session.filters.match(publish.topic, False) or Match(2, (), False)
        return for_client(publish, found, session)

    def publish_settled(self, payloads: list[bytes], message_format: int) -> None:
        ask = self.session.service.border.each
        for prepared in ask(UNREADABLE, self._prepared, payloads, message_format, True):
            if not isinstance(prepared, NOT_SENT):
                self.session.send_unacknowledged(prepared[0])

    def release(self, tag: bytes) -> None:
        one = self._held.get(tag)
        if one is not None:
            self.session.release(one)

    def forget(self, tag: bytes) -> None:
        self._ready.pop(tag, None)
        one = self._held.pop(tag, None)
        if one is not None:
            self.session.identifiers.free(one)


def written(incarnation: int, filters: Iterable[Filter]) -> bytes:
    """The data of a subscription with these filters."""
    return b"[%d,[%s]]" % (incarnation, b",".join([each.form for each in filters]))


def read(data: bytes) -> tuple[int, list[Filter]] | None:
    """The incarnation of the session and its filters, without addresses; None: no session has written that."""
    try:
        incarnation, listed = json.loads(data)
        filters = [
            Filter(
                Subscription(str(text), int(qos), bool(no_local), bool(as_published), int(handling)), int(identifier)
            )
            for text, qos, no_local, as_published, handling, identifier in listed
        ]
        return int(incarnation), filters
    except (ValueError, TypeError):  # another version of this router, or a link of AMQP with this name
        return None


def too_many(octets: int) -> bool:
    """Whether a subscription has no room for filters whose forms have so many octets."""
    return octets > MOST_DATA - FRAME


FRAME: Final = len(written((1 << 64) - 1, ()))
"""Octets of the data of a subscription that are no filter's."""
