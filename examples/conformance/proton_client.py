"""python-qpid-proton as a client under test: `onceway conformance -- python examples/conformance/proton_client.py`.

proton presents no unsettled map, so the publisher promises unique tags, and the subscriber drops repeats by tag
(docs/clients.md). It reads orders from standard input and says what happens, a line each (docs/write-a-client.md).
"""

import os
import sys
import threading

from cproton_ffi import ffi, lib
from proton import Delivery, Link, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector, LinkOption

FINAL = ("amqp:not-allowed", "amqp:unauthorized-access", "onceway:subscription-removed")
VERDICTS = {"accept": Delivery.ACCEPTED, "reject": Delivery.REJECTED, "release": Delivery.RELEASED}


def say(*words: str) -> None:
    print(*words, flush=True)


class Modes(LinkOption):
    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND
        if link.is_sender:
            link.properties = {symbol("onceway:unique-tags"): True}
        else:
            link.source.timeout = 30


class Client(MessagingHandler):
    def __init__(self, orders: EventInjector) -> None:
        super().__init__(auto_accept=False, auto_settle=False)
        self.orders = orders
        self.undecided: dict[str, str] = {}  # tag -> body, in order
        self.unsent: list[str] = []  # tags
        self.number = 0
        self.held: dict[bytes, tuple[str, object]] = {}  # tag -> body, verdict
        self.deliveries: dict[str, tuple[bytes, Delivery]] = {}  # body -> of the present link
        self.opened = self.over = False

    def on_start(self, event) -> None:
        self.container = event.container
        self.container.container_id = "proton-conformance"
        self.container.selectable(self.orders)

    # -- orders

    def on_order(self, event) -> None:
        order, *words = event.subject
        if order in ("publisher", "subscriber"):
            self.role, self.address = order, words[0]
            self.connect()
        elif order == "send":
            self.number += 1
            self.undecided[str(self.number)] = words[0]
            self.unsent.append(str(self.number))
            self.push()
        elif order in VERDICTS:
            tag, delivery = self.deliveries[words[0]]
            self.held[tag] = words[0], VERDICTS[order]
            delivery.update(VERDICTS[order])
        else:
            self.end()

    # -- connections

    def connect(self) -> None:
        self.opened = False
        self.connection = self.container.connect(os.environ["ONCEWAY_URL"], reconnect=False)
        self.unsent = list(self.undecided)
        make = self.container.create_sender if self.role == "publisher" else self.container.create_receiver
        self.link = make(self.connection, self.address, name="link", options=[Modes()])

    def on_disconnected(self, event) -> None:
        if not self.over and event.connection == self.connection:
            self.lost()

    def on_timer_task(self, event) -> None:
        self.connect()

    def on_link_opened(self, event) -> None:
        given = (event.link.remote_properties or {}).get(symbol("onceway:guarantee"))
        if given is not None and given != "exactly-once":
            self.give_up(f"the address gives {given}")
        self.opened = not self.over
        self.push()

    def on_link_error(self, event) -> None:
        condition = event.link.remote_condition
        if condition.name in FINAL:
            self.give_up(condition.name)
        else:
            event.connection.close()
            self.lost()

    def lost(self) -> None:
        self.connection, self.opened = None, False
        self.container.schedule(0.05, self)

    def give_up(self, why: str) -> None:
        say("gave-up", why)
        self.end()

    def end(self) -> None:
        self.opened, self.over = False, True
        if self.connection is not None:
            self.connection.close()

    # -- the publisher

    def push(self) -> None:
        while self.role == "publisher" and self.opened and self.unsent and self.link.credit:
            tag = self.unsent.pop(0)
            self.link.send(Message(body=self.undecided[tag].encode(), inferred=True), tag=tag)

    def on_sendable(self, event) -> None:
        self.push()

    def on_link_flow(self, event) -> None:
        if event.link.is_sender and event.link.drain_mode and not self.unsent:
            event.link.drained()

    def decided(self, event, outcome: str) -> None:
        body = self.undecided.pop(event.delivery.tag, None)
        event.delivery.settle()
        if body is not None:
            say(outcome, body)

    def on_accepted(self, event) -> None:
        self.decided(event, "accepted")

    def on_rejected(self, event) -> None:
        self.decided(event, "rejected")

    def on_released(self, event) -> None:
        self.decided(event, "released")

    # -- the subscriber

    def on_message(self, event) -> None:
        delivery, body = event.delivery, bytes(event.message.body).decode()
        raw = lib.pn_delivery_tag(delivery._impl)  # Delivery.tag wants text
        tag = bytes(ffi.buffer(raw.start, raw.size))
        _, verdict = self.held.get(tag, (body, None))
        self.deliveries[body] = tag, delivery
        if tag not in self.held or verdict == Delivery.RELEASED:
            self.held[tag] = body, None
            say("received", body)
        elif verdict is not None:
            delivery.update(verdict)

    def on_settled(self, event) -> None:
        event.delivery.settle()


def read(orders: EventInjector) -> None:
    for line in sys.stdin:
        orders.trigger(ApplicationEvent("order", subject=line.split()))


say("client", "publisher", "subscriber")
orders = EventInjector()
threading.Thread(target=read, args=(orders,), daemon=True).start()
Container(Client(orders)).run()
os._exit(0)
