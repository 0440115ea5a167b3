"""The protocol half of an AMQP echo server: bytes and time in, bytes out. It knows no sockets and no clock.

    asyncio_echo.py and trio_echo.py beside it move the bytes.

A client's messages to an address come back to the same client, on a receiver that it has attached to that address. A
delivery is accepted when its echo has been sent. Until then it counts against the credit of its link, so a client that
does not receive is soon not allowed to send.
"""

from collections import deque

from amqp10 import (
    ACCEPTED,
    RCV_FIRST,
    SND_SETTLED,
    Connection,
    ConnectionClosed,
    ConnectionSettings,
    Dispositions,
    Error,
    Event,
    FrameTooLarge,
    Link,
    LinkAttaching,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    Rejected,
    ResumedTransfer,
    SenderLink,
    SessionEnded,
    Source,
    Target,
    Transfers,
)
from amqp10.errors import CONNECTION_FORCED, MESSAGE_SIZE_EXCEEDED, NOT_IMPLEMENTED, RESOURCE_LIMIT_EXCEEDED
from amqp10.sasl import server_mechanisms

CREDIT = 10  # messages of one link that wait here to be echoed, at most
SETTINGS = ConnectionSettings(
    container_id="echo", sasl=server_mechanisms(), idle_timeout_s=16.0, max_frame_size=65536, max_message_size=1 << 20
)


class Echo:
    """One client's connection: call `turn` with what has come, and when `connection.next_deadline()` is reached."""

    def __init__(self, now: float) -> None:
        self.connection = Connection(SETTINGS, server=True, now=now)
        self.waiting: dict[ReceiverLink, deque[tuple[Transfers, int]]] = {}  # run, and place in it
        self.subscribers: dict[SenderLink, bool] = {}  # the client waits for an answer to drain
        self.sent = 0

    def turn(self, data: bytes | None, now: float) -> bytes:
        """What is to be written. data: what has come; b"": nothing more will come; None: only time has passed."""
        events: list[Event] = []
        if data:
            events = self.connection.receive_data(data, now)
        elif data is not None:
            events = self.connection.receive_eof(now)
        for event in events:
            self.handle(event)
        for event in self.connection.handle_timer(now):
            self.handle(event)
        self.echo()
        return self.connection.data_to_send()

    def stop(self) -> None:
        """Close the connection. The client's answer, or its silence, ends it in a later turn."""
        self.connection.close(Error(CONNECTION_FORCED, "the server stops"))

    def handle(self, event: Event) -> None:
        match event:
            case LinkAttaching(link=link):
                self.attach(link)
            case Transfers(link=link):
                self.waiting[link].extend((event, place) for place in range(len(event.tags)))
            case ResumedTransfer(link=link, delivery_id=delivery_id, settled=False):  # we have offered no resumption
                refusal = Rejected(Error(NOT_IMPLEMENTED, "no resumption, no transactions"))
                link.dispose(delivery_id, delivery_id, refusal, settled=link.rcv_settle_mode == RCV_FIRST)
            case Dispositions(link=SenderLink() as link, settled=False):  # mode second: the client waits for us
                link.settle(event.first_id, event.last_id)
            case LinkFlow(link=SenderLink() as link) if link in self.subscribers:
                self.subscribers[link] = link.drain
            case LinkDetached(link=link):
                self.forget([link])
            case SessionEnded(session=session):
                self.forget(session.links)
            case ConnectionClosed():
                self.waiting.clear()
                self.subscribers.clear()

    def attach(self, link: Link) -> None:
        theirs = link.remote_attach
        terminus = theirs.source if link.is_sender else theirs.target
        if not isinstance(terminus, Source | Target) or terminus.dynamic or not terminus.address:
            link.refuse(NOT_IMPLEMENTED, "a terminus without an address")
            return
        link.context = terminus.address
        try:  # our own terminus says what we do: no filter, not durable; the settle modes are the client's
            if isinstance(link, SenderLink):
                link.attach(source=Source(terminus.address), target=theirs.target)
                self.subscribers[link] = False
            else:
                link.attach(source=theirs.source, target=Target(terminus.address))
                link.grant(CREDIT)
                self.waiting[link] = deque()
        except FrameTooLarge as error:
            link.refuse(RESOURCE_LIMIT_EXCEEDED, str(error))

    def forget(self, links: list[Link]) -> None:
        for link in links:
            self.waiting.pop(link, None)
            self.subscribers.pop(link, None)

    def echo(self) -> None:
        for link, waiting in self.waiting.items():
            while waiting and self.sends(link, *waiting[0]):
                waiting.popleft()
            room = CREDIT - len(waiting)
            if link.credit * 2 < room:  # not a flow for every message
                link.grant(room)
        for subscriber, drain in self.subscribers.items():
            more = any(waiting for link, waiting in self.waiting.items() if link.context == subscriber.context)
            if drain and not (more and subscriber.credit):
                subscriber.drained()
                self.subscribers[subscriber] = False

    def sends(self, link: ReceiverLink, run: Transfers, place: int) -> bool:
        """Echo one delivery and settle it; False while no receiver takes it."""
        takers = (each for each in self.subscribers if each.context == link.context and each.capacity())
        subscriber = next(takers, None)
        if subscriber is None:
            return False
        payload, most = run.payloads[place], subscriber.remote_max_message_size
        outcome = ACCEPTED
        if most is not None and len(payload) > most:
            outcome = Rejected(Error(MESSAGE_SIZE_EXCEEDED, f"the receiver takes {most} bytes"))
        else:
            self.sent += 1
            settled = subscriber.snd_settle_mode == SND_SETTLED
            tag = self.sent.to_bytes(8, "big")
            subscriber.send([tag], [payload], settled=settled, message_format=run.message_format or 0)
        if not run.settled:  # in mode second the client settles when it has read the outcome
            mode = link.rcv_settle_mode if run.rcv_settle_mode is None else run.rcv_settle_mode
            delivery_id = run.first_id + place
            link.dispose(delivery_id, delivery_id, outcome, settled=mode == RCV_FIRST)
        return True
