"""Writes the corpus anew: conversations as proton's engine, ours, and a client in rhea's manner begin them.

`python -m tests.fuzz.record`. What python-qpid-proton and our client say is recorded; rhea's manner (lists of 32 bits,
a disposition for each delivery) is imitated. Runs reach further with inputs that `python -m chaos.fuzz --keep` found.
"""

from __future__ import annotations

import struct
from typing import Any

import proton

from amqp10.connection import Connection
from amqp10.events import Event, LinkAttaching
from amqp10.frames import AMQP_HEADER
from amqp10.outcomes import ACCEPTED
from amqp10.performatives import Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Transfer
from amqp10.receiver import ReceiverLink
from amqp10.runs import Transfers
from amqp10.sasl import server_mechanisms
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from chaos.fuzz.__main__ import CORPUS
from chaos.fuzz.peers import Trunked, with_head
from chaos.fuzz.targets import frame, frames

BODY = b"\x00Su\xa0\x05hello"


def _serve(events: list[Event]) -> None:
    for event in events:
        if isinstance(event, LinkAttaching):
            remote = event.link.remote_attach
            event.link.attach(source=remote.source, target=remote.target)
            if isinstance(event.link, ReceiverLink):
                event.link.grant(20)
        elif isinstance(event, Transfers):
            event.link.dispose(event.first_id, event.first_id + len(event.tags) - 1, ACCEPTED, False)


def proton_client() -> bytes:
    """Publishes and subscribes, with SASL, accepts, settles, closes."""
    transport = proton.Transport(proton.Transport.CLIENT)
    transport.sasl().allowed_mechs("ANONYMOUS")
    connection = proton.Connection()
    connection.container = "proton"
    transport.bind(connection)
    connection.open()
    session = connection.session()
    session.open()
    sender, receiver = session.sender("out"), session.receiver("in")
    sender.target.address, receiver.source.address = "t", "t"
    sender.open()
    receiver.open()
    receiver.flow(20)
    settings = ConnectionSettings(container_id="a", idle_timeout_s=None, sasl=server_mechanisms())
    server = Connection(settings, server=True, now=0.0)
    said = b""
    sent = 0
    for turn in range(30):
        data = bytes(transport.peek(65_536) or b"") if transport.pending() > 0 else b""
        if data:
            transport.pop(len(data))
            said += data
            _serve(server.receive_data(data, 0.0))
        for session_ in server.channels.sessions:
            for link in session_.links:
                if isinstance(link, SenderLink) and link.capacity() and not link.delivery_count:
                    link.send([b"a", b"b", b"c"], [BODY] * 3)
        answer = server.data_to_send()
        if answer:
            transport.push(answer)
        while sent < 6 and sender.credit:
            sender.delivery(f"tag{sent}")
            sender.send(BODY)
            sender.advance()
            sent += 1
        delivery = receiver.current
        while delivery is not None and delivery.readable:
            receiver.recv(delivery.pending)
            receiver.advance()
            delivery.update(proton.Delivery.ACCEPTED)
            delivery.settle()
            delivery = receiver.current
        if turn == 20:
            sender.close()
            receiver.detach()
        if turn == 24:
            connection.close()
    return said


def ours(first: int = 0) -> bytes:
    """What our engine says as a client: resumption, epochs, runs of transfers, messages in several frames."""
    client = Connection(ConnectionSettings(container_id="ours", idle_timeout_s=None), server=False, now=0.0)
    server = Connection(
        ConnectionSettings(container_id="a", idle_timeout_s=None, max_frame_size=512), server=True, now=0.0
    )
    client.open()
    session = client.begin()
    sender, receiver = session.sender("out"), session.receiver("in")
    properties: dict[Any, Any] = {"onceway:epoch": 7, "onceway:incarnation": 7}
    sender.attach(
        source=Source(), target=Target("t"), unsettled={b"old": None}, rcv_settle_mode=1, properties=properties
    )
    receiver.attach(source=Source("t", timeout=30), target=Target(), rcv_settle_mode=1, unsettled={})
    receiver.grant(50)
    said = b""
    for turn in range(8):
        data = client.data_to_send()
        said += data
        _serve(server.receive_data(data, 0.0))
        for event in client.receive_data(server.data_to_send(), 0.0):
            if isinstance(event, Transfers):
                event.link.dispose(event.first_id, event.first_id, ACCEPTED, True)
        if turn == 2:
            sender.send([b"%d" % n for n in range(12)], [BODY] * 12)
            sender.send([b"long"], [b"\x00Su\xb0" + struct.pack(">I", 1200) + b"l" * 1200])
        if turn == 4:
            sender.settle(0, 5, ACCEPTED)
        if turn == 6:
            sender.detach(closed=False)
            client.close()
    return said


