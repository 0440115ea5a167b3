"""Large deliveries on their way out on one subscription's link (protocol 6.12).

The link is in the middle of one at a time, and nothing else goes out until its last part is written. One that the
client resumes is *open* when its publisher's ingress is lost: nobody sends it, until DATA or SYNC brings its tag again.
Then what has gone out is compared with what comes, and it goes on at the same octet. What is kept of one is in
`router.core.large`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from router.core.irregular import Irregular, Resume, State
from router.core.large import AnotherMessage, Body, Partial
from router.core.ports import MapState, PartsPort, too_large

if TYPE_CHECKING:
    from router.core.subscriber import Subscriber

DOES_NOT_GO_ON: Final = "the resumed delivery that this link is in the middle of does not go on: attach again"
ANOTHER_MESSAGE: Final = "another message has come with the tag of the delivery that this link is in the middle of"


class Passage:
    """Of a subscription whose link takes parts."""

    __slots__ = ("most_bytes", "partial", "passed_by", "port", "subscriber")

    def __init__(self, subscriber: Subscriber, port: PartsPort, most_bytes: int) -> None:
        self.subscriber = subscriber
        self.port = port
        self.most_bytes = most_bytes  # 0: any size
        self.partial: Partial | None = None  # its link is in the middle of it
        self.passed_by: dict[int, bool] = {}  # log positions: have they been asked for (protocol 6.12.14)?

    def taken(self, position: int, body: Body) -> int:
        """Returns how many bytes of the large delivery at this log position it needs no more."""
        if self.partial is not None and self.partial.body is body:
            return self.partial.offset
        return 0 if self._awaits(position) else body.end

    def _awaits(self, position: int) -> bool:
        """Says whether the large delivery at this log position is still to be begun."""
        subscriber = self.subscriber
        if position in self.passed_by:
            return False
        delivery = subscriber.irregular.bound.get(position)
        if delivery is None:
            return position in subscriber.owes and position >= subscriber.cursor
        if delivery.state is State.RELEASED:
            return delivery.payload is not None
        return delivery.resume is Resume.FILLED

    # ---------------------------------------------------------------------------------------------------------- sending

    def begin(self, body: Body, position: int, delivery: Irregular | None, message_format: int) -> None:
        """Begins a large delivery. Until its last part is written nothing else goes out (AMQP 2.6.14)."""
        subscriber, state, failures = self.subscriber, None, 0
        if delivery is None:
            tag = subscriber.deliveries.log.segments.tags(position, position + 1)[0]
        else:
            tag, delivery.payload = delivery.tag, None
            if delivery.resume is Resume.FILLED:
                delivery.resume, state = Resume.NOTHING, MapState.UNDECIDED
            else:
                delivery.state, failures = State.SENT, delivery.failures
        settled = subscriber.settled_mode and delivery is None
        delivery_id, offset = self.port.begin(tag, body.head, message_format, settled, state, failures)
        if state is not None:
            self._digest(body, message_format)
        self.partial = Partial(tag, body, position, delivery, delivery_id, offset, state is not None)
        if delivery is None:
            subscriber.note_sent(position, position + 1, delivery_id)
        else:
            subscriber.irregular.set_delivery_id(delivery, delivery_id)
        if offset:
            subscriber.deliveries.reception.moved(body)
        self.go_on()

    def go_on(self) -> bool:
        """Writes of a large delivery what has come and has room. Says whether the link is free for others."""
        partial = self.partial
        if partial is not None and not self._go_on(partial):
            return False
        for position, asked in list(self.passed_by.items()):
            if position not in self.subscriber.owes:
                del self.passed_by[position]
            elif not asked:
                self.passed_by[position] = True
                self.subscriber.deliveries.reception.need_again(position)
        return True

    def _go_on(self, partial: Partial) -> bool:
        body, port = partial.body, self.port
        if body is None:
            return False
        if self.most_bytes and body.end > self.most_bytes:
            self._refuse(partial)
            return True
        try:
            if not partial.skip():
                return False
        except AnotherMessage:
            self.give_up(partial, ANOTHER_MESSAGE)
            return False
        while True:
            room = port.part_capacity()
            piece = (partial.rest or body.read(partial.offset, room))[:room] if room > 0 else b""
            if partial.rest:
                partial.rest = partial.rest[len(piece) :]
            else:
                partial.offset += len(piece)
            last = body.complete and partial.offset == body.end and not partial.rest
            if not piece and not last:
                return False
            port.add(piece, more=not last)
            self.subscriber.deliveries.reception.moved(body)
            if last:
                self.partial = None
                self._end(partial)
                return True

    def _end(self, partial: Partial) -> None:
        """Its last part is written; an outcome that has come before counts now."""
        subscriber = self.subscriber
        if partial.delivery is not None and subscriber.settled_mode:
            subscriber.deliveries.accept_irregular(subscriber, partial.delivery, False, True)
        elif subscriber.settled_mode:
            subscriber.accept_sent(partial.position, partial.position + 1)
        elif partial.early is not None:
            outcome, settled, said = partial.early
            number = partial.delivery_id
            subscriber.deliveries.disposition(subscriber, number, number, outcome, settled, said)

    def abort(self) -> None:
        """The large delivery that its link is in the middle of is void."""
        partial, self.partial = self.partial, None
        assert partial is not None
        self.port.abort()
        subscriber = self.subscriber
        if partial.delivery is None:
            subscriber.sent.unsettled.remove(partial.position, partial.position + 1)
        else:
            subscriber.irregular.clear_delivery_id(partial.delivery)
        subscriber.deliveries.core.agenda.touch(subscriber.deliveries.address)

    def void(self, start: int, stop: int) -> bool:
        """These log positions are settled. Says whether the link has waited for one of them."""
        waited = self.forget_passed_by(start, stop)
        partial = self.partial
        if partial is not None and partial.delivery is None and start <= partial.position < stop:
            self.abort()
            return True
        return waited

    def _refuse(self, partial: Partial) -> None:
        """It exceeds what the subscription takes: that counts as rejected by it (protocol 6.4.7)."""
        self.abort()
        deliveries, refusal = self.subscriber.deliveries, too_large(self.most_bytes)
        if partial.delivery is None:
            deliveries.reception.refuse_large(self.subscriber, partial.position, refusal)
        else:
            deliveries.refuse(self.subscriber, [], [partial.delivery], refusal)
            deliveries.accept_irregular(self.subscriber, partial.delivery, True, False)

    def _digest(self, body: Body, message_format: int) -> None:
        if not body.is_digested:
            body.begin_digest(0 if message_format else self.port.bare_at(body.head))

    # ------------------------------------------------------------------------------------ open ones, which nobody sends

    @property
    def open(self) -> Partial | None:
        return self.partial if self.partial is not None and self.partial.body is None else None

    def lose(self, publisher_id: bytes) -> bool:
        """The publisher's ingress is lost. A large delivery of it that the client resumes stays open (protocol
        6.12.12), another one is aborted (protocol 6.12.6). Says whether the link was in the middle of one."""
        partial, subscriber = self.partial, self.subscriber
        if partial is None or partial.body is None or partial.tag[:8] != publisher_id:
            return False
        if partial.resumes:
            partial.lose(subscriber.deliveries.core.now)
            return True
        self.abort()
        if partial.delivery is not None:
            partial.delivery.state = State.REMOVED
            subscriber.remove(partial.delivery)
        return True

    def is_open(self, delivery: Irregular) -> bool:
        return self.open is not None and self.open.delivery is delivery

    def find(self, delivery: Irregular, position: int, payload: bytes, message_format: int) -> None:
        """If it is open, it goes on with this copy (protocol 6.12.13). position: -1 if a SYNC has brought it."""
        partial = self.open
        if partial is not None and partial.delivery is delivery:
            body = self.subscriber.deliveries.log.bodies.get(position) or Body(payload, whole=True)
            self._digest(body, message_format)
            partial.find(body, position)

    def give_up(self, partial: Partial, why: str) -> None:
        """It does not go on. If it were aborted, the client would forget the tag, and take the next copy for a new
        delivery: its link is detached (protocol 6.12.16)."""
        partial.body = None
        self.subscriber.deliveries.reception.give_up(self.subscriber, why)

    def pass_by(self, position: int) -> bool:
        """A large delivery at this log position waits, or would wait, for an open one. So would everybody else who gets
        it, and maybe the publisher of the open one for its turn. So it passes by, and is asked for afterwards (protocol
        6.12.14). Says whether it does."""
        subscriber = self.subscriber
        if self.open is None or not self._awaits(position):
            return False
        delivery = subscriber.irregular.bound.get(position)
        if delivery is not None:
            if delivery.resume is Resume.FILLED:
                delivery.resume = Resume.PLACEHOLDER
            elif delivery in subscriber.irregular.released:
                subscriber.irregular.released.remove(delivery)
            delivery.payload = None
            subscriber.irregular.filled.pop(position, None)
        self.passed_by[position] = False
        return True

    def forget_passed_by(self, start: int, stop: int) -> bool:
        """These log positions are settled, or void. Says whether one of them had passed by."""
        found = [each for each in self.passed_by if start <= each < stop]
        for position in found:
            del self.passed_by[position]
        return bool(found)

    def limit(self, end: int) -> int:
        """Returns where in the log it has to stop: behind what has passed by comes what is later in its stream."""
        return min(self.passed_by, default=end)

    def check_invariants(self) -> None:
        subscriber, partial = self.subscriber, self.partial
        alive = subscriber.deliveries.log.alive
        assert all(at in alive and at >= subscriber.cursor for at in self.passed_by)
        if partial is not None:
            assert subscriber in subscriber.deliveries.ready, "nobody looks whether it may go on"
            assert partial.delivery is subscriber.irregular.find(partial.tag)
            assert partial.body is None or partial.offset >= partial.body.start, "its beginning is gone"
            assert partial.body is not None or partial.resumes
