"""Publishes a decided batch: the messages without an outcome, in order; returns when every message has one.

One connection, one link to each topic, as the publisher whose journal is the outbox.  Where a batch has shares, each is
published like that by a publisher of its own, in a task of Spark (`publish_share`).  After any failure (of a router,
of this process) the client continues from the journal; a repeat of a batch whose messages all have outcomes sends
nothing.  Knows neither Spark nor how batches are decided (`outbox`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from onceway.base import waits
from onceway.client.connection import Connection, connect
from onceway.client.reports import PublicationsUndecided, Report, RouterConnected, RouterLost
from onceway.errors import JournalError, LinkError, LinkStolen, OncewayError, UsageError
from onceway.spark.errors import PublishFailed, RowsInDoubt, RowsRefused
from onceway.spark.options import Terms
from onceway.spark.sink.journal import ACCEPTED, IN_DOUBT, OutboxJournal
from onceway.spark.sink.outbox import Manifest, Outbox
from onceway.spark.sink.staging import Run, StagedFile, payloads_of
from router.core.intervals import Range

LOOK_EVERY_S: Final = 1.0  # whether there is progress, and whether our parent is still alive
SHOWN: Final = 5  # places of rows that a message names


def commit_batch(
    outbox: Outbox,
    owner: str,
    name: str,
    files: Sequence[StagedFile],
    terms: Terms,
    publishers: int = 0,
    spread: Callable[[Manifest], None] | None = None,
) -> None:
    """Decides a batch of these files and publishes it; one that was decided before continues with its own files.

    owner: whose outbox this must be.  publishers: how many share the batch; spread: lets them publish it, each by
    `publish_share`.  Raises OutboxError, the errors of finish_batch, and those of `spread`.
    """
    parent = os.getppid() if spread is None else None
    with outbox.held(owner, terms.lock_timeout_s):
        if outbox.published(name):
            outbox.discard(name, files)
            return
        journal = outbox.journal()
        try:
            # a decided batch is published even if nobody repeats it: a write whose job died
            for manifest in outbox.unfinished():
                finish_batch(outbox, manifest, journal, terms, parent, spread)
            if not outbox.published(name):
                if terms.on_missing == "fail":
                    outbox.check_follows(name, terms.checkpoint)
                manifest = outbox.decide(name, files, journal, publishers, terms.lock_timeout_s)
                finish_batch(outbox, manifest, journal, terms, parent, spread)
        finally:
            journal.release()
        outbox.clean(terms.retention_s)


def finish_batch(
    outbox: Outbox,
    manifest: Manifest,
    journal: OutboxJournal,
    terms: Terms,
    parent: int | None,
    spread: Callable[[Manifest], None] | None = None,
) -> None:
    """Publishes the rest of a batch, in `outbox.held`, and marks it done.

    parent: the driver's process id, while this process is its child.  Raises PublishFailed, RowsInDoubt, RowsRefused,
    JournalError, and the errors of `spread`; after each of them a repeat continues from there.
    """
    if manifest.rows and manifest.shares and spread is not None:
        spread(manifest)
    works = [_publish(outbox, manifest, journal, terms, parent)]
    for share in manifest.shares:  # nothing is left of them, unless nobody has spread them
        with outbox.share(share.publisher, terms.lock_timeout_s) as its_journal:
            works.append(_publish(outbox, share, its_journal, terms, parent))
    for work in works:
        work.judge()
    tallies: dict[str, dict[str, int]] = {}
    for work in works:
        for topic, tally in work.tallies().items():
            total = tallies.setdefault(topic, {})
            for word, number in tally.items():
                total[word] = total.get(word, 0) + number
    clean = all(set(tally) <= {ACCEPTED} for tally in tallies.values())
    outbox.finish(manifest, tallies, keep_files=not clean)


def publish_share(outbox: Outbox, name: str, publisher: int, terms: Terms, parent: int | None) -> None:
    """Publishes the rest of one publisher's share of a decided batch; judging it is the driver's.

    Raises OutboxError, PublishFailed, RowsInDoubt, JournalError; a repeat continues from there.
    """
    with outbox.share(publisher, terms.lock_timeout_s) as journal:
        if outbox.published(name):
            return  # an attempt that comes too late: the journal knows these numbers no more
        shares = {share.publisher: share for share in outbox.read(name).shares}
        if publisher in shares:
            _publish(outbox, shares[publisher], journal, terms, parent)


def _publish(outbox: Outbox, part: Manifest, journal: OutboxJournal, terms: Terms, parent: int | None) -> _Work:
    runs = part.runs(outbox.directory(part.name))
    for topic, its_runs in runs.items():
        journal.use(topic, its_runs)
    container = terms.name or f"onceway-outbox-{outbox.uuid}"
    if part.publisher:
        container = f"{container}.{part.publisher}"
    work = _Work(part, runs, journal, terms, container, parent)
    if terms.on_undecided == "resend":
        work.restore()
    while work.left():
        # An outcome that a crash left unsettled needs no connection: a later attach settles it, or the network's
        # own timeout does.
        asyncio.run(work.publish())
        if terms.on_undecided == "resend":
            work.restore()
    return work


@dataclass(slots=True)
class _Work:
    manifest: Manifest
    runs: Mapping[str, Sequence[Run]]
    journal: OutboxJournal
    terms: Terms
    container: str
    parent: int | None  # the driver's process, where this one is its child
    trouble: str = ""  # why there is no connection now
    doubts: dict[str, str] = field(default_factory=dict)  # topic -> the network's reason

    # -- the rounds

    async def publish(self) -> None:
        timeout_s = self.terms.timeout_s
        connection = connect(
            self.terms.url,
            container=self.container,
            journal=self.journal,
            connect_timeout_s=timeout_s,
            on_report=self._on_report,
            **self.terms.access.arguments(),
        )
        try:
            await self._connect(connection)
            await self._publish_all(connection)
        except (JournalError, PublishFailed, RowsInDoubt):
            raise
        except LinkStolen as error:
            raise PublishFailed(
                f"{self._place()}: {error}.  A second driver with the same outbox, or a copy of it, has continued "
                "with it: leave it to that one"
            ) from error
        except (LinkError, UsageError) as error:
            raise PublishFailed(
                f"{self._place()}: {error}; put that right in the network and restart the query: the batch stays in "
                "the outbox"
            ) from error
        except OncewayError as error:
            raise PublishFailed(f"{self._place()}: {error}; {self._state()}") from error
        finally:
            try:
                await connection.close(timeout_s=0.0)
            finally:
                # a connection that was never opened, or has failed, leaves the journal open
                await waits.DISK(asyncio.to_thread(self.journal.close))

    async def _connect(self, connection: Connection) -> None:
        opening = asyncio.ensure_future(_opened(connection))
        try:
            while not opening.done():
                self._check_driver()
                await waits.PAUSE(asyncio.wait)([opening], timeout=LOOK_EVERY_S)
            opening.result()
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)

    def _check_driver(self) -> None:
        """An orphaned process would hold the outbox's lock against the next driver."""
        if self.parent is not None and os.getppid() != self.parent:
            raise PublishFailed(f"{self._place()}: the driver has gone; {self._state()}")

    async def _publish_all(self, connection: Connection) -> None:
        tasks = [asyncio.create_task(self._publish_topic(connection, topic)) for topic in self.left()]
        left = set(tasks)
        seen, since = self.journal.progress, asyncio.get_running_loop().time()
        try:
            while left:
                looking = waits.OUTBOX(asyncio.wait)
                done, left = await looking(left, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                now = asyncio.get_running_loop().time()
                if self.doubts:
                    self._raise_doubt()
                if self.journal.progress != seen or done:
                    seen, since = self.journal.progress, now
                if left and now - since > self.terms.timeout_s:
                    raise PublishFailed(
                        f"{self._place()}: no outcome for {self.terms.timeout_s:g} s (publishTimeout); {self._state()}"
                    )
                self._check_driver()
        finally:
            for task in tasks:
                task.cancel()
            await waits.OWN_WORK(asyncio.gather(*tasks, return_exceptions=True))

    async def _publish_topic(self, connection: Connection, topic: str) -> None:
        runs = self.runs[topic]
        publisher = await connection.publisher(topic, on_undecided=self._doubt)
        self._raise_doubt()
        end = runs[-1].first + runs[-1].rows
        if publisher.sequence < end:
            await publisher.put_payloads(payloads_of(runs, publisher.sequence, end))
        await publisher.drain()
        self._raise_doubt()

    def _doubt(self, report: PublicationsUndecided) -> None:
        self.doubts[report.address] = report.reason

    def _on_report(self, report: Report) -> None:
        if isinstance(report, RouterLost):
            self.trouble = f"{report.url}: {report.reason}"
        elif isinstance(report, RouterConnected):
            self.trouble = ""
        elif isinstance(report, PublicationsUndecided):
            self._doubt(report)

    # -- outcomes

    def left(self) -> list[str]:
        """Topics with rows that have no outcome yet."""
        ends = self.manifest.ends()
        return [
            topic
            for topic, first in self.manifest.firsts.items()
            if self.journal.topic(topic).decided.missing([(first, ends[topic])])
        ]

    def tallies(self) -> dict[str, dict[str, int]]:
        ends = self.manifest.ends()
        return {
            topic: self.journal.topic(topic).tally(first, ends[topic]) for topic, first in self.manifest.firsts.items()
        }

    def restore(self) -> None:
        """Marks the rows in doubt to be sent again."""
        for topic in self.runs:
            self.journal.restore(topic, self._with(topic, {IN_DOUBT}))
        self.doubts.clear()

    def judge(self) -> None:
        """Raises where rows are in doubt or refused and the options do not say to continue."""
        if self.terms.on_undecided == "fail":
            self._raise_doubt()
        if self.terms.on_reject == "fail":
            fine = {ACCEPTED, IN_DOUBT}
            refused = {topic: self._with(topic, set(self.journal.topic(topic).outcomes) - fine) for topic in self.runs}
            if any(refused.values()):
                raise RowsRefused(
                    f"{self._place()}: every row has its outcome, and some were not accepted: {self._counts()}; "
                    f"for example {self._rows(refused)}.  Nothing is published again.  Look at the subscribers that "
                    "refused them; to continue without these rows, restart with onReject=ignore"
                )

    def _raise_doubt(self) -> None:
        if self.terms.on_undecided != "fail":
            return
        doubted = {topic: self._with(topic, {IN_DOUBT}) for topic in self.runs}
        if any(doubted.values()):
            reasons = "; ".join(f"{topic}: {reason}" for topic, reason in self.doubts.items())
            raise RowsInDoubt(
                f"{self._place()}: rows may or may not have arrived, because the network no longer knows this "
                f"publisher{f' ({reasons})' if reasons else ''}: {self._counts()}; namely "
                f"{self._rows(doubted)}.  Look at a subscriber, then restart with onUndecided=resend (they may arrive "
                "twice, and after later ones) or onUndecided=skip (they may be missing).  A longer publisher_timeout "
                "of the network avoids this"
            )

    def _with(self, topic: str, words: set[str]) -> list[Range]:
        first, end = self.manifest.firsts[topic], self.manifest.ends()[topic]
        outcomes = self.journal.topic(topic).outcomes
        return sorted(part for word in words if word in outcomes for part in outcomes[word].overlap(first, end))

    def _counts(self) -> str:
        ends = self.manifest.ends()
        counts = []
        for topic, tally in self.tallies().items():
            total = ends[topic] - self.manifest.firsts[topic]
            words = [f"{count} {'in doubt' if word == IN_DOUBT else word}" for word, count in sorted(tally.items())]
            counts.append(f"{topic}: {', '.join(words) or 'none decided'} of {total}")
        return "; ".join(counts) or "no rows"

    def _rows(self, found: Mapping[str, Sequence[Range]]) -> str:
        """The places of rows: number, record batch and file."""
        places = []
        for topic, ranges in found.items():
            for start, stop in ranges[:SHOWN]:
                run = next(run for run in self.runs[topic] if run.first <= start < run.first + run.rows)
                count = f" and the {stop - start - 1} after it" if stop - start > 1 else ""
                places.append(f"{topic} number {start}{count} (record batch {run.index} of {run.path.name})")
            if len(ranges) > SHOWN:
                places.append(f"{len(ranges) - SHOWN} more places")
        return ", ".join(places)

    def _place(self) -> str:
        return f"{self.manifest.name} of container {self.container}"

    def _state(self) -> str:
        trouble = f"; {self.trouble}" if self.trouble else ""
        return f"{self._counts()}{trouble}; a restart of the query publishes the rest, nothing twice"


async def _opened(connection: Connection) -> None:
    await connection
