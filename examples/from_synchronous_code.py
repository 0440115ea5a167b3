"""Publish and receive without asyncio: for scripts, and for web frameworks whose requests are threads.

    python examples/from_synchronous_code.py [URL]

The connection is made once and shared by all threads.
"""

import sys
import threading

import onceway.sync

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"


def handle_request(publisher: onceway.sync.Publisher, number: int) -> None:
    publisher.send(f"request {number}", timeout_s=60)


with onceway.sync.connect(URL) as connection:
    subscriber = connection.subscriber("requests")
    publisher = connection.publisher("requests")
    threads = [threading.Thread(target=handle_request, args=(publisher, number)) for number in range(4)]
    for thread in threads:
        thread.start()
    received = []
    for delivery in subscriber:
        received.append(delivery.body)
        delivery.accept()
        if len(received) == len(threads):
            break
    for thread in threads:
        thread.join()
    print("\n".join(sorted(received)))
