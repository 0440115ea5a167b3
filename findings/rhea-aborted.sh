#!/usr/bin/env bash
# rhea: a delivery that its sender has aborted is handed to the application as a message.
#
# AMQP 1.0 part 2, section 2.7.5, transfer.aborted: "Aborted messages SHOULD be discarded by the recipient".
# rhea decodes the flag and does not look at it: the last transfer ends the delivery, and what had come is a message.
# Here that is a first data section, of several.  The peer is python-qpid-proton, which has `abort()`; its own receiver,
# for comparison, is told `on_aborted` and gets no message.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check python-qpid-proton==0.40.0
npm install --silent --no-audit --no-fund --prefix "$folder" rhea@3.0.5 >"$folder/npm.log"

cat >"$folder/peer.py" <<'PYTHON'
import socket

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

FIRST = Message(inferred=True, body=b"transfer 1 gold to Bob").encode()


class Peer(MessagingHandler):
    """Sends a first data section with more = true, aborts, and sends a whole message."""

    def on_start(self, event):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.listener = event.container.listen(f"127.0.0.1:{port}")
        self.served = set()
        print(port, flush=True)

    def on_sendable(self, event):
        if event.link.name in self.served:
            return
        self.served.add(event.link.name)
        self.link, self.delivery = event.link, event.link.delivery("half")
        self.link.stream(FIRST)
        self.later = event.container.schedule(0.3, self)

    def on_timer_task(self, event):
        self.delivery.abort()
        self.link.send(Message(inferred=True, body=b"a whole message"))


Container(Peer()).run()
PYTHON

cat >"$folder/with_proton.py" <<'PYTHON'
import sys
from importlib.metadata import version

from proton.handlers import MessagingHandler
from proton.reactor import Container


class Receiver(MessagingHandler):
    def on_start(self, event):
        event.container.create_receiver(event.container.connect(f"127.0.0.1:{sys.argv[1]}"), "q", name="proton")

    def on_aborted(self, event):
        print("aborted")

    def on_message(self, event):
        print("message:", bytes(event.message.body).decode())
        event.connection.close()


print("python-qpid-proton", version("python-qpid-proton"))
Container(Receiver()).run()
PYTHON

cat >"$folder/with_rhea.js" <<'NODE'
const container = require('rhea').create_container();
console.log('rhea', require('rhea/package.json').version);
container.on('message', ({message, connection}) => {
  const body = message.body.content.toString();
  console.log('message:', body);
  if (body === 'a whole message') connection.close();
});
container.connect({host: '127.0.0.1', port: Number(process.argv[2])}).open_receiver({name: 'rhea', source: 'q'});
NODE

"$folder/venv/bin/python" "$folder/peer.py" >"$folder/port" & peer=$!
trap 'kill "$peer" 2>/dev/null || true; rm -rf "$folder"' EXIT
until [ -s "$folder/port" ]; do kill -0 "$peer"; sleep 0.1; done
cd "$folder"
{
    timeout 20 "$folder/venv/bin/python" with_proton.py "$(cat port)"
    timeout 20 node with_rhea.js "$(cat port)"
} | tee seen

diff seen - <<'AS_FOUND'
python-qpid-proton 0.40.0
aborted
message: a whole message
rhea 3.0.5
message: transfer 1 gold to Bob
message: a whole message
AS_FOUND
echo "as found: the second line of rhea should not be there"
