"""A BlockingConnection publisher, in mode first as it must be: python blocking_send.py HOST:PORT ADDRESS COUNT.

BlockingSender.send waits until the router has settled.  In rcv-settle-mode second the sender settles first, so it
would wait for ever, with any peer.
"""

import sys

from proton import Message
from proton.reactor import AtLeastOnce
from proton.utils import BlockingConnection

at, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = BlockingConnection(at, timeout=30)
sender = connection.create_sender(address, options=AtLeastOnce())
for number in range(1, count + 1):
    sender.send(Message(id=number, body={"sequence": number}))
print(f"{count} messages confirmed", flush=True)
connection.close()
