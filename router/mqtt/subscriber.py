"""What one session gets of one address, with PUBLISH in place of transfers.

PUBACK and PUBREC are `accepted`. QoS 0 is accepted when it is written. The port stays attached while its client is
away, without room for anything, until the session ends or goes on at another router. `TransientSubscriber` is for
sessions that end with their connection; read `router.mqtt.kept` for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mqtt import NO_PROPERTIES, Publish
from router.border import UNREADABLE
from router.core.ports import MapState, Outcome, Refusal, SubscriberAnswer, SubscriberAttach
from router.mqtt.base import BaseSession
from router.mqtt.filters import Match, Wanted
from router.mqtt.outgoing import Outgoing, Receiver
from router.mqtt.publisher import LINK

NOT_SENT: Final = (Outcome, Refusal)  # what is in place of a message that its client does not get
BURST: Final = 1_024  # messages in one write
BURST_BYTES: Final = 1 << 20  # in one write, by the sizes of earlier ones


class MqttSubscriber(Receiver):
    """One address's, as far as both kinds are the same."""

    def __init__(self, session: BaseSession, address: str, epoch: int, born: int) -> None:
        self.session = session
        service = session.service
        shares = service.topics.filter_of(address) is not None  # a shared subscription: its members compete
        self.attach = SubscriberAttach(
            session.container,
            LINK,
            address,
            epoch=epoch,
            born=born,
            timeout_s=session.absence.expiry_s,
            expiry_policy="link-detach",
            mode_first=not session.persists,
            selection=None if shares else service.border.judge(Wanted(session.filters, service.messages, address)),
            keeps_map=session.persists,
        )
        self.shares = shares
        self.answered = False
        self.detached = False
        self.number = 0  # of the latest change of the filters
        self._size = 256  # of a message, as a mean

    # --- for the session

    def begin(self, now: float) -> None:
        """Attaches."""
        raise NotImplementedError

    def tell(self, now: float) -> None:
        """The session's filters have changed. `filters_told` follows with the next number."""

    def credit(self, now: float) -> None:
        """`capacity` has grown."""
        raise NotImplementedError

    def flush(self, now: float) -> None:
        """Tells the core the outcomes."""
        raise NotImplementedError

    def give_back(self, now: float) -> None:
        """Of a shared subscription: other members get what the client has not been sent."""

    def leave(self, now: float, *, closed: bool) -> None:
        """Detaches; closed: the subscription is over."""
        if not self.detached:
            self.flush(now)
            self.detached = True
            self.detach_from_core(now, closed)

    def detach_from_core(self, now: float, closed: bool) -> None:
        raise NotImplementedError

    def _prepared(self, payload: bytes, message_format: int, settled: bool) -> tuple[Publish, int] | Outcome | Refusal:
        """What the client gets, and with which QoS; an outcome, or why it is rejected: it does not get it."""
        session, service = self.session, self.session.service
        if self.shares and not self._takes:
            return Outcome.RELEASED
        message = service.messages.read(payload, message_format, self.attach.address)
        if isinstance(message, Refusal):
            return message
        publish = message.left(service.time_ms(message.router))
        if self.shares:
            found = session.filters.shared(self.attach.address)
        else:
            found = session.filters.match(message.publish.topic, message.publisher == session.filters.named)
        if publish is None or found is None:
            return Outcome.ACCEPTED
        stamp = message.stamp
        if stamp is not None and not self.shares and service.is_covered(publish.topic, stamp, session.filters):
            return Outcome.ACCEPTED
        qos = 0 if settled else min(found.qos, message.most_qos)
        return for_client(publish, found, session), qos

    def _note_size(self, payloads: list[bytes]) -> None:
        size = sum(map(len, payloads)) // len(payloads) + 1
        self._size = size if size > self._size else (3 * self._size + size) // 4

    @property
    def _takes(self) -> bool:
        """Whether the client is there and is a member of the shared subscription."""
        return self.session.connection is not None and self.session.filters.shared(self.attach.address) is not None

    # --- what the core says, to either kind of port

    def link_credit(self) -> int:
        """Of a shared subscription: what the client may be assigned. Topics have none in MQTT."""
        if not self.shares or not self._takes or not self.answered or self.detached:
            return 0
        return max(self.session.room - len(self.session.identifiers.waiting), 0)

    def capacity(self) -> int:
        if self.shares and not self._takes:
            return BURST if self.answered and not self.detached else 0  # what had been assigned before goes back
        connection = self.session.connection
        if connection is None or not self.answered or self.detached or self.session.identifiers.waiting:
            return 0
        if connection.full:
            connection.wait_for_output()
            return 0
        # By number, and by octets: what is in flight to one client takes no more than what one publisher may send.
        session = self.session
        octets = session.identifiers.octets
        left = max(session.service.config.window_bytes - octets, 0) // self._size
        if not octets:  # one of any size
            left = max(left, 1)
        return min(session.room, BURST, max(BURST_BYTES // self._size, 1), left)

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.detach(condition, description, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self.detached = True
        self.session.subscription_lost(self, condition, description)


class TransientSubscriber(MqttSubscriber):
    """Of a session that ends with its connection: the core's SubscriberPort. No other router goes on with it, so PUBREC
    settles."""

    def __init__(self, session: BaseSession, address: str, epoch: int, born: int) -> None:
        super().__init__(session, address, epoch, born)
        self._dispositions: list[tuple[int, int, Outcome | Refusal]] = []  # that the core is to be told of
        self._next_id = 0

    def begin(self, now: float) -> None:
        self.session.core.attach_subscriber(self, self.attach, now)

    def accepted(self, one: Outgoing) -> bool:
        self._dispose(one.delivery_id, Outcome.ACCEPTED)
        return True

    def finished(self, one: Outgoing, outcome: Outcome | Refusal) -> None:
        self._dispose(one.delivery_id, outcome)

    def _dispose(self, delivery_id: int, outcome: Outcome | Refusal) -> None:
        noted = self._dispositions
        if noted and noted[-1][1:] == (delivery_id - 1, outcome):
            noted[-1] = noted[-1][0], delivery_id, outcome
        else:
            noted.append((delivery_id, delivery_id, outcome))
        self.session.service.to_flush(self)

    def credit(self, now: float) -> None:
        self.session.core.subscriber_credit(self, now)

    def flush(self, now: float) -> None:
        noted, self._dispositions = self._dispositions, []
        if not self.detached:
            for first, last, outcome in noted:
                self.session.core.subscriber_disposition(self, first, last, outcome, True, now)
            if self.shares and noted:  # an acceptance of QoS 0 makes room at the queue and nowhere else
                self.session.service.has_room(self.session)

    def detach_from_core(self, now: float, closed: bool) -> None:
        self.session.core.detach_subscriber(self, closed, now)

    # --- SubscriberPort

    def answer(self, answer: SubscriberAnswer) -> int:
        self.answered = True
        self.session.filters_told(self, 0)
        return 0

    def send(
        self,
        tags: list[bytes],
        payloads: list[bytes],
        message_format: int,
        settled: bool,
        position: int,
        cache: dict[object, object],
    ) -> int:
        first_id = self._next_id
        self._next_id += len(tags)
        session = self.session
        ask = session.service.border.each
        answers = ask(UNREADABLE, self._prepared, payloads, message_format, settled)
        for i, prepared in enumerate(answers):
            if isinstance(prepared, NOT_SENT):
                if not settled:
                    self._dispose(first_id + i, prepared)
                continue
            publish, qos = prepared
            if qos:
                session.send(Outgoing(self, first_id + i, tags[i], publish, qos))
                continue
            session.send_unacknowledged(publish)
            if not settled:
                self._dispose(first_id + i, Outcome.ACCEPTED)
        self._note_size(payloads)
        return first_id

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        raise AssertionError("it presents no map, so nothing is resumed")

    def expired(self, payloads: list[bytes], message_format: int) -> list[int]:
        return []  # it looks itself, as it tells how much is left

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        return self.send([tag], [payload], message_format, False, -1, {})

    def settle(self, first_id: int, last_id: int, at_once: bool = False) -> None:
        """It is told to nobody: what the client has been sent, it acknowledges as always."""

    def answer_map_part(self) -> None:
        raise AssertionError("there are no maps in parts here")


def for_client(publish: Publish, found: Match, session: BaseSession) -> Publish:
    """The message with what belongs to this session; 3.1.1 has no properties, and no Retain As Published but for
    bridges."""
    retain = publish.retain and found.keeps_retain
    if session.version == 4:
        return Publish(publish.topic, publish.payload, 0, retain and session.is_bridge, properties=NO_PROPERTIES)
    if not found.identifiers and retain == publish.retain:
        return publish
    properties = publish.properties._replace(subscription_ids=found.identifiers)
    return Publish(publish.topic, publish.payload, 0, retain, properties=properties)
