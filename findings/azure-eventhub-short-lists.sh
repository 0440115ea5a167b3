#!/usr/bin/env bash
# azure-eventhub 5.15.1 cannot talk to a peer that leaves out the null fields at the end of a performative.
#
# AMQP 1.0 encodes a performative as a list, and lets its last fields be left out where they are null (part 1, 1.4).
# Most libraries do.  The client takes each field by its index.  Of Qpid Proton as the peer, with the emulator's
# connection string (no TLS), it reads:
#
#   - an open of 4 fields: IndexError in _incoming_open, told as EventHubError("list index out of range ...")
#   - where the open has its tenth field (properties), a begin of 5 fields: the same in _incoming_begin
#
# So it was made for services that always write all fields.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check azure-eventhub==5.15.1 python-qpid-proton==0.40.0
timeout 120 "$folder/venv/bin/python" - <<'PYTHON'
import socket
import threading
import traceback
from importlib.metadata import version

from azure.eventhub import EventHubProducerClient
from azure.eventhub.exceptions import EventHubError
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Peer(MessagingHandler):
    def __init__(self, properties):
        super().__init__()
        self.properties = properties
        self.port = None
        self.listens = threading.Event()

    def on_start(self, event):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.acceptor = event.container.listen(f"127.0.0.1:{self.port}")
        self.listens.set()

    def on_connection_opening(self, event):
        if self.properties:
            event.connection.properties = self.properties


def attempt(properties):
    peer = Peer(properties)
    threading.Thread(target=Container(peer).run, daemon=True).start()
    peer.listens.wait()
    producer = EventHubProducerClient.from_connection_string(
        f"Endpoint=sb://127.0.0.1:{peer.port};SharedAccessKeyName=name;SharedAccessKey=a2V5;"
        "UseDevelopmentEmulator=true;EntityPath=hub",
        retry_total=0,
    )
    try:
        producer.create_batch()
    except EventHubError as error:
        cause = error.__context__
        where = traceback.extract_tb(cause.__traceback__)[-1].name
        return type(cause).__name__, where
    finally:
        producer.close()
    return "connected", ""


print("azure-eventhub", version("azure-eventhub"), "with python-qpid-proton", version("python-qpid-proton"), "as peer")
found = {}
for what, properties in (("open of 4 fields", None), ("open of 10 fields, begin of 5", {"product": "peer"})):
    found[what] = attempt(properties)
    print(f"{what}:", *found[what])
assert found == {
    "open of 4 fields": ("IndexError", "_incoming_open"),
    "open of 10 fields, begin of 5": ("IndexError", "_incoming_begin"),
}, "this has changed"
PYTHON
