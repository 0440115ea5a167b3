"""What encoding and decoding AMQP costs: microseconds of CPU per message and link.

    python -m bench engine [--seconds S] [--only WORDS]

Messages of 100 bytes come and go in batches of b = 1, 10 and 100, one batch to a read or write: transfers in, as this
package, proton and rhea encode them; transfers out on 1, 4 and 16 links that share what one of them has encoded;
dispositions in and out.  The best of several rounds, since other programs run on the same machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence

from amqp10 import ACCEPTED, Connection, ConnectionSettings, LinkAttaching, ReceiverLink, SenderLink, Source, Target
from amqp10.serial import WRAP

BATCHES = (1, 10, 100)
ENDLESS = 0x7FFFFFFF
TOTAL = 20_000  # messages in a round
FIRST = 256  # from here on, everybody's encoding of a delivery-id takes four bytes
BODY = b"\x00\x53\x75\xa0\x64" + b"x" * 100
TAGS = [b"%08d" % number for number in range(TOTAL)]
Prepared = tuple[Callable[[], None], int, Connection]
"""(one round, messages in it, the connection under test)"""
Encode = Callable[[int, bytes, bytes], bytes]
"""(delivery-id, delivery-tag, payload) -> a transfer's frame"""


def frame(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


def uint(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4, "big")


def our_transfer(delivery_id: int, tag: bytes, payload: bytes) -> bytes:
    fields = b"\x43" + uint(delivery_id) + b"\xa0" + bytes((len(tag),)) + tag + b"\x43"
    return frame(b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 4)) + fields + payload)


def proton_transfer(delivery_id: int, tag: bytes, payload: bytes, handle: bytes = b"\x43") -> bytes:
    fields = handle + uint(delivery_id) + b"\xa0" + bytes((len(tag),)) + tag + b"\x43\x42\x42"
    return frame(b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 6)) + fields + payload)


def rhea_transfer(delivery_id: int, tag: bytes, payload: bytes) -> bytes:
    fields = b"\x43" + uint(delivery_id) + b"\xa0" + bytes((len(tag),)) + tag + b"\x43\x42\x42"
    return frame(b"\x00\x53\x14\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x06" + fields + payload)


def reads_of(frames: Sequence[bytes], batch: int) -> list[bytes]:
    return [b"".join(frames[start : start + batch]) for start in range(0, len(frames), batch)]


def connected() -> tuple[Connection, Connection]:
    client, server = (
        Connection(
            ConnectionSettings(container_id=name, idle_timeout_s=None, incoming_window=ENDLESS),
            server=name == "server",
            now=0.0,
        )
        for name in ("client", "server")
    )
    client.open()
    return client, server


def attach(client: Connection, server: Connection, link: SenderLink | ReceiverLink) -> SenderLink | ReceiverLink:
    """Attaches the client's link; the server's end of it."""
    link.attach(source=Source("here"), target=Target("there"))
    if isinstance(link, ReceiverLink):
        link.grant(ENDLESS)
    found: list[SenderLink | ReceiverLink] = []
    while True:
        data = client.data_to_send()
        for event in server.receive_data(data, 0.0):
            if isinstance(event, LinkAttaching):
                end = event.link
                assert isinstance(end, SenderLink | ReceiverLink)
                assert end.remote_attach is not None
                end.attach(source=end.remote_attach.source, target=end.remote_attach.target)
                if isinstance(end, ReceiverLink):
                    end.grant(ENDLESS)
                found.append(end)
        answer = server.data_to_send()
        client.receive_data(answer, 0.0)
        if not data and not answer:
            return found[0]


def receivers(number: int = 1) -> tuple[Connection, list[ReceiverLink]]:
    """A server, and its ends of so many publishers' links in one session."""
    client, server = connected()
    session = client.begin()
    ends = [attach(client, server, session.sender(f"link-{i}")) for i in range(number)]
    return server, [end for end in ends if isinstance(end, ReceiverLink)]


def subscribed() -> tuple[Connection, SenderLink]:
    """A server, and its end of a subscriber's link."""
    client, server = connected()
    link = attach(client, server, client.begin().receiver("link"))
    assert isinstance(link, SenderLink)
    return server, link


def receiving(
    server: Connection, links: Sequence[ReceiverLink], reads: Sequence[bytes], unsettled: int = 0
) -> Prepared:
    """Rounds in which these reads bring TOTAL messages; the first link has so many unsettled ones before."""
    incoming = links[0].session.incoming

    def run() -> None:
        incoming.next_delivery_id = FIRST
        for link in links:
            incoming.unsettled.drop(link)
            link.grant(ENDLESS)
        if unsettled:
            incoming.unsettled.add(FIRST - unsettled, FIRST, links[0])
        receive = server.receive_data
        for read in reads:
            receive(read, 0.0)
        server.data_to_send()

    return run, TOTAL, server


def transfers_in(encode: Encode, batch: int, *, varied: bool = False) -> Prepared:
    bodies = [BODY + b"y" * (number % 50 if varied else 0) for number in range(TOTAL)]
    frames = [encode(FIRST + number, TAGS[number], bodies[number]) for number in range(TOTAL)]
    return receiving(*receivers(), reads_of(frames, batch))


def two_links_in_turn(batch: int) -> Prepared:
    handles = (b"\x43", b"\x52\x01")
    frames = [proton_transfer(FIRST + number, TAGS[number], BODY, handles[number % 2]) for number in range(TOTAL)]
    return receiving(*receivers(2), reads_of(frames, batch))


