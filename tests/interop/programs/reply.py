"""Answers requests to where they ask for it: python reply.py HOST:PORT ADDRESS COUNT."""

import sys

from proton import Message
from proton.utils import BlockingConnection

at, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = BlockingConnection(at, timeout=30)
receiver = connection.create_receiver(address, credit=10)
print("attached", flush=True)
senders = {}
for _ in range(count):
    request = receiver.receive(timeout=30)
    if request.reply_to not in senders:
        senders[request.reply_to] = connection.create_sender(request.reply_to)
    reply = Message(body=request.body.upper(), correlation_id=request.correlation_id)
    senders[request.reply_to].send(reply)
    receiver.accept()
print(f"{count} answered", flush=True)
connection.close()
