"""What one session gets of one address: the core's SubscriberPort, with PUBLISH in place of transfers.

PUBACK and PUBREC are `accepted`; PUBACK settles as well, and after PUBREC the network's settlement is PUBREL. QoS 0 is
accepted when it is written. The port stays attached while its client is away, without room for anything, until the
session ends or goes on at another router. Read `router.mqtt.outgoing` for the identifiers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mqtt import NO_PROPERTIES, Publish
from router.core.directory import derive_publisher_id
from router.core.ports import MapState, Outcome, SubscriberAnswer, SubscriberAttach
from router.mqtt.conversion import Unfit
from router.mqtt.filters import Match, Wanted
from router.mqtt.outgoing import Outgoing
from router.mqtt.publisher import LINK, name_of

if TYPE_CHECKING:
    from router.mqtt.session import Session

BURST: Final = 1_024  # messages in one write
BURST_BYTES: Final = 1 << 20  # in one write, by the sizes of earlier ones


class MqttSubscriber:
    """One address's."""

    __slots__ = ("_dispositions", "_next_id", "_own", "_size", "answered", "attach", "by_id", "detached", "session")

    def __init__(self, session: Session, address: str, epoch: int) -> None:
        self.session = session
        service = session.service
        self.attach = SubscriberAttach(
            session.container,
            LINK,
            address,
            epoch=epoch,
            born=epoch,
            timeout_s=session.expiry_s,
            expiry_policy="link-detach",
            mode_first=not session.persists,
            selection=Wanted(session.filters, service.messages, address),
        )
        self.answered = False
        self.detached = False
        self.by_id: dict[int, Outgoing] = {}
        self._dispositions: list[tuple[int, int, Outcome, bool]] = []  # that the core is to be told of
        self._next_id = 0
        self._own = derive_publisher_id(session.container, name_of(session.incarnation), address, True)
        self._size = 256  # of a message, as a mean

    # --- for the session

    def dispose(self, delivery_id: int, outcome: Outcome, settled: bool) -> None:
        """Notes an outcome for the core."""
        if settled:
            self.by_id.pop(delivery_id, None)
        noted = self._dispositions
        if noted and noted[-1][1:] == (delivery_id - 1, outcome, settled):
            noted[-1] = noted[-1][0], delivery_id, outcome, settled
        else:
            noted.append((delivery_id, delivery_id, outcome, settled))
        self.session.service.to_flush(self)

    def flush(self, now: float) -> None:
        """Tells the core the outcomes."""
        noted, self._dispositions = self._dispositions, []
        if not self.detached:
            for first, last, outcome, settled in noted:
                self.session.core.subscriber_disposition(self, first, last, outcome, settled, now)

    def leave(self, now: float) -> None:
        """Ends the subscription."""
        if not self.detached:
            self.flush(now)
            self.detached = True
            self.session.core.detach_subscriber(self, True, now)

    # --- SubscriberPort: what the core says

    def capacity(self) -> int:
        connection = self.session.connection
        if connection is None or not self.answered or self.detached or self.session.identifiers.waiting:
            return 0
        if connection.full:
            connection.wait_for_output()
            return 0
        return min(self.session.room, BURST, max(BURST_BYTES // self._size, 1))

    def link_credit(self) -> int:
        raise AssertionError("MQTT has topics only")

    def answer(self, answer: SubscriberAnswer) -> int:
        self.answered = True
        self.session.subscription_answered(self)
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
        session, service = self.session, self.session.service
        read, match, own, address = service.messages.read, session.filters.match, self._own, self.attach.address
        now_ms = session.core.clock_us() // 1000
        version = session.version
        for i, payload in enumerate(payloads):
            message = read(payload, message_format, address)
            if isinstance(message, Unfit):
                publish, found = None, None
            else:
                publish = message.left(now_ms)
                found = match(message.publish.topic, tags[i][:8] == own)
            if isinstance(message, Unfit) or publish is None or found is None:
                if not settled:
                    outcome = Outcome.REJECTED if isinstance(message, Unfit) else Outcome.ACCEPTED
                    self.dispose(first_id + i, outcome, True)
                continue
            qos = 0 if settled else min(found.qos, message.most_qos)
            publish = _for_client(publish, found, version)
            if qos:
                one = self.by_id[first_id + i] = Outgoing(self, first_id + i, tags[i], publish, qos)
                session.send(one)
                continue
            session.send_unacknowledged(publish)
            if not settled:
                self.dispose(first_id + i, Outcome.ACCEPTED, True)
        size = sum(map(len, payloads)) // len(payloads) + 1
        self._size = size if size > self._size else (3 * self._size + size) // 4
        return first_id

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        raise AssertionError("MQTT presents no maps, so nothing is resumed")

    def expired(self, payloads: list[bytes], message_format: int) -> list[int]:
        return []  # it looks itself, as it tells how much is left

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        return self.send([tag], [payload], message_format, False, -1, {})

    def settle(self, first_id: int, last_id: int, at_once: bool = False) -> None:
        for delivery_id in range(first_id, last_id + 1):
            one = self.by_id.pop(delivery_id, None)
            if one is not None:
                self.session.settled(one)

    def answer_map_part(self) -> None:
        raise AssertionError("there are no maps in parts here")

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.detach(condition, description, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self.detached = True
        self.session.subscription_lost(self, condition, description)


def _for_client(publish: Publish, found: Match, version: int) -> Publish:
    """The message with what belongs to this session; 3.1.1 has no properties."""
    if version == 4:
        return Publish(publish.topic, publish.payload, properties=NO_PROPERTIES)
    if not found.identifiers:
        return publish
    properties = publish.properties._replace(subscription_ids=found.identifiers)
    return Publish(publish.topic, publish.payload, properties=properties)
