"""proton's own example simple_send, with a choice of mode: simple_send.py URL COUNT [unsettled|pre-settled|second]."""

import sys

from proton import Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container, LinkOption


class ExactlyOnce(LinkOption):
    def apply(self, link):
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND


class Send(MessagingHandler):
    def __init__(self, url, messages, mode):
        super().__init__()
        self.url = url
        self.sent = 0
        self.confirmed = 0
        self.total = messages
        self.presettled = mode == "pre-settled"
        self.option = {"unsettled": AtLeastOnce, "pre-settled": AtMostOnce, "second": ExactlyOnce}[mode]()

    def on_start(self, event):
        event.container.create_sender(self.url, options=self.option)

    def on_sendable(self, event):
        while event.sender.credit and self.sent < self.total:
            msg = Message(id=(self.sent + 1), body={"sequence": (self.sent + 1)})
            event.sender.send(msg)
            self.sent += 1
        if self.presettled and self.sent == self.total and self.confirmed != self.total:
            self.confirmed = self.total
            print(f"{self.total} messages sent", flush=True)
            event.connection.close()

    def on_accepted(self, event):
        self.confirmed += 1
        if self.confirmed == self.total:
            print(f"{self.total} messages confirmed", flush=True)
            event.connection.close()

    def on_disconnected(self, event):
        self.sent = self.confirmed


Container(Send(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "unsettled")).run()
