"""Azure's AMQP in pure Python, of azure-servicebus; tests/interop/test_clients.py says what `WHAT NAME=VALUE...` does."""

import sys
from threading import Thread
from types import SimpleNamespace

from azure.servicebus._pyamqp import ReceiveClient, SendClient
from azure.servicebus._pyamqp.constants import ReceiverSettleMode, SenderSettleMode, TransportType
from azure.servicebus._pyamqp.endpoints import Source, Target
from azure.servicebus._pyamqp.error import AMQPException, RetryPolicy
from azure.servicebus._pyamqp.message import Message, Properties
from azure.servicebus._pyamqp.sasl import SASLAnonymousCredential, SASLExternalCredential, SASLPlainCredential

what = sys.argv[1]
options = dict(each.split("=", 1) for each in sys.argv[2:])
count, size = int(options.get("count", 1)), int(options.get("size", 0))
places, addresses = options["at"].split(","), options.get("address", "").split(",")
mode = options.get("mode", "unsettled")
if "user" in options:
    sasl = SASLPlainCredential(options["user"], options["password"])
else:
    sasl = SASLExternalCredential() if "certificate" in options else SASLAnonymousCredential()
settings = {
    "auth": SimpleNamespace(sasl=sasl, auth_type="sasl"),
    "use_tls": "ca" in options,
    "retry_policy": RetryPolicy(retry_total=0),
    "send_settle_mode": SenderSettleMode.Settled if mode == "pre-settled" else SenderSettleMode.Unsettled,
    "receive_settle_mode": ReceiverSettleMode.Second if mode == "second" else ReceiverSettleMode.First,
}

attached = SimpleNamespace()  # what the last attach was answered with


def opened(kind, place, address):
    host = place
    if "ca" in options:
        import ssl

        context = ssl.create_default_context(cafile=options["ca"])
        if "certificate" in options:
            context.load_cert_chain(options["certificate"])
        settings["ssl_context"] = context
        host, settings["custom_endpoint_address"] = "localhost", f"sb://localhost:{place.rpartition(':')[2]}/"
        if "ws" in options:
            settings["ssl_context"], settings["connection_verify"] = None, options["ca"]
            settings["transport_type"] = TransportType.AmqpOverWebsocket
    client = kind(host, address, on_attach=lambda attach: setattr(attached, "source", attach.source), **settings)
    client.open()
    while not client.client_ready():
        client._connection.listen(wait=0.05)
    return client


def body(number, **properties):
    about = {"properties": Properties(**properties)} if properties else {}
    if size:
        return Message(data=[(bytes(range(251)) * (size // 251 + 1))[:size]], **about)
    return Message(value=f"message {number}", **about)


def shown(message):
    octets = b"".join(message.data) if message.data else message.value
    if message.data:
        return f"{len(octets)} {sum(octets)}"
    return octets.decode() if isinstance(octets, bytes) else str(octets)


def received(client):
    while True:
        while not client._received_messages.empty():
            frame, message = client._received_messages.get()
            if not frame[4]:
                client.settle_messages(frame[1], frame[2], "accepted")
            yield message
        client.do_work()


def send(client, message):
    try:
        client.send_message(message, timeout=30)
    except AMQPException as error:
        return "rejected" if b"amqp:" in bytes(str(error.condition), "utf-8") else "not accepted"
    return "sent" if mode == "pre-settled" else "accepted"


def does():
    if what == "open":
        client = opened(SendClient, places[0], "opened")
        print("connected", client._connection._remote_properties, flush=True)
    elif what == "send":
        client = opened(SendClient, places[0], addresses[0])
        for number in range(count):
            print(send(client, body(number)), flush=True)
    elif what == "again":
        number = 0
        for place in places:
            try:
                client = opened(SendClient, place, addresses[0])
                while number < count:
                    client.send_message(body(number), timeout=20)
                    print("accepted", flush=True)
                    number += 1
                break
            except (AMQPException, OSError, TimeoutError):
                print("again", flush=True)
    elif what == "anonymous":
        client = opened(SendClient, places[0], Target(address=None))
        for number, to in enumerate(addresses):
            print(to, send(client, body(number, to=to)), flush=True)
    elif what == "receive":
        name = b"apache.org:selector-filter:string"
        filters = {name: (name, options["selector"])} if "selector" in options else None
        client = opened(ReceiveClient, places[0], Source(address=addresses[0], filters=filters))
        print("attached", flush=True)
        for _, message in zip(range(count), received(client), strict=False):
            print(shown(message), flush=True)
    elif what == "request":
        client = opened(ReceiveClient, places[0], Source(address=None, dynamic=True))
        address = attached.source.address.decode()
        sender, replies = opened(SendClient, places[0], addresses[0]), received(client)
        for number in range(count):  # who answers accepts the request when its reply is accepted
            asking = Thread(target=send, args=(sender, body(number, reply_to=address)))
            asking.start()
            print(shown(next(replies)), flush=True)
            client.do_work()
            asking.join()
        sender.close()
    client.close()


try:
    does()
except (AMQPException, OSError, ValueError) as error:
    print("refused:", " ".join(str(error).split()))
