"""proton's own example simple_recv, with a choice of mode: simple_recv.py URL COUNT [unsettled|pre-settled|second]."""

import sys

from proton import Link
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container, LinkOption


class ExactlyOnce(LinkOption):
    def apply(self, link):
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND


class Recv(MessagingHandler):
    def __init__(self, url, count, mode):
        super().__init__()
        self.url = url
        self.expected = count
        self.received = 0
        self.option = {"unsettled": AtLeastOnce, "pre-settled": AtMostOnce, "second": ExactlyOnce}[mode]()

    def on_start(self, event):
        event.container.create_receiver(self.url, options=self.option)

    def on_link_opened(self, event):
        print("attached", flush=True)

    def on_message(self, event):
        if event.message.id and event.message.id < self.received:
            # ignore duplicate message
            return
        if self.expected == 0 or self.received < self.expected:
            print(event.message.body, flush=True)
            self.received += 1
            if self.received == self.expected:
                event.receiver.close()
                event.connection.close()


Container(Recv(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "unsettled")).run()
