"""Publishing and subscribing with proton in raw encoded messages, so that tests can compare bytes.

Every call runs a proton Container in a thread of its own.  Nothing here is Onceway's: encodings are proton's.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cproton_ffi import ffi, lib
from proton import Data, Delivery, Handler, Link, symbol
from proton.reactor import Container, LinkOption

from tests.live import wait_until

BOUND_S = 60.0  # for what takes a moment, on a machine that does much else
MODES = ("unsettled", "pre-settled", "second")
OUTCOMES = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
    Delivery.RECEIVED: "received",
}
_serial = itertools.count(1)


def unique(prefix: str) -> str:
    return f"{prefix}-{next(_serial)}"


class Mode(LinkOption):  # type: ignore[misc]
    """`unsettled` is rcv-settle-mode first, `second` unsettled with rcv-settle-mode second."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def apply(self, link: Link) -> None:
        link.snd_settle_mode = Link.SND_SETTLED if self.mode == "pre-settled" else Link.SND_UNSETTLED
        link.rcv_settle_mode = Link.RCV_SECOND if self.mode == "second" else Link.RCV_FIRST


def tag_of(delivery: Delivery) -> bytes:
    """The delivery-tag.  Python's `Delivery.tag` wants it to be UTF-8 text and raises UnicodeDecodeError else."""
    tag = lib.pn_delivery_tag(delivery._impl)
    return bytes(ffi.buffer(tag.start, tag.size))


def data_section(body: bytes) -> bytes:
    return section(0x75, lambda d: d.put_binary(body))


def encoded(put: Callable[[Data], None]) -> bytes:
    """What proton writes for whatever `put` puts."""
    data = Data()
    put(data)
    return bytes(data.encode())


def section(code: int, put: Callable[[Data], None]) -> bytes:
    """One message section: 0x70 header ... 0x78 footer."""
    return b"\x00\x53" + bytes([code]) + encoded(put)


def decode_section(octets: bytes) -> tuple[int, Any, int]:
    """(descriptor code, value, bytes used) of the section at the start."""
    data = Data()
    used = data.decode(octets)
    data.rewind()
    data.next()
    described = data.get_py_described()
    return int(described.descriptor), described.value, used


@dataclass(frozen=True, slots=True)
class Received:
    payload: bytes
    tag: bytes
    settled: bool


