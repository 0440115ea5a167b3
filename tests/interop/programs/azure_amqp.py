"""Azure's AMQP in pure Python, of azure-servicebus: `send|receive HOST:PORT ADDRESS TABLE`.

Sends the values of TABLE (tests/interop/test_types.py says what they look like) and prints each message's octets in
hexadecimal, or prints `attached` and each value that it has read.
"""

import json
import struct
import sys
import uuid
from types import SimpleNamespace

from azure.servicebus._pyamqp import ReceiveClient, SendClient
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.constants import ReceiverSettleMode
from azure.servicebus._pyamqp.message import Message
from azure.servicebus._pyamqp.sasl import SASLAnonymousCredential
from azure.servicebus._pyamqp.types import TYPE, VALUE, AMQPTypes

PLACES = {"float": ">f", "double": ">d"}


def wrap(value):
    kind, text = value
    if kind == "null":
        plain = None
    elif kind == "boolean":
        plain = text == "true"
    elif kind in PLACES:
        (plain,) = struct.unpack(PLACES[kind], bytes.fromhex(text))
    elif kind == "binary":
        plain = bytes.fromhex(text)
    elif kind == "uuid":
        plain = uuid.UUID(text)
    elif kind in ("string", "symbol"):
        plain = text
    elif kind in ("list", "array"):
        plain = [wrap(each) for each in text]
    elif kind == "map":
        plain = [(wrap(key), wrap(each)) for key, each in text]
    else:
        plain = int(text)
    return {TYPE: getattr(AMQPTypes, kind), VALUE: plain}


def shape(expected, value):
    """In the shape of what was expected: its values have lost their types."""
    kind, text = expected
    if kind in PLACES:
        return [kind, struct.pack(PLACES[kind], value).hex()]
    if kind == "binary":
        return [kind, bytes(value).hex()]
    if kind in ("string", "symbol"):
        return [kind, value.decode()]
    if kind in ("list", "array"):
        return [kind, [shape(*each) for each in zip(text, value, strict=True)]]
    if kind == "map":
        pairs = zip(text, value.items(), strict=True)
        return [kind, [[shape(k, key), shape(v, each)] for (k, v), (key, each) in pairs]]
    return [kind, {None: "null", True: "true", False: "false"}[value] if kind in ("null", "boolean") else str(value)]


role, place, address, path = sys.argv[1:5]
with open(path) as file:
    table = json.load(file)
nobody = SimpleNamespace(sasl=SASLAnonymousCredential(), auth_type="sasl")
if role == "send":  # by default its publisher asks for mode second, but never settles what is accepted
    client = SendClient(place, address, auth=nobody, use_tls=False, receive_settle_mode=ReceiverSettleMode.First)
else:
    client = ReceiveClient(place, address, auth=nobody, use_tls=False)
client.open()
while not client.client_ready():
    pass
if role == "send":
    for value in table:
        message = Message(value=[wrap(each) for each in value[1]])  # one that is no list would lose its type
        client.send_message(message, timeout=20)
        print(bytes(encode_payload(bytearray(), message)).hex())
else:
    print("attached", flush=True)
    received = client._received_messages
    count = 0
    while count < len(table):
        client.do_work()
        while not received.empty():
            frame, message = received.get()
            print(json.dumps(shape(table[count], message.value)))
            count += 1
            client.settle_messages(frame[1], frame[2], "accepted")
client.close()
