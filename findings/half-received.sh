#!/usr/bin/env bash
# python-qpid-proton and rhea: both reconnect by themselves, and both keep a delivery of which only a part had come.
#
#   - If the first delivery of the new connection has the same delivery-id, the two are joined into one message that
#     nobody has sent: here the properties of one and the body of the other.
#   - If it has another one, the client takes it for an error of its peer, ends the connection, comes back, and so on.
#
# Delivery-ids belong to a session (AMQP 1.0 part 2, section 2.8.2), and the session has ended with its connection.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check python-qpid-proton==0.40.0
npm install --silent --no-audit --no-fund --prefix "$folder" rhea@3.0.5 >"$folder/npm.log"

cat >"$folder/peer.py" <<'PYTHON'
"""peer.py WHOLE: sends WHOLE messages and a part of A, loses the connection; on each later one it sends B."""

import socket
import sys

from proton import Handler, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

BODY = b"\x00\x53\x77"  # where an amqp-value section begins
A = Message(subject="of A", body="body of A").encode()
B = Message(body="body of B").encode()


class Cut(Handler):
    def __init__(self, connection):
        super().__init__()
        self.connection = connection

    def on_timer_task(self, event):
        self.connection.transport._selectable._delegate.shutdown(socket.SHUT_RDWR)


class Peer(MessagingHandler):
    def __init__(self, whole):
        super().__init__()
        self.whole, self.connections, self.served = whole, 0, 0

    def on_start(self, event):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.listener = event.container.listen(f"127.0.0.1:{port}")
        print(port, flush=True)

    def on_connection_opening(self, event):
        self.connections += 1

    def on_sendable(self, event):
        if self.served == self.connections:
            return
        self.served = self.connections
        link = event.sender
        if self.connections == 1:
            for number in range(self.whole):
                link.send(Message(body=f"whole {number}"))
            link.delivery("A")
            link.stream(A[: A.index(BODY)])
            self.cut = event.container.schedule(0.3, Cut(event.connection))
        else:
            link.delivery("B")
            link.stream(B[B.index(BODY) :])  # a message is its body alone, if it has no other section
            link.advance()

    def on_transport_error(self, event):
        pass


Container(Peer(int(sys.argv[1]))).run()
PYTHON

cat >"$folder/with_proton.py" <<'PYTHON'
import sys
from importlib.metadata import version

from proton.handlers import MessagingHandler
from proton.reactor import Container


class Receiver(MessagingHandler):
    connections = 0

    def on_start(self, event):
        connection = event.container.connect(f"127.0.0.1:{sys.argv[1]}", reconnect=[0.1] * 100)
        event.container.create_receiver(connection, "q")
        self.end = event.container.schedule(2, self)

    def on_timer_task(self, event):
        print("connections:", "3 and more" if self.connections > 2 else self.connections)
        event.container.stop()

    def on_connection_opened(self, event):
        self.connections += 1

    def on_transport_error(self, event):
        if self.connections == 2:
            print("error:", event.transport.condition.description)

    def on_message(self, event):
        print("message:", event.message.subject, "/", event.message.body)


print("python-qpid-proton", version("python-qpid-proton"))
Container(Receiver()).run()
PYTHON

cat >"$folder/with_rhea.js" <<'NODE'
const container = require('rhea').create_container();
let connections = 0;
console.log('rhea', require('rhea/package.json').version);
container.on('connection_open', () => connections++);
container.on('error', (error) => connections === 2 && console.log('error:', error.message));
container.on('disconnected', () => {});
container.on('message', ({message}) => console.log('message:', message.subject || 'None', '/', message.body));
container.connect({host: '127.0.0.1', port: Number(process.argv[2]), reconnect: 100}).open_receiver('q');
setTimeout(() => {
  console.log('connections:', connections > 2 ? '3 and more' : connections);
  process.exit();
}, 2000);
NODE

play() { # WHOLE PROGRAM...
    local peer port
    "$folder/venv/bin/python" "$folder/peer.py" "$1" >"$folder/port" & peer=$!
    until [ -s "$folder/port" ]; do kill -0 "$peer"; sleep 0.1; done
    port=$(cat "$folder/port")
    : >"$folder/port"
    shift
    (cd "$folder" && timeout 20 "$@" "$port")
    kill "$peer"
    wait "$peer" 2>/dev/null || true
}

{
    for whole in 0 1; do
        echo "--- $whole whole message(s), a part of A, the connection is lost, B.  Expected: B, on the next connection"
        play "$whole" "$folder/venv/bin/python" with_proton.py
        play "$whole" node with_rhea.js
    done
} | tee "$folder/seen"

diff "$folder/seen" - <<'AS_FOUND'
--- 0 whole message(s), a part of A, the connection is lost, B.  Expected: B, on the next connection
python-qpid-proton 0.40.0
message: of A / body of B
connections: 2
rhea 3.0.5
message: of A / body of B
connections: 2
--- 1 whole message(s), a part of A, the connection is lost, B.  Expected: B, on the next connection
python-qpid-proton 0.40.0
message: None / whole 0
error: invalid delivery-id for a continuation transfer
connections: 3 and more
rhea 3.0.5
message: None / whole 0
error: frame sequence error: delivery 1 not complete, got 0
connections: 3 and more
AS_FOUND
echo "as found"
