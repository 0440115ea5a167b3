"""What the engine costs per message: `python -m bench.engine [--seconds S]`.

Runs of b = 1, 10 and 100 messages of 100 octets: transfers in (as we, proton and rhea encode them), out for 1, 4
and 16 links that share a batch's cache, dispositions in and out. Microseconds of CPU per message and link; the best of
several rounds, because other people's programs run on the same machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from amqp10 import ACCEPTED, Connection, ConnectionSettings, LinkAttaching, ReceiverLink, SenderLink, Source, Target
from amqp10.serial import WRAP

BATCHES = (1, 10, 100)
BODY = b"\x00\x53\x75\xa0\x64" + b"x" * 100
Prepared = tuple[Callable[[], None], int, Connection]
"""(one round, messages in it, the connection under test)"""


def ours(handle: int, delivery_id: int, tag: bytes, payload: bytes) -> bytes:
    body = b"\x00\x53\x14\xc0" + bytes((10 + len(tag), 4)) + b"\x43\x70" + delivery_id.to_bytes(4, "big")
    return _frame(body + b"\xa0" + bytes((len(tag),)) + tag + b"\x43" + payload)


def protons(handle: int, delivery_id: int, tag: bytes, payload: bytes) -> bytes:
    body = b"\x43\x70" + delivery_id.to_bytes(4, "big") + b"\xa0" + bytes((len(tag),)) + tag + b"\x43\x42\x42"
    return _frame(b"\x00\x53\x14\xc0" + bytes((len(body) + 1, 6)) + body + payload)


def turn(handle: int, delivery_id: int, tag: bytes, payload: bytes) -> bytes:
    """As proton writes, on handle 0 or 1."""
    body = (b"\x52\x01" if handle else b"\x43") + b"\x70" + delivery_id.to_bytes(4, "big")
    body += b"\xa0" + bytes((len(tag),)) + tag + b"\x43\x42\x42"
    return _frame(b"\x00\x53\x14\xc0" + bytes((len(body) + 1, 6)) + body + payload)


def rheas(handle: int, delivery_id: int, tag: bytes, payload: bytes) -> bytes:
    body = b"\x43\x70" + delivery_id.to_bytes(4, "big") + b"\xa0" + bytes((len(tag),)) + tag + b"\x43\x42\x42"
    return _frame(b"\x00\x53\x14\xd0" + (len(body) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x06" + body + payload)


def _frame(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def connected(window: int = 0x7FFFFFFF) -> tuple[Connection, Connection]:
    client = Connection(
        ConnectionSettings(container_id="c", idle_timeout_s=None, incoming_window=window), server=False, now=0.0
    )
    server = Connection(
        ConnectionSettings(container_id="s", idle_timeout_s=None, incoming_window=window), server=True, now=0.0
    )
    client.open()
    return client, server


def pump(client: Connection, server: Connection) -> list[SenderLink | ReceiverLink]:
    links: list[SenderLink | ReceiverLink] = []
    while True:
        data = client.data_to_send()
        for event in server.receive_data(data, 0.0):
            if isinstance(event, LinkAttaching):
                link = event.link
                assert isinstance(link, SenderLink | ReceiverLink)
                assert link.remote_attach is not None
                link.attach(source=link.remote_attach.source, target=link.remote_attach.target)
                if isinstance(link, ReceiverLink):
                    link.grant(0x7FFFFFFF)
                links.append(link)
        answer = server.data_to_send()
        client.receive_data(answer, 0.0)
        if not data and not answer:
            return links


def publishing() -> tuple[Connection, Connection, SenderLink, ReceiverLink]:
    client, server = connected()
    sender = client.begin().sender("link")
    sender.attach(source=Source("here"), target=Target("there"))
    (link,) = pump(client, server)
    assert isinstance(link, ReceiverLink)
    return client, server, sender, link


def subscribing() -> tuple[Connection, Connection, ReceiverLink, SenderLink]:
    client, server = connected()
    receiver = client.begin().receiver("link")
    receiver.attach(source=Source("here"), target=Target("there"))
    receiver.grant(0x7FFFFFFF)
    (link,) = pump(client, server)
    assert isinstance(link, SenderLink)
    return client, server, receiver, link


def transfers_in(encode: Callable[[int, int, bytes, bytes], bytes], batch: int, *, varied: bool = False) -> Prepared:
    _, server, _, link = publishing()
    total = 20_000
    # the first one is 256: from there on a delivery-id takes four octets in everybody's encoding
    bodies = [BODY + b"y" * (number % 50 if varied else 0) for number in range(total)]
    frames = [encode(0, 256 + number, b"%08d" % number, bodies[number]) for number in range(total)]
    reads = [b"".join(frames[start : start + batch]) for start in range(0, total, batch)]

    def run() -> None:
        link.session.incoming.next_delivery_id = 256
        link.session.incoming.unsettled.drop(link)
        link.grant(0x7FFFFFFF)
        receive = server.receive_data
        for read in reads:
            receive(read, 0.0)
        server.data_to_send()

    return run, total, server


def two_links_in_turn(batch: int) -> Prepared:
    client, server, sender, first = publishing()
    other = sender.session.sender("other")
    other.attach(source=Source("here"), target=Target("there"))
    (second,) = pump(client, server)
    assert isinstance(second, ReceiverLink)
    total = 20_000
    frames = [turn(number % 2, 256 + number, b"%08d" % number, BODY) for number in range(total)]
    reads = [b"".join(frames[start : start + batch]) for start in range(0, total, batch)]

    def run() -> None:
        session = first.session
        session.incoming.next_delivery_id = 256
        for link in (first, second):
            session.incoming.unsettled.drop(link)
            link.grant(0x7FFFFFFF)
        for read in reads:
            server.receive_data(read, 0.0)
        server.data_to_send()

    return run, total, server


def alternating_in(batch: int) -> Prepared:
    """A publisher in mode second: each transfer with the settlement of the one 100 before; per pair."""
    _, server, _, link = publishing()
    total = 20_000
    frames = []
    for number in range(total):
        wire = (156 + number).to_bytes(4, "big")
        settled = _frame(b"\x00\x53\x15\xc0\x0d\x05\x42\x70" + wire + b"\x40\x41\x00\x53\x24\x45")
        frames.append(protons(0, 256 + number, b"%08d" % number, BODY) + settled)
    reads = [b"".join(frames[start : start + batch]) for start in range(0, total, batch)]

    def run() -> None:
        incoming = link.session.incoming
        incoming.next_delivery_id = 256
        incoming.unsettled.drop(link)
        incoming.unsettled.add(156, 256, link)
        link.grant(0x7FFFFFFF)
        for read in reads:
            server.receive_data(read, 0.0)
        server.data_to_send()

    return run, total, server


def transfers_out(links: int, batch: int) -> Prepared:
    pairs = [subscribing() for _ in range(links)]
    senders = [(pair[1], pair[3]) for pair in pairs]
    total = 20_000 if links == 1 else 4_000
    tags = [b"%032d" % number for number in range(total)]
    payloads = [BODY] * total

    def run() -> None:
        for start in range(0, total, batch):
            some_tags, some_payloads = tags[start : start + batch], payloads[start : start + batch]
            cache: dict[object, object] | None = {} if links > 1 else None
            for connection, sender in senders:
                sender.credit = sender.session.outgoing.window = 0x7FFFFFFF
                sender.send(some_tags, some_payloads, cache=cache)
                connection.data_to_send()

    return run, total * links, senders[0][0]


def single_dispositions_in(batch: int, *, list32: bool) -> Prepared:
    _, server, _, sender = subscribing()
    total = 20_000
    frames = []
    for delivery_id in range(256, 256 + total):
        wire = delivery_id.to_bytes(4, "big")
        if list32:
            body = b"\xd0\x00\x00\x00\x14\x00\x00\x00\x05\x41\x70" + wire + b"\x70" + wire + b"\x42\x00\x53\x24\x45"
        else:
            body = b"\xc0\x0d\x05\x41\x70" + wire + b"\x40\x42\x00\x53\x24\x45"
        frames.append(_frame(b"\x00\x53\x15" + body))
    reads = [b"".join(frames[start : start + batch]) for start in range(0, total, batch)]

    def run() -> None:
        session = sender.session
        session.outgoing.unsettled.drop(sender)
        session.outgoing.next_delivery_id = 256 + total
        session.outgoing.unsettled.add(256, 256 + total, sender)
        receive = server.receive_data
        for read in reads:
            receive(read, 0.0)

    return run, total, server


def range_dispositions_in(batch: int) -> Prepared:
    _, server, _, sender = subscribing()
    total = 20_000
    reads = []
    for first in range(256, 256 + total, batch):
        last = first + batch - 1
        body = b"\x41\x70" + first.to_bytes(4, "big") + b"\x70" + last.to_bytes(4, "big") + b"\x41\x00\x53\x24\x45"
        reads.append(_frame(b"\x00\x53\x15\xc0" + bytes((len(body) + 1, 5)) + body))

    def run() -> None:
        session = sender.session
        session.outgoing.next_delivery_id = 256 + total
        session.outgoing.unsettled.drop(sender)
        session.outgoing.unsettled.add(256, 256 + total, sender)
        receive = server.receive_data
        for read in reads:
            receive(read, 0.0)

    return run, total, server


def dispositions_out(batch: int) -> Prepared:
    _, server, _, link = publishing()
    total = 20_000

    def run() -> None:
        for first in range(0, total, batch):
            link.dispose(first & WRAP, first + batch - 1, ACCEPTED, True)
            server.data_to_send()

    return run, total, server


SUBJECTS: dict[str, Callable[[int], Prepared]] = {
    "transfers in, ours": lambda batch: transfers_in(ours, batch),
    "transfers in, proton's": lambda batch: transfers_in(protons, batch),
    "transfers in, rhea's": lambda batch: transfers_in(rheas, batch),
    "transfers in, sizes vary": lambda batch: transfers_in(protons, batch, varied=True),
    "transfers in, two links in turn": two_links_in_turn,
    "transfers and settlements in turn": alternating_in,
    "transfers out, 1 link": lambda batch: transfers_out(1, batch),
    "transfers out, 4 links, each": lambda batch: transfers_out(4, batch),
    "transfers out, 16 links, each": lambda batch: transfers_out(16, batch),
    "dispositions in, proton's singles": lambda batch: single_dispositions_in(batch, list32=False),
    "dispositions in, rhea's singles": lambda batch: single_dispositions_in(batch, list32=True),
    "dispositions in, ranges": range_dispositions_in,
    "dispositions out, ranges": dispositions_out,
}


def measure(prepared: Prepared, seconds: float) -> float:
    """Microseconds of CPU per message, the best round."""
    run, messages, connection = prepared
    run()
    assert not connection.closing, "the engine found fault with the bench"
    best = float("inf")
    spent = 0.0
    while spent < seconds:
        start = time.process_time()
        run()
        took = time.process_time() - start
        best = min(best, took)
        spent += took
    return best / messages * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.5, help="of measuring per number")
    parser.add_argument("--only", default="", help="subjects that contain this")
    options = parser.parse_args()
    print(f"{'us per message':36}" + "".join(f"{f'b={batch}':>9}" for batch in BATCHES))
    for subject, prepare in SUBJECTS.items():
        if options.only in subject:
            costs = [measure(prepare(batch), options.seconds) for batch in BATCHES]
            print(f"{subject:36}" + "".join(f"{cost:9.3f}" for cost in costs), flush=True)


if __name__ == "__main__":
    main()
