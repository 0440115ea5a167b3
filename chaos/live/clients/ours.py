"""Our client as an application uses it, with a journal: it resumes where it was killed."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import onceway
from chaos.judge.history import Writer
from chaos.live.clients.in_hand import InHand, ReadingJournal, without_outcome
from chaos.live.clients.options import LINK, body, read_body, say, shown
from onceway.base.loop import run as run_loop
from onceway.client.delivery import Batch
from onceway.client.publications import Publication
from onceway.client.reports import LinkAttached, Report
from onceway.errors import DeliveryNotAccepted, DeliveryUndecided

GUARANTEES = {"second": "exactly-once", "first": "at-least-once", "presettled": "at-most-once"}
MOST_AT_ONCE = 200


def run(args: SimpleNamespace, history: Writer) -> None:
    run_loop(publish(args, history) if args.what == "publish" else subscribe(args, history))


def _connect(
    args: SimpleNamespace,
    history: Writer,
    journal: onceway.SqliteJournal | None,
    outcome: Callable[[int, str], None] | None = None,
) -> onceway.Connection:
    role = "p" if args.what == "publish" else "s"

    def report(event: Report) -> None:
        who = {role: args.name}
        if isinstance(event, LinkAttached):
            history.write("attached", router=event.router, resumed=event.resumed, **who)
            if role == "s" and not event.resumed:
                history.write("ready", s=args.name)
        elif isinstance(event, onceway.SubscriptionGap):
            history.write("told", why=event.reason, dropped=event.dropped, **who)
        elif isinstance(event, onceway.PublicationsUndecided):
            history.write("told", why=event.reason, **who)
            assert outcome is not None
            for number, _ in event.publications:
                outcome(number, "undecided")
        elif isinstance(event, onceway.RouterLost):
            history.write("note", text=f"lost {event.url}: {event.reason}; next in {event.retry_in_s:.3f} s", **who)

    return onceway.connect(
        args.urls,
        container=args.name,
        journal=journal,
        ordered=True,
        connect_timeout_s=None,
        on_report=report,
        **shown(args),
    )


async def publish(args: SimpleNamespace, history: Writer) -> None:
    under_way: asyncio.Queue[Publication | None] = asyncio.Queue()
    told: set[int] = set()

    def outcome(number: int, how: str) -> None:
        if number not in told:
            told.add(number)
            history.outcome(args.name, number, how)

    async def collect() -> None:
        while (publication := await under_way.get()) is not None:
            how = "accepted"
            try:
                await publication
            except DeliveryUndecided:
                how = "undecided"
            except DeliveryNotAccepted:
                how = "rejected"
            outcome(publication.sequence, how)

    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
    journal = onceway.SqliteJournal(args.journal) if args.journal else None
    open_before = without_outcome(args.history)
    async with _connect(args, history, journal, outcome) as connection:
        publisher = await connection.publisher(
            args.address,
            name=LINK,
            guarantee=GUARANTEES[args.settle],
            on_undecided=lambda report: None,  # on_report has written it down
        )
        say("READY")
        open_before -= {publication.sequence for publication in publisher.recovered}
        for number in sorted(open_before):
            if number < publisher.sequence:  # else it never reached the journal, and its number comes again
                outcome(number, "accepted")
        collector = asyncio.create_task(collect())
        for publication in publisher.recovered:
            under_way.put_nowait(publication)
        began, first = time.monotonic(), publisher.sequence
        until = args.until or (began + args.duration if args.duration else None)
        while not enough.is_set() and (args.count is None or publisher.sequence < args.count):
            ahead = (publisher.sequence - first) / args.rate - (time.monotonic() - began)
            if ahead > 0:
                await asyncio.sleep(ahead)
            if until is not None and time.monotonic() >= until:
                break
            number = publisher.sequence
            history.send(args.name, number)
            under_way.put_nowait(await publisher.put(body(args.name, number, args.size)))
        await publisher.drain()
        under_way.put_nowait(None)
        await collector
        history.write("close", p=args.name)
    say("DONE")


async def subscribe(args: SimpleNamespace, history: Writer) -> None:
    def numbers(batch: Batch) -> list[tuple[str, int]]:
        return [read_body(data) for data in batch.bodies]

    async def receive() -> None:
        most = 1 if args.pause else MOST_AT_ONCE
        async for batch in subscriber.batches(max_messages=most):
            deliveries = numbers(batch)
            history.receive(args.name, *deliveries)
            if in_hand is not None:
                in_hand.note(batch.tags, deliveries)
            if args.pause:
                await asyncio.sleep(args.pause)
            await batch.accept()
            history.accept(args.name, *deliveries)

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    journal = ReadingJournal(args.journal) if args.journal else None
    in_hand = InHand(f"{args.journal}.in_hand") if args.journal else None
    async with _connect(args, history, journal) as connection:
        subscriber = await connection.subscriber(
            args.address,
            name=LINK,
            guarantee=GUARANTEES[args.settle],
            credit=args.credit,
            on_gap=lambda gap: None,  # on_report has written it down
        )
        if in_hand is not None and journal is not None:
            kept = journal.accepted_before
            history.accept(args.name, *(one for tag, one in in_hand.before.items() if tag in kept))
        say("READY")
        receiving = asyncio.create_task(receive())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
        if receiving.done():
            receiving.result()
            sys.exit("the subscriber was closed under its reader")
        history.write("close", s=args.name)
        await subscriber.close()
        receiving.cancel()