def in_the_middle() -> bytes:
    """For links that are there already (targets.py): runs, pairs, ranges, a message in parts, flows, an end."""
    body = [frame(Transfer(0, n, b"%04d" % n, 0), 0, BODY) for n in range(12)]
    octets = b"".join(body)
    for n in range(12, 20):
        octets += frame(Transfer(0, n, b"%04d" % n, 0), 0, BODY)
        octets += frame(Disposition(False, n, None, True, ACCEPTED))
    octets += frame(Disposition(False, 0, 11, True, ACCEPTED)) + frame(Disposition(True, 0, 4, False, ACCEPTED))
    octets += b"".join(frame(Disposition(True, n, None, True, ACCEPTED)) for n in range(8))
    octets += frame(Flow(18, 1000, 20, 1000, handle=1, delivery_count=10, link_credit=20, drain=True, echo=True))
    octets += frame(Transfer(0, 20, b"more", 0, more=True), 0, BODY[:4]) + frame(Transfer(0), 0, BODY[4:])
    octets += frame(Transfer(0, 21, b"gone", 0, more=True), 0, BODY) + frame(Transfer(0, aborted=True))
    octets += frame(Transfer(0, 22, b"again", 0, state=ACCEPTED, resume=True, settled=True))
    octets += frame(
        Attach("new", 2, True, source=Source("s"), target=Target("t"), unsettled={b"a": ACCEPTED, b"b": None})
    )
    octets += frame(Detach(0, True)) + frame(Begin(None, 0, 10, 10), 2) + frame(End(), 1) + frame(Close())
    return octets


def between_routers() -> tuple[bytes, bytes]:
    """What router b says to a while its client comes, publishes and leaves: on a trunk, and as messages only."""
    a, b = Trunked("a"), Trunked("b")
    a.attach()
    on_the_trunk = b""

    def exchange() -> None:
        nonlocal on_the_trunk
        while a.out or b.out:
            on_the_trunk += b.out
            b_said, b.out = b.out, b""
            for octets in frames(b_said):
                a.reads(octets)
            a_said, a.out = a.out, b""
            b.reads(a_said)

    exchange()
    b.attach()
    exchange()
    for _ in range(6):
        b.publish()
        exchange()
    for octets in (
        frame(Disposition(True, 0, 3, False, ACCEPTED)),
        frame(Disposition(False, 0, 3, True, ACCEPTED)),
        frame(Detach(1, False)),
        frame(Attach("in", 2, True, rcv_settle_mode=1, source=Source("t", timeout=3), target=Target(), unsettled={})),
        frame(Detach(0, True)),
    ):
        b.says(octets)
        exchange()
    return on_the_trunk, b"".join(with_head(message) for message in b.said)


def wide(octets: bytes) -> bytes:
    """rhea's manner: every list with four bytes for size and count."""
    parts = b""
    offset = 0
    while offset < len(octets):
        if octets[offset : offset + 4] == b"AMQP":
            parts += octets[offset : offset + 8]
            offset += 8
            continue
        size = int.from_bytes(octets[offset : offset + 4], "big")
        part = octets[offset : offset + size]
        if size > 12 and part[11] == 0xC0:
            length, count = part[12], part[13]
            fields, rest = part[14 : 13 + length], part[13 + length :]
            body = part[8:11] + b"\xd0" + struct.pack(">II", len(fields) + 4, count) + fields + rest
            part = struct.pack(">I", len(body) + 8) + part[4:8] + body
        parts += part
        offset += size
    return parts


def main() -> None:
    CORPUS.mkdir(parents=True, exist_ok=True)
    begins = AMQP_HEADER + frame(Open("rhea", idle_time_out=30_000)) + frame(Begin(None, 0, 2048, 2048))
    attached = frame(Attach("in", 0, False, source=Source(), target=Target("t"), initial_delivery_count=0)) + frame(
        Attach("out", 1, True, rcv_settle_mode=0, source=Source("t"), target=Target())
    )
    credit = frame(Flow(0, 2048, 0, 2048, handle=1, delivery_count=0, link_credit=1000))
    middle = in_the_middle()
    on_a_trunk, in_a_session = between_routers()
    conversations = {
        "trunk--routers": on_a_trunk,
        "peer--routers": in_a_session,
        "router--proton": proton_client(),
        "router--ours": ours(),
        "router--rhea": wide(begins + attached + credit + middle),
        "server--middle": middle,
        "server--rhea": wide(middle),
        "client--middle": middle,
        "client--rhea": wide(middle),
        "server-start--proton": proton_client(),
        "server-start--ours": ours(),
        "client-start--server": begins.replace(b"rhea", b"here")
        + frame(Begin(0, 0, 10, 10), 1)
        + frame(Attach("out", 0, True, source=Source("s"), target=Target("t")), 1),
    }
    for name, octets in conversations.items():
        (CORPUS / f"{name}.bin").write_bytes(octets)


if __name__ == "__main__":
    main()
