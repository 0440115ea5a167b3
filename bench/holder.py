"""`python -m bench.holder HOST:PORT ADDRESS N`: leaves N accepted deliveries unsettled, and says HELD.

One publisher in rcv-settle-mode second that never settles, and one subscriber that accepts everything, those N and
whatever else comes to the address, and waits for the settlements.  Runs until it is killed.  proton, so that it can
be pointed at any peer.
"""

from __future__ import annotations

import sys
from typing import Any

from proton import Delivery, Handler, Link
from proton.reactor import Container, LinkOption

_PAYLOAD = b"\x00\x53\x75\xa0\x40" + b"h" * 64


class _Second(LinkOption):
    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND


class Holder(Handler):  # no MessagingHandler: it would read, accept and settle by itself
    def __init__(self, url: str, address: str, count: int) -> None:
        super().__init__()
        self.url, self.address, self.count = url, address, count
        self.sent = self.accepted = 0
        self.sender: Any = None
        self.held: list[Any] = []

    def on_reactor_init(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False)
        self.receiver = event.container.create_receiver(connection, self.address, name="keeper", options=[_Second()])
        self.receiver.flow(2_000)

    def on_link_remote_open(self, event: Any) -> None:
        if event.link.is_receiver and self.sender is None:
            connection = event.container.connect(self.url, reconnect=False)
            self.sender = event.container.create_sender(connection, self.address, name="holder", options=[_Second()])

    def on_link_flow(self, event: Any) -> None:
        self.send()

    def send(self) -> None:
        sender = self.sender
        while sender is not None and sender.credit and self.sent < self.count:
            self.held.append(sender.delivery(b"%d" % self.sent))
            sender.stream(_PAYLOAD)
            sender.advance()
            self.sent += 1

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if event.link.is_receiver:
            if delivery.readable and not delivery.partial:
                event.link.recv(delivery.pending)
                event.link.advance()
                delivery.update(Delivery.ACCEPTED)
                if event.link.credit < 1_000:
                    event.link.flow(1_000)
            elif delivery.settled and not delivery.readable:
                delivery.settle()
        elif delivery.remote_state == Delivery.ACCEPTED:
            self.accepted += 1
            if self.accepted == self.count:
                print("HELD", flush=True)
            self.send()


def main() -> None:
    url, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    Container(Holder(f"amqp://{url}", address, count)).run()


if __name__ == "__main__":
    main()
