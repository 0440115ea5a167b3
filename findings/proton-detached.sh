#!/usr/bin/env bash
# python-qpid-proton: a peer's detach with closed = false passes unnoticed, with an error as well.
#
# MessagingHandler has on_link_closing, on_link_closed and on_link_error, and calls none of them; BlockingReceiver waits
# until its timeout in place of raising LinkDetached.  proton does not answer the detach, and the link seems open.
# Only a handler that defines `on_link_remote_detach`, an event of the engine, hears of it.  With closed = true all of
# them work: that is shown beside it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check python-qpid-proton==0.40.0
timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import socket
import threading
from importlib.metadata import version

from cproton import pn_link_condition
from proton import Condition, Endpoint, Timeout
from proton._condition import obj2cond
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection, LinkDetached

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    PLACE = f"127.0.0.1:{probe.getsockname()[1]}"


class Peer(MessagingHandler):
    """Ends each link with an error when there is credit: `closing` with closed = true, others with closed = false."""

    ready = threading.Event()

    def on_start(self, event):
        self.listener = event.container.listen(PLACE)
        self.ready.set()

    def on_link_opening(self, event):
        event.link.source.copy(event.link.remote_source)

    def on_sendable(self, event):
        link, error = event.link, Condition("amqp:link:detach-forced", "node is being moved")
        if link.name == "closing":
            link.condition = error
            link.close()
        else:
            obj2cond(error, pn_link_condition(link._impl))  # detach() alone does not take `link.condition` along
            link.detach()


class Receiver(MessagingHandler):
    def __init__(self, name):
        super().__init__()
        self.name, self.heard, self.engine, self.open = name, [], [], None

    def on_start(self, event):
        connection = event.container.connect(PLACE)
        self.link = event.container.create_receiver(connection, "q", name=self.name)
        self.end = event.container.schedule(1, self)

    def on_timer_task(self, event):
        self.open = bool(self.link.state & Endpoint.REMOTE_ACTIVE)
        event.container.stop()

    def on_link_closing(self, event):
        self.heard.append("on_link_closing")

    def on_link_closed(self, event):
        self.heard.append("on_link_closed")

    def on_link_error(self, event):
        self.heard.append(f"on_link_error {event.link.remote_condition.name}")

    def on_link_remote_detach(self, event):
        self.engine.append(event.link.remote_condition.name)


def blocking(name):
    connection = BlockingConnection(PLACE, timeout=5)
    receiver = connection.create_receiver("q", name=name)
    try:
        receiver.receive(timeout=2)
    except (LinkDetached, Timeout) as error:
        return type(error).__name__
    finally:
        connection.close()


threading.Thread(target=Container(Peer()).run, daemon=True).start()
assert Peer.ready.wait(10)
print("python-qpid-proton", version("python-qpid-proton"))
detached, closed = Receiver("detaching"), Receiver("closing")
for receiver in detached, closed:
    Container(receiver).run()
print("closed = false:", detached.heard, "the link seems open:", detached.open, "| closed = true:", closed.heard)
print("on_link_remote_detach, where it is defined:", detached.engine)
raised = blocking("detaching"), blocking("closing")
print("receive() of a BlockingReceiver: closed = false:", raised[0], "| closed = true:", raised[1])
assert detached.heard == [] and detached.open and detached.engine == ["amqp:link:detach-forced"]
assert closed.heard[0] == "on_link_error amqp:link:detach-forced"
assert raised == ("Timeout", "LinkDetached")
PYTHON
echo "as found"
