"""A BlockingConnection subscriber: python blocking_recv.py HOST:PORT ADDRESS COUNT."""

import sys

from proton.utils import BlockingConnection

at, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = BlockingConnection(at, timeout=30)
receiver = connection.create_receiver(address, credit=10)
print("attached", flush=True)
for _ in range(count):
    print(receiver.receive(timeout=30).body, flush=True)
    receiver.accept()
connection.close()
