#!/usr/bin/env bash
# python-qpid-proton: a Container reconnects by itself, and its links live on.
#
#   - Of a message that was partly on the wire when the connection was lost, the new connection gets the rest alone, as
#     a whole delivery.  Its receiver cannot tell; the sender hears "accepted".
#   - An application that settles a delivery of the lost connection makes proton send its tag with no payload.
#
# AMQP 1.0 knows two ways to go on: to resume the delivery (resume = true; part 2, section 2.6.13), or to send it anew.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check python-qpid-proton==0.40.0
timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import socket
import threading
from importlib.metadata import version

from proton import Delivery, Handler, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

TEXT = "".join(f"{n:05d} " for n in range(500))
ENCODED = Message(body=TEXT).encode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Later(Handler):
    def __init__(self, does):
        super().__init__()
        self.does = does

    def on_timer_task(self, event):
        self.does(event)


def cut(connection):
    connection.transport._selectable._delegate.shutdown(socket.SHUT_RDWR)


class Peer(MessagingHandler):
    """The first connection is lost: in the middle of the message if its window is `narrow`, else when it has come."""

    def __init__(self, port, narrow):
        super().__init__(prefetch=0, auto_accept=False)
        self.port, self.narrow, self.connections, self.got, self.seen = port, narrow, 0, [], 0
        self.ready = threading.Event()

    def on_start(self, event):
        self.listener = event.container.listen(f"127.0.0.1:{self.port}")
        self.ready.set()

    def on_connection_opening(self, event):
        self.connections += 1
        event.connection.transport.max_frame_size = 600

    def on_session_opening(self, event):
        if self.narrow and self.connections == 1:
            event.session.incoming_capacity = 1200  # two frames

    def on_link_opening(self, event):
        event.link.target.copy(event.link.remote_target)
        event.link.open()
        event.link.flow(10)

    def on_delivery(self, event):
        delivery, first = event.delivery, self.connections == 1
        if delivery.partial:
            if first and delivery.pending > 600:
                self.seen = delivery.pending
                cut(event.connection)
            return
        payload = bytes(delivery.link.recv(delivery.pending) or b"")
        delivery.link.advance()
        self.got.append((delivery.tag, payload))
        if first:
            cut(event.connection)
        else:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()


class Sender(MessagingHandler):
    def __init__(self, port, settles):
        super().__init__(auto_settle=False)
        self.port, self.settles, self.delivery, self.heard, self.opened = port, settles, None, [], 0

    def on_start(self, event):
        connection = event.container.connect(f"127.0.0.1:{self.port}", reconnect=[0.05] * 100)
        event.container.create_sender(connection, "q")
        self.end = event.container.schedule(3, Later(lambda event: event.container.stop()))

    def on_link_opened(self, event):
        self.opened += 1

    def on_sendable(self, event):
        if self.delivery is None:
            self.delivery = event.sender.send(Message(body=TEXT))
        elif self.settles and self.opened == 2:
            self.settles = False
            self.delivery.settle()

    def on_transport_error(self, event):
        pass  # the loss

    def on_accepted(self, event):
        self.heard.append(event.delivery.tag)


def play(narrow):
    port = free_port()
    peer, sender = Peer(port, narrow), Sender(port, settles=not narrow)
    threading.Thread(target=Container(peer).run, daemon=True).start()
    assert peer.ready.wait(10)
    Container(sender).run()
    return peer, sender


print("python-qpid-proton", version("python-qpid-proton"))

peer, sender = play(narrow=True)
[(tag, payload)] = peer.got
print(f"half sent: one message of {len(ENCODED)} bytes; {peer.seen} had come when the connection was lost")
print(f"  expected then: all of it again, or nothing.  Came: tag {tag}, {len(payload)} bytes: {payload[:12]!r} ...")
print(f"  the sender was told: accepted {sender.heard}")
assert payload == ENCODED[-len(payload):] and 0 < len(payload) < len(ENCODED) and sender.heard == [tag]

peer, sender = play(narrow=False)
print("settled late: one message had come whole; its delivery is settled after the reconnection")
print(f"  expected then: nothing.  Came, in all: {[(tag, len(payload)) for tag, payload in peer.got]} (tag, bytes)")
assert [len(payload) for _, payload in peer.got] == [len(ENCODED), 0] and peer.got[0][0] == peer.got[1][0]
PYTHON
echo "as found"