def transfers_and_settlements(batch: int) -> Prepared:
    """A publisher in mode second: each transfer with the settlement of the one 100 before; per pair."""
    frames = [
        proton_transfer(FIRST + number, TAGS[number], BODY)
        + frame(b"\x00\x53\x15\xc0\x0d\x05\x42" + uint(FIRST - 100 + number) + b"\x40\x41\x00\x53\x24\x45")
        for number in range(TOTAL)
    ]
    return receiving(*receivers(), reads_of(frames, batch), unsettled=100)


def transfers_out(links: int, batch: int) -> Prepared:
    ends = [subscribed() for _ in range(links)]
    total = TOTAL if links == 1 else TOTAL // 5
    tags = [b"%032d" % number for number in range(total)]
    payloads = [BODY] * total

    def run() -> None:
        for start in range(0, total, batch):
            some_tags, some_payloads = tags[start : start + batch], payloads[start : start + batch]
            shared: tuple[dict[object, object], int] | None = ({}, 0) if links > 1 else None
            for connection, sender in ends:
                sender.credit = sender.session.outgoing.window = ENDLESS
                sender.send(some_tags, some_payloads, shared=shared)
                connection.data_to_send()

    return run, total * links, ends[0][0]


def dispositions_in(reads: Sequence[bytes]) -> Prepared:
    server, sender = subscribed()
    outgoing = sender.session.outgoing

    def run() -> None:
        outgoing.unsettled.drop(sender)
        outgoing.next_delivery_id = FIRST + TOTAL
        outgoing.unsettled.add(FIRST, FIRST + TOTAL, sender)
        receive = server.receive_data
        for read in reads:
            receive(read, 0.0)

    return run, TOTAL, server


def proton_disposition(delivery_id: int) -> bytes:
    return frame(b"\x00\x53\x15\xc0\x0d\x05\x41" + uint(delivery_id) + b"\x40\x42\x00\x53\x24\x45")


def rhea_disposition(delivery_id: int) -> bytes:
    fields = b"\x41" + uint(delivery_id) + uint(delivery_id) + b"\x42\x00\x53\x24\x45"
    return frame(b"\x00\x53\x15\xd0\x00\x00\x00\x14\x00\x00\x00\x05" + fields)


def range_disposition(first: int, last: int) -> bytes:
    fields = b"\x41" + uint(first) + uint(last) + b"\x41\x00\x53\x24\x45"
    return frame(b"\x00\x53\x15\xc0" + bytes((len(fields) + 1, 5)) + fields)


def single_dispositions_in(encode: Callable[[int], bytes], batch: int) -> Prepared:
    return dispositions_in(reads_of([encode(delivery_id) for delivery_id in range(FIRST, FIRST + TOTAL)], batch))


def range_dispositions_in(batch: int) -> Prepared:
    return dispositions_in([range_disposition(i, i + batch - 1) for i in range(FIRST, FIRST + TOTAL, batch)])


def dispositions_out(batch: int) -> Prepared:
    server, (link,) = receivers()

    def run() -> None:
        for first in range(0, TOTAL, batch):
            link.dispose(first & WRAP, first + batch - 1, ACCEPTED, True)
            server.data_to_send()

    return run, TOTAL, server


SUBJECTS: dict[str, Callable[[int], Prepared]] = {
    "transfers in, ours": lambda batch: transfers_in(our_transfer, batch),
    "transfers in, proton's": lambda batch: transfers_in(proton_transfer, batch),
    "transfers in, rhea's": lambda batch: transfers_in(rhea_transfer, batch),
    "transfers in, sizes vary": lambda batch: transfers_in(proton_transfer, batch, varied=True),
    "transfers in, two links in turn": two_links_in_turn,
    "transfers and settlements in turn": transfers_and_settlements,
    "transfers out, 1 link": lambda batch: transfers_out(1, batch),
    "transfers out, 4 links, each": lambda batch: transfers_out(4, batch),
    "transfers out, 16 links, each": lambda batch: transfers_out(16, batch),
    "dispositions in, proton's singles": lambda batch: single_dispositions_in(proton_disposition, batch),
    "dispositions in, rhea's singles": lambda batch: single_dispositions_in(rhea_disposition, batch),
    "dispositions in, ranges": range_dispositions_in,
    "dispositions out, ranges": dispositions_out,
}


def measure(prepared: Prepared, seconds: float) -> float:
    run, messages, connection = prepared
    run()
    assert not connection.closing, "the connection found fault with what the bench sent"
    return best_round(run, messages, seconds)


def best_round(run: Callable[[], None], messages: int, seconds: float) -> float:
    """Returns microseconds of CPU per message, those of the best round."""
    best, spent = float("inf"), 0.0
    while spent <= seconds:
        start = time.process_time()
        run()
        took = time.process_time() - start
        best = min(best, took)
        spent += took
    return best / messages * 1e6


def table(
    argv: Sequence[str] | None,
    description: str | None,
    cost: Callable[[str, int, float], float],
    subjects: Iterable[str],
) -> int:
    """Prints a line for each subject, with what `cost` of subject, batch and seconds says."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="of measuring for each number")
    parser.add_argument("--only", default="", help="subjects that contain this")
    args = parser.parse_args(argv)
    print(f"{'us per message':36}" + "".join(f"{f'b={batch}':>9}" for batch in BATCHES))
    for subject in subjects:
        if args.only in subject:
            costs = [cost(subject, batch, args.seconds) for batch in BATCHES]
            print(f"{subject:36}" + "".join(f"{cost:9.3f}" for cost in costs), flush=True)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    return table(argv, __doc__, lambda subject, batch, seconds: measure(SUBJECTS[subject](batch), seconds), SUBJECTS)
