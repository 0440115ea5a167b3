"""What a careful user of python-qpid-proton writes for exactly-once: both links in rcv-settle-mode second.

The publisher keeps its container-id and link name, promises with the link property `onceway:unique-tags` that it never
uses a tag twice, sets the tags itself (proton's own restart at 1 with every link), settles in on_accepted, and sends
again what has no outcome yet, in order, when it has come to another router.  The subscriber asks for a timeout at its
source, accepts, waits for the router's settlement before it settles, and drops repeats by delivery-tag.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cproton_ffi import ffi, lib
from proton import SASL, Delivery, Link, Message, SSLDomain, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption

from chaos.judge.history import Writer
from chaos.live.clients.options import LINK, body, read_body, say

RETRY_S = 0.05
RETRY_MOST_S = 1.0
TICK_S = 0.01


def run(args: SimpleNamespace, history: Writer) -> None:
    Container((_Publisher if args.what == "publish" else _Subscriber)(args, history)).run()


def _login(args: SimpleNamespace) -> dict[str, Any]:
    """proton compares names of certificates with names in URLs only: for addresses the authority says enough."""
    if args.ca is None:
        return {}
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(args.ca)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
    if args.password_file is None:
        return {"ssl_domain": domain}
    domain.set_credentials(args.certificate, args.certificate, None)
    mechanisms = "SCRAM-SHA-256" if SASL.extended() else "PLAIN"
    password = Path(args.password_file).read_text().strip()
    return {"ssl_domain": domain, "user": args.name, "password": password, "allowed_mechs": mechanisms}


class _Modes(LinkOption):
    def __init__(self, args: SimpleNamespace) -> None:
        self.settle, self.timeout = args.settle, args.timeout

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_SETTLED if self.settle == "presettled" else Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND if self.settle == "second" else Link.RCV_FIRST
        if link.is_sender:
            link.properties = {symbol("onceway:unique-tags"): True}
        else:
            link.source.timeout = int(self.timeout)


class _Moving(MessagingHandler):
    """Connects to the next router of the list whenever the one before is gone, or has said no."""

    role = ""

    def __init__(self, args: SimpleNamespace, history: Writer, **options: Any) -> None:
        super().__init__(auto_settle=False, **options)
        self.args, self.history = args, history
        self.who = {self.role: args.name}
        self.urls: list[str] = args.urls.split(",")
        self.login = _login(args)
        self.attempts = self.failures = 0
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
        self.connection = self.container.connect(url, reconnect=False, heartbeat=4, **self.login)
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
        link = event.link
        if link != self.link or not (link.remote_target if link.is_sender else link.remote_source).address:
            return  # of an abandoned connection, or refused: a detach follows
        self.failures = 0
        resumed = (link.remote_properties or {}).get(symbol("onceway:resumed"))
        self.history.write("attached", router=event.connection.remote_container, resumed=resumed, **self.who)
        if self.role == "s" and (not self.ready or resumed is False):
            if self.ready:
                self.history.write("told", why="the attach was answered with onceway:resumed = false", **self.who)
            self.history.write("ready", **self.who)
        if not self.ready:
            self.ready = True
            say("READY")

    def lost(self, connection: Any, why: object) -> None:
        if connection is not None and connection != self.connection:
            return
        if not self.ending and not self.retry_at:
            self.history.write("note", text=f"lost: {why}", **self.who)
            self.link = None
            self.retry_at = time.monotonic() + min(RETRY_MOST_S, RETRY_S * 2**self.failures)
            self.failures = min(self.failures + 1, 8)

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
        if event.connection == self.connection and not self.ending:
            condition = event.link.remote_condition
            if condition is not None and condition.name == "onceway:subscription-broken":
                self.history.write("told", why=str(condition.description), **self.who)
                self.ready = False
        self.lost(event.connection, event.link.remote_condition)

    on_link_error = on_link_closed

    def end(self) -> None:
        self.ending = True
        self.history.write("close", **self.who)
        if self.link is not None:
            self.link.close()
        self.connection.close()


class _Publisher(_Moving):
    role = "p"

    def __init__(self, args: SimpleNamespace, history: Writer) -> None:
        super().__init__(args, history)
        self.next = 0
        self.enough = False
        signal.signal(signal.SIGTERM, self.stop)
        self.undecided: dict[int, None] = {}  # sent and without outcome, in order
        self.again: list[int] = []  # of these, what has to be sent on this link, last first
        self.started = 0.0

    def attach(self, connection: Any) -> Any:
        self.again = list(reversed(self.undecided))
        return self.container.create_sender(connection, self.args.address, name=LINK, options=[_Modes(self.args)])

    def on_sendable(self, event: Any) -> None:
        self.tick()

    def tick(self) -> None:
        if self.link is None or not self.link.credit or self.ending:
            return
        now = time.monotonic()
        self.started = self.started or now
        while self.link.credit and self.again:
            self.send(self.again.pop())
        due = int((now - self.started) * self.args.rate) + 1
        if self.args.count is not None:
            due = min(self.args.count, due)
        elif self.is_time_up(now):
            due = self.next
        while self.link.credit and self.next < due:
            self.history.send(self.args.name, self.next)
            if self.args.settle != "presettled":
                self.undecided[self.next] = None
            self.send(self.next)
            self.next += 1
        self.look_done()

    def send(self, number: int) -> None:
        message = Message(body=body(self.args.name, number, self.args.size), inferred=True)
        delivery = self.link.send(message, tag=str(number))
        if self.args.settle == "presettled":
            delivery.settle()

    def stop(self, *_: object) -> None:
        self.enough = True

    def is_time_up(self, now: float) -> bool:
        return self.enough or (self.args.duration is not None and now >= self.started + self.args.duration)

    def look_done(self) -> None:
        count = self.args.count
        all_sent = self.next == count if count is not None else self.is_time_up(time.monotonic())
        written = self.args.settle != "presettled" or (self.link is not None and not self.link.queued)
        if self.started and all_sent and not self.undecided and written and not self.ending:
            say("DONE")
            self.end()

    def decided(self, event: Any, outcome: str) -> None:
        number = int(event.delivery.tag)
        if number in self.undecided:
            del self.undecided[number]
            self.history.outcome(self.args.name, number, outcome)
        event.delivery.settle()
        self.look_done()

    def on_accepted(self, event: Any) -> None:
        self.decided(event, "accepted")

    def on_rejected(self, event: Any) -> None:
        self.decided(event, "rejected")

    on_released = on_rejected


class _Subscriber(_Moving):
    role = "s"

    def __init__(self, args: SimpleNamespace, history: Writer) -> None:
        super().__init__(args, history, prefetch=args.credit, auto_accept=False)
        self.seen: set[bytes] = set()
        self.stopping = False
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_: object) -> None:
        self.stopping = True

    def tick(self) -> None:
        if self.stopping and not self.ending:
            self.end()

    def attach(self, connection: Any) -> Any:
        return self.container.create_receiver(connection, self.args.address, name=LINK, options=[_Modes(self.args)])

    def on_message(self, event: Any) -> None:
        delivery = event.delivery
        tag = tag_of(delivery)
        if tag not in self.seen:
            self.seen.add(tag)
            found = read_body(bytes(event.message.body))
            self.history.receive(self.args.name, found)
            if self.args.pause:
                time.sleep(self.args.pause)
            self.history.accept(self.args.name, found)
        if delivery.settled:
            delivery.settle()
            return
        delivery.update(Delivery.ACCEPTED)
        if self.args.settle != "second":
            delivery.settle()

    def on_settled(self, event: Any) -> None:
        event.delivery.settle()


def tag_of(delivery: Delivery) -> bytes:
    """The delivery-tag.  Python's `Delivery.tag` wants it to be UTF-8 text and raises UnicodeDecodeError else."""
    tag = lib.pn_delivery_tag(delivery._impl)
    return bytes(ffi.buffer(tag.start, tag.size))