class _Runner:
    """A Container in a thread; `failure` is what ended it early."""

    def __init__(self, handler: Handler, container_id: str) -> None:
        self.failure: BaseException | None = None
        self.container = Container(handler)
        self.container.container_id = container_id
        self.thread = threading.Thread(target=self._run, name=container_id, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.container.run()
        except Exception as failure:  # noqa: BLE001  handed to the waiting test
            self.failure = failure


class Subscriber(Handler):  # type: ignore[misc]
    """A receiving link that accepts everything.  Use in `with`; entering waits for the attach's answer."""

    def __init__(
        self, at: str, address: str, *, mode: str = "unsettled", credit: int = 100, container: str = ""
    ) -> None:
        super().__init__()
        self.at, self.address, self.mode, self.credit = at, address, mode, credit
        self.received: list[Received] = []
        self.settled = 0
        self.attached = threading.Event()
        self.problems: list[str] = []
        self.stopping = False
        self.link: Any = None
        self.runner = _Runner(self, container or unique("subscriber"))

    def __enter__(self) -> Subscriber:
        wait_until(lambda: self.attached.is_set() or self.problems or self.runner.failure, f"attach to {self.address}")
        assert self.attached.is_set(), (self.problems, self.runner.failure)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping = True
        self.runner.thread.join(BOUND_S)

    def wait(self, count: int, timeout_s: float = BOUND_S) -> list[Received]:
        wait_until(
            lambda: len(self.received) >= count or self.problems or self.runner.failure,
            f"{count} deliveries (there are {len(self.received)})",
            timeout_s,
        )
        assert not self.problems, self.problems
        assert self.runner.failure is None, self.runner.failure
        return self.received[:count]

    def on_reactor_init(self, event: Any) -> None:
        connection = event.container.connect(self.at, reconnect=False)
        self.link = event.container.create_receiver(connection, self.address, options=[Mode(self.mode)])
        self.link.flow(self.credit)
        event.container.schedule(0.02, self)

    def on_timer_task(self, event: Any) -> None:
        if self.stopping:
            self.link.connection.close()
        else:
            event.container.schedule(0.02, self)

    def on_link_remote_open(self, event: Any) -> None:
        if event.link.remote_source.address is not None:
            self.attached.set()

    def on_link_remote_close(self, event: Any) -> None:
        self._problem(event.link.remote_condition)

    on_link_remote_detach = on_link_remote_close

    def on_connection_remote_close(self, event: Any) -> None:
        self._problem(event.connection.remote_condition)

    def on_transport_error(self, event: Any) -> None:
        self._problem(event.transport.condition)

    def _problem(self, condition: Any) -> None:
        if not self.stopping:
            self.problems.append(f"{condition.name}: {condition.description}" if condition else "closed")

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            payload = event.link.recv(delivery.pending) or b""
            self.received.append(Received(payload, tag_of(delivery), delivery.settled))
            event.link.advance()
            if delivery.settled:
                delivery.settle()
            else:
                delivery.update(Delivery.ACCEPTED)
                if self.mode != "second":
                    delivery.settle()
            if event.link.credit <= self.credit // 2:
                event.link.flow(self.credit - event.link.credit)
        elif delivery.settled and not delivery.readable:
            self.settled += 1
            delivery.settle()


class _Publisher(Handler):  # type: ignore[misc]
    def __init__(self, at: str, address: str, payloads: Sequence[bytes], mode: str, name: str | None) -> None:
        super().__init__()
        self.at, self.address, self.payloads, self.mode, self.name = at, address, payloads, mode, name
        self.sent = 0
        self.outcomes: dict[int, str] = {}
        self.problems: list[str] = []
        self.by_tag: dict[str, int] = {}

    def on_reactor_init(self, event: Any) -> None:
        connection = event.container.connect(self.at, reconnect=False)
        event.container.create_sender(connection, self.address, name=self.name, options=[Mode(self.mode)])

    def on_link_flow(self, event: Any) -> None:
        link = event.link
        while link.credit and self.sent < len(self.payloads):
            tag = f"t{self.sent}"
            self.by_tag[tag] = self.sent
            delivery = link.delivery(tag)
            link.stream(self.payloads[self.sent])
            link.advance()
            self.sent += 1
            if self.mode == "pre-settled":
                delivery.settle()
                self.outcomes[self.by_tag[tag]] = "settled"
        self._end(link)

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if delivery.updated and delivery.remote_state:
            self.outcomes[self.by_tag[delivery.tag]] = OUTCOMES[delivery.remote_state]
            delivery.settle()
            self._end(event.link)

    def _end(self, link: Any) -> None:
        if len(self.outcomes) == len(self.payloads):
            link.close()
            link.connection.close()

    def on_link_remote_close(self, event: Any) -> None:
        if event.link.remote_condition:
            self.problems.append(f"{event.link.remote_condition.name}: {event.link.remote_condition.description}")
            event.connection.close()

    on_link_remote_detach = on_link_remote_close

    def on_connection_remote_close(self, event: Any) -> None:
        if event.connection.remote_condition:
            self.problems.append(str(event.connection.remote_condition))
        event.connection.close()

    def on_transport_error(self, event: Any) -> None:
        self.problems.append(str(event.transport.condition))


def publish(
    at: str,
    address: str,
    payloads: Sequence[bytes],
    *,
    mode: str = "unsettled",
    container: str = "",
    name: str | None = None,
    timeout_s: float = BOUND_S,
) -> list[str]:
    """Outcomes in order, once every delivery has its own; raises AssertionError with what the router said."""
    handler = _Publisher(at, address, payloads, mode, name)
    runner = _Runner(handler, container or unique("publisher"))
    runner.thread.join(timeout_s)
    assert not handler.problems, handler.problems
    assert runner.failure is None, runner.failure
    assert not runner.thread.is_alive(), f"{len(handler.outcomes)} of {len(payloads)} outcomes in {timeout_s} s"
    return [handler.outcomes[index] for index in range(len(payloads))]


ANNOTATION = symbol("x-opt-onceway-publisher")
