#!/usr/bin/env bash
# cloudevents 2.2.0: the time of an event in AMQP's binary mode is a long on the wire, cut to milliseconds.
#
# The AMQP binding (amqp-protocol-binding.md 1.0.2, 2.3 and 3.1.3) has two forms for a time: AMQP's timestamp, or a string of
# RFC 3339.  `to_binary_event` promises the first, and returns a Python int.  A library of AMQP cannot know that it is a
# time: Qpid Proton encodes it as a long (0x81), which is neither.  Readers that go by the type (JMS, .NET, Go) get a
# number.  The package's own reader takes it, so its own round trip hides that; and as milliseconds are all that is kept,
# the event that comes back is not equal to the one that was sent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cloudevents==2.2.0 python-qpid-proton==0.40.0
"$folder/venv/bin/python" - <<'PYTHON'
from datetime import datetime, timezone
from importlib.metadata import version

from cloudevents.core.bindings.amqp import AMQPMessage, from_amqp_event, to_binary_event
from cloudevents.core.v1.event import CloudEvent
from proton import Message, timestamp

print("cloudevents", version("cloudevents"), "with python-qpid-proton", version("python-qpid-proton"))
time = datetime(2026, 11, 30, 12, 0, 0, 123_999, timezone.utc)
event = CloudEvent({"type": "order.placed", "source": "/shop", "id": "17", "time": time}, {"number": 17})
made = to_binary_event(event)
value = made.application_properties["cloudEvents_time"]
print("the binding returns", type(value).__name__, value)
assert type(value) is int

wire = Message(body=made.application_data, properties=made.application_properties).encode()
name = b"cloudEvents_time"
code = wire[wire.index(name) + len(name)]
print(f"Proton writes it with the format code {code:#04x}; a timestamp has 0x83")
assert code == 0x81

as_it_should_be = Message(properties={"cloudEvents_time": timestamp(value)}).encode()
assert as_it_should_be[as_it_should_be.index(name) + len(name)] == 0x83

back = Message()
back.decode(wire)
read = from_amqp_event(AMQPMessage({}, dict(back.properties), bytes(back.body)))
print("sent", event.get_time().isoformat(), "read", read.get_time().isoformat())
assert read.get_time() != event.get_time()
assert (event.get_time() - read.get_time()).microseconds == 999
PYTHON
