"""Publish and receive with Apache Qpid Proton (`pip install python-qpid-proton`), at least once.

    python examples/proton_client.py [URL]

Any AMQP 1.0 client works.  For exactly once, proton's links are opened in rcv-settle-mode second, and the application
keeps tags: docs/clients.md has the rules.
"""

import sys

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
TOTAL = 5


class Client(MessagingHandler):
    def __init__(self) -> None:
        super().__init__()
        self.sent = self.accepted = self.received = 0

    def on_start(self, event) -> None:
        self.connection = event.container.connect(URL, reconnect=False)
        event.container.create_receiver(self.connection, "proton")
        event.container.create_sender(self.connection, "proton")

    def on_sendable(self, event) -> None:
        while event.sender.credit and self.sent < TOTAL:
            event.sender.send(Message(body=f"message {self.sent}"))
            self.sent += 1

    def on_message(self, event) -> None:  # accepted when this returns
        print(f"received {event.message.body}")
        self.received += 1

    def on_accepted(self, event) -> None:
        self.accepted += 1
        if self.accepted == TOTAL:
            print(f"{self.accepted} accepted")
            self.connection.close()


Container(Client()).run()
