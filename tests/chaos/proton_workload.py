"""What a careful user of python-qpid-proton writes for exactly-once: both links in rcv-settle-mode second.

The publisher keeps its container-id and link name, promises with the link property `onceway:unique-tags` that it
never uses a tag twice, sets the tags itself (proton's own restart at 1 with every link), settles in on_accepted, and
sends again what has no outcome yet, in order, when it has come to another router.  The subscriber asks for a timeout
at its source, accepts, waits for the router's settlement before it settles, and drops repeats by delivery-tag.
"""

from __future__ import annotations

import argparse
import signal
import time
from typing import Any

from proton import Delivery, Link, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption

from tests.chaos.ledger import Ledger, body, read_body
from tests.interop.raw import tag_of

RETRY_S = 0.05
TICK_S = 0.01


class _UniqueTags(LinkOption):  # type: ignore[misc]
    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND
        if link.is_sender:
            link.properties = {symbol("onceway:unique-tags"): True}
        else:
            link.source.timeout = 30


class _Moving(MessagingHandler):  # type: ignore[misc]
    """Connects to the next router of the list whenever the one before is gone, or has said no."""

    def __init__(self, args: argparse.Namespace, ledger: Ledger, **options: Any) -> None:
        super().__init__(auto_settle=False, **options)
        self.args, self.ledger = args, ledger
        self.urls: list[str] = args.urls.split(",")
        self.attempts = 0
        self.link: Any = None
        self.connection: Any = None
        self.retry_at = 0.0
        self.ready = self.ending = False

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.container.container_id = self.args.name
        self.connect()
        self.container.schedule(TICK_S, self)

    def connect(self) -> None:
        url = self.urls[self.attempts % len(self.urls)]
        self.attempts += 1
        self.retry_at = 0.0
        self.connection = self.container.connect(url, reconnect=False, heartbeat=4)
        self.link = self.attach(self.connection)

    def attach(self, connection: Any) -> Any:
        raise NotImplementedError

    def on_timer_task(self, event: Any) -> None:
        if self.retry_at and time.monotonic() >= self.retry_at and not self.ending:
            self.connect()
        self.tick()
        if not self.ending:
            self.container.schedule(TICK_S, self)

    def tick(self) -> None:
        pass

    def on_link_opened(self, event: Any) -> None:
        self.ledger.write(f"note attached at {event.connection.connected_address}")
        if not self.ready:
            self.ready = True
            print("READY", flush=True)

    def lost(self, connection: Any, why: object) -> None:
        if connection is not None and connection != self.connection:
            return
        if not self.ending and not self.retry_at:
            self.ledger.write(f"note lost: {why}")
            self.link = None
            self.retry_at = time.monotonic() + RETRY_S

    def on_transport_error(self, event: Any) -> None:
        self.lost(event.connection, event.transport.condition)

    def on_disconnected(self, event: Any) -> None:
        self.lost(event.connection, "disconnected")

    def on_connection_closed(self, event: Any) -> None:
        event.connection.close()
        self.lost(event.connection, event.connection.remote_condition)

    on_connection_error = on_connection_closed

    def on_link_closed(self, event: Any) -> None:
        event.connection.close()
        self.lost(event.connection, event.link.remote_condition)

    on_link_error = on_link_closed

    def end(self) -> None:
        self.ending = True
        if self.link is not None:
            self.link.close()
        self.connection.close()


class Publisher(_Moving):
    def __init__(self, args: argparse.Namespace, ledger: Ledger) -> None:
        super().__init__(args, ledger)
        self.next = 0
        self.undecided: dict[int, None] = {}  # sent and without outcome, in order
        self.again: list[int] = []  # of these, what has to be sent on this link, last first
        self.started = 0.0

    def attach(self, connection: Any) -> Any:
        self.again = list(reversed(self.undecided))
        return self.container.create_sender(connection, self.args.address, name="orders", options=[_UniqueTags()])

    def on_sendable(self, event: Any) -> None:
        self.tick()

    def tick(self) -> None:
        if self.link is None or not self.link.credit:
            return
        self.started = self.started or time.monotonic()
        due = min(self.args.count, int((time.monotonic() - self.started) * self.args.rate) + 1)
        while self.link.credit and self.again:
            self.send(self.again.pop())
        while self.link.credit and self.next < due:
            self.ledger.write(f"sent {self.next}")
            self.undecided[self.next] = None
            self.send(self.next)
            self.next += 1

    def send(self, number: int) -> None:
        message = Message(body=body(self.args.name, number), inferred=True)
        self.link.send(message, tag=str(number))

    def on_accepted(self, event: Any) -> None:
        number = int(event.delivery.tag)
        if number in self.undecided:
            del self.undecided[number]
            self.ledger.write(f"accepted {number}")
        event.delivery.settle()
        if self.next == self.args.count and not self.undecided and not self.ending:
            print("DONE", flush=True)
            self.end()

    def on_rejected(self, event: Any) -> None:
        self.ledger.write(f"note rejected {event.delivery.tag}")
        event.delivery.settle()

    on_released = on_rejected


class Subscriber(_Moving):
    def __init__(self, args: argparse.Namespace, ledger: Ledger) -> None:
        super().__init__(args, ledger, prefetch=500, auto_accept=False)
        self.seen: set[bytes] = set()
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_: object) -> None:
        self.stopping = True

    def tick(self) -> None:
        if self.stopping and not self.ending:
            self.end()

    def attach(self, connection: Any) -> Any:
        return self.container.create_receiver(connection, self.args.address, name="orders", options=[_UniqueTags()])

    def on_message(self, event: Any) -> None:
        delivery = event.delivery
        tag = tag_of(delivery)
        if tag not in self.seen:
            self.seen.add(tag)
            publisher, number = read_body(bytes(event.message.body))
            self.ledger.write(f"handed {publisher} {number}", f"accepted {publisher} {number}")
        delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        event.delivery.settle()


def run(args: argparse.Namespace, ledger: Ledger) -> None:
    Container((Publisher if args.what == "publish" else Subscriber)(args, ledger)).run()
