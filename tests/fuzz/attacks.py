"""A router under attack, in this process: its memory as tracemalloc counts it, an honest pair that must go on."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from amqp10.frames import AMQP_HEADER
from amqp10.outcomes import ACCEPTED
from amqp10.performatives import Begin, Open, Performative
from amqp10.runs import Transfers
from amqp10.termini import Source
from chaos.fuzz.targets import frame
from router.config import AddressConfig, Limits, RouterConfig
from router.links.client_connection import ClientConnection
from tests.amqp10.pair import frames
from tests.router.links import Client, make

MIB = 1 << 20
TOPICS = (AddressConfig("orders", subscription_timeout_s=30.0), AddressConfig("*", no_subscribers="accept"))


class Attacked:
    """A small router with an honest publisher and subscriber; `stranger()` connects somebody else."""

    def __init__(self, limits: Limits | None = None, **config: Any) -> None:
        settings: dict[str, Any] = {"memory_limit": 8 * MIB, "max_message_size": MIB, "max_frame_size": MIB, **config}
        self.clients = make(RouterConfig("a", routers=("a",), addresses=TOPICS, limits=limits or Limits(), **settings))
        self.router = self.clients.router
        self.subscriber = self.clients.connect("honest subscriber")
        self.receiver = self.subscriber.receiver("in", credit=1_000, source=Source("orders", timeout=20))
        self.publisher = self.clients.connect("honest publisher")
        self.sender = self.publisher.sender("out")
        self.sent = itertools.count()

    def stranger(self, container: str = "stranger", *, opened: bool = True, **fields: Any) -> Stranger:
        return Stranger(self, container, opened=opened, **fields)

    def still_works(self) -> None:
        """The honest two are attached as ever, and a message passes between them."""
        number = next(self.sent)
        before = len(self.subscriber.seen(Transfers))
        self.sender.send([b"%d" % number], [b"\x00Su\xa0\x01x"])
        self.clients.exchange()
        events = self.subscriber.seen(Transfers)[before:]
        assert sum(len(event.tags) for event in events) == 1
        for event in events:
            self.receiver.dispose(event.first_id, event.first_id, ACCEPTED, False)
        self.clients.exchange()

    def turn(self) -> None:
        self.router.flush(self.clients.now)
        self.router.take_messages()
        self.router.take_dirty()

    def refused(self) -> dict[str, int]:
        return self.router.status()["limits"]["refused"]  # type: ignore[no-any-return]


class Stranger:
    """A client that says what it likes. What comes back is read by nobody unless `read` is called."""

    def __init__(self, attacked: Attacked, container: str, *, opened: bool, **fields: Any) -> None:
        self.attacked = attacked
        self.connection: ClientConnection = attacked.router.connect(attacked.clients.now)
        self.thrown_away = 0
        if opened:
            self.octets(AMQP_HEADER + frame(Open(container, **fields)))

    def octets(self, data: bytes) -> Stranger:
        self.connection.receive_data(data, self.attacked.clients.now)
        self.attacked.turn()
        return self

    def say(self, *performatives: Performative, channel: int = 0, payload: bytes = b"") -> Stranger:
        return self.octets(b"".join(frame(performative, channel, payload) for performative in performatives))

    def begin(self, channel: int = 0) -> Stranger:
        return self.say(Begin(None, 0, 2**31 - 1, 2**31 - 1), channel=channel)

    def flush(self) -> bytes:
        """What a transport would take."""
        data = self.connection.data_to_send()
        self.thrown_away += len(data)
        return data

    def read(self) -> list[Any]:
        return [performative for performative, _ in frames(self.flush())]

    @property
    def closed(self) -> bool:
        return self.connection.connection.closing


@contextmanager
def memory() -> Iterator[list[int]]:
    """[octets that are more than before] once it is over; the first entry is that, the second the peak."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    found: list[int] = []
    try:
        yield found
    finally:
        gc.collect()
        now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found += [now - before, peak - before]


__all__ = ["MIB", "TOPICS", "Attacked", "Client", "Stranger", "memory"]
