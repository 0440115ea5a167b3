"""A well-behaved publisher and subscriber that go on through whatever others do to their router, and notice it."""

from __future__ import annotations

import threading
import time
from typing import Self

from proton import Message
from proton.utils import BlockingConnection

from tests.interop.raw import Subscriber, unique
from tests.live import wait_until

PATIENCE_S = 20.0  # with one message: nobody else's doing may last, but the machine may look the other way for seconds
BOUND_S = 60.0


class Witness:
    """In `with`: publishes one message after another, each awaited.  Leaving it fails if anything was noticed."""

    def __init__(self, publish: str, subscribe: str, *, address: str | None = None) -> None:
        self.publish = publish
        self.address = address or unique("witness")
        self.subscriber = Subscriber(subscribe, self.address)
        self.sent = 0
        self.longest_s = 0.0
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.subscriber.__enter__()
        self.thread.start()
        self.wait_more(5)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.wait_more(5)
        self.stopping.set()
        self.thread.join(BOUND_S)
        self.subscriber.__exit__()
        if kind is None:
            assert self.failure is None, self.failure
            assert not self.subscriber.problems, self.subscriber.problems
            bodies = [received.payload[-8:] for received in self.subscriber.received]
            assert bodies == [b"%08d" % number for number in range(self.sent)]
            assert self.longest_s < PATIENCE_S, f"one message took {self.longest_s:.2f} s"

    def wait_more(self, count: int) -> None:
        """Until that many more messages have gone through from now."""
        goal = self.sent + count
        wait_until(lambda: self.sent >= goal or self.failure, "the witness's messages", BOUND_S)
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            connection = BlockingConnection(self.publish, timeout=BOUND_S)
            sender = connection.create_sender(self.address)
            while not self.stopping.is_set():
                began = time.monotonic()
                sender.send(Message(body=b"%08d" % self.sent, inferred=True))
                self.longest_s = max(self.longest_s, time.monotonic() - began)
                self.sent += 1
            connection.close()
        except Exception as failure:  # noqa: BLE001  told by the test's thread
            self.failure = failure
