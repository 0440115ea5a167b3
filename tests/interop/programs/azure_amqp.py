"""Azure's AMQP in pure Python, of azure-servicebus: `send|receive HOST:PORT ADDRESS COUNT`, bodies m0, m1, ..."""

import sys
from types import SimpleNamespace

from azure.servicebus._pyamqp import ReceiveClient, SendClient
from azure.servicebus._pyamqp.constants import ReceiverSettleMode
from azure.servicebus._pyamqp.message import Message
from azure.servicebus._pyamqp.sasl import SASLAnonymousCredential

role, place, address, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
nobody = SimpleNamespace(sasl=SASLAnonymousCredential(), auth_type="sasl")
if role == "send":  # by default its publisher asks for mode second, but never settles what is accepted
    client = SendClient(place, address, auth=nobody, use_tls=False, receive_settle_mode=ReceiverSettleMode.First)
else:
    client = ReceiveClient(place, address, auth=nobody, use_tls=False)
client.open()
while not client.client_ready():
    pass
if role == "send":
    for number in range(count):
        client.send_message(Message(data=[f"m{number}".encode()]), timeout=20)
    print(f"{count} sent")
else:
    print("attached", flush=True)
    got = []
    received = client._received_messages
    while len(got) < count:
        client.do_work()
        while not received.empty():
            frame, message = received.get()
            got.append(b"".join(message.data).decode())
            client.settle_messages(frame[1], frame[2], "accepted")
    print(f"{len(got)} received {'in order' if got == [f'm{number}' for number in range(count)] else got}")
client.close()
