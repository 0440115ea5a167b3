"""One running query on its driver: which rows there are, which make the next batch, which are done.

Every answer to Spark comes from the log, which knows what is durable (`wal.reading`).  The network is the task of the
ingests, other processes, which this one only starts, watches and tells how far Spark is.  So only `freeze` waits for
the network.  Knows none of Spark's classes, so that it can be tested without Spark.

An offset names the log and, for each of its slots, the number of the next row:

    {"p":{"0":12345,"1":99},"v":1,"wal":"0b4c..."}

Spark stores the JSON text and compares it, so equal positions must give equal texts: keys are in one order.  A slot
that an offset does not name was added to the log later; none of its rows have been read.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from onceway.client.urls import parse_urls
from onceway.spark.errors import CheckpointIsNew, DataLoss, OffsetError, OptionError
from onceway.spark.options import MIB, SourceOptions
from onceway.spark.source.apart import Apart, LoggedTopics
from onceway.spark.source.ingests import ATTACH_WITHIN_S, Ingests, say
from onceway.spark.source.journal import GAPS, Gap, GapFile
from onceway.spark.source.losses import Loss, Losses
from onceway.spark.source.progress import Progress
from onceway.spark.source.topics import Topics, matching
from onceway.spark.wal import SlotReader, Wal
from router.json_text import write_json

VERSION: Final = 1
INLINE_BYTES: Final = 64 * MIB  # of a batch that travels through the driver, unless maxBytesPerTrigger is set
_NO_OFFSET: Final = "was the checkpoint written by another source? give the query a checkpoint of its own"
_NEW_LOG: Final = "give the query a new checkpoint"


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in the log with uuid `wal`."""

    wal: str
    positions: Mapping[int, int]

    def as_dict(self) -> dict[str, Any]:
        """The offset for Spark; as JSON, equal positions are equal."""
        return {
            "p": {str(slot): self.positions[slot] for slot in sorted(self.positions)},
            "v": VERSION,
            "wal": self.wal,
        }


def offset_of(value: object) -> Offset:
    """The offset that Spark passes back, or that is JSON text.  Raises OffsetError."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise OffsetError(f"{value!r} is no offset: {error}; {_NO_OFFSET}") from None
    if not isinstance(value, Mapping):
        raise OffsetError(f"{value!r} is no offset of onceway; {_NO_OFFSET}")
    version = value.get("v")
    if version != VERSION:
        if isinstance(version, int) and version > VERSION:
            raise OffsetError(
                f"the offset {write_json(dict(value))} is of version {version}, this onceway reads {VERSION}; "
                "use the onceway that wrote the checkpoint, or a newer one"
            )
        raise OffsetError(f"{write_json(dict(value))} is no offset of onceway; {_NO_OFFSET}")
    wal, positions = value.get("wal"), value.get("p")
    if not isinstance(wal, str) or not isinstance(positions, Mapping):
        raise OffsetError(f"{write_json(dict(value))} is incomplete; {_NO_OFFSET}")
    read: dict[int, int] = {}
    for slot, position in positions.items():
        whole = isinstance(position, int) and not isinstance(position, bool) and position >= 0
        if not str(slot).isdecimal() or not whole:
            raise OffsetError(f"slot {slot!r} at {position!r} in an offset is no position; {_NO_OFFSET}")
        read[int(slot)] = int(position)
    return Offset(wal, read)


def by_topics(text: str) -> dict[str, dict[int, int]] | None:
    """A position as Kafka's users write it, `{"orders":{"0":23,"1":-2}}`: -2 is the beginning of a partition, -1 its
    end.  None where it is written otherwise.  Raises OffsetError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or "v" in value or not all(isinstance(rows, dict) for rows in value.values()):
        return None
    for topic, rows in value.items():
        for slot, row in rows.items():
            if not slot.isdecimal() or not isinstance(row, int) or isinstance(row, bool) or row < -2:
                raise OffsetError(f"partition {slot!r} of topic {topic!r} at {row!r} is no position")
    return {topic: {int(slot): row for slot, row in rows.items()} for topic, rows in value.items()}


# -- the log


@dataclass(frozen=True, slots=True)
class Range:
    """Rows start .. end - 1 of a slot, for one task."""

    reader: SlotReader
    start: int
    end: int

    @property
    def slot(self) -> int:
        return self.reader.number


class Log:
    """The log's slots together: which rows can be read, and what is missing.

    It asks the log's readers and the gap files.  recovered: where a slot ended when its ingest had recovered it; None:
    not yet.  losses: of the query; none in a batch read.
    """

    def __init__(
        self,
        wal: Wal,
        fail_on_data_loss: bool,
        recovered: Callable[[int], int | None] | None = None,
        losses: Losses | None = None,
    ) -> None:
        self._losses = losses
        self._recovered = recovered or (lambda slot: self.readers[slot].end())
        self._fail = fail_on_data_loss
        self.readers: dict[int, SlotReader] = {}
        self._gaps: dict[int, GapFile] = {}
        self._lost: list[Loss] = []  # found, and not decided yet
        self._began: dict[int, int] = {}  # where each slot ended when this process began
        self._unchecked: dict[int, None] = {}  # slots of which Spark's position is to be compared
        self.grow(wal)

    def grow(self, wal: Wal) -> None:
        """The same log with more slots."""
        self._wal = wal
        for slot in wal.slots:
            if slot not in self.readers:
                self.readers[slot] = wal.slot(slot)
                self._began[slot] = self.readers[slot].end()
                self._unchecked[slot] = None
                self._gaps[slot] = GapFile(wal.document(f"{slot}/gaps.json", GAPS))

    def starts(self) -> dict[int, int]:
        return {slot: reader.start() for slot, reader in self.readers.items()}

    def ends(self) -> dict[int, int]:
        return {slot: reader.end() for slot, reader in self.readers.items()}

    def plannable(self) -> dict[int, int]:
        """`ends`; of a slot that is not known to reach Spark's position, no row that may be in the place of another."""
        return self.ends() | {slot: self._began[slot] for slot in self._unchecked}

    def received(self, ends: Mapping[int, int]) -> int:
        """The rows before these ends that came since this process began."""
        return sum(end - self._began[slot] for slot, end in ends.items())

    def bytes_between(self, slot: int, start: int, end: int) -> int:
        return self.readers[slot].bytes_between(start, end) if end > start else 0

    def note(self, loss: Loss) -> None:
        """`decide` says what comes of it."""
        self._lost.append(loss)

    def decide(self) -> None:
        """Raises DataLoss for what has been found lost and nobody has acknowledged; with failOnDataLoss=false it is
        acknowledged by that, with a warning."""
        found, self._lost = self._lost, []
        new = found if self._losses is None else self._losses.new(found)
        if not new:
            return
        what = ", ".join(dict.fromkeys(loss.what for loss in new))
        id_ = "" if self._losses is None else self._losses.found(new, what, acknowledged=not self._fail)
        if not self._fail:
            say(f"warning: {what} (failOnDataLoss is false: continuing without)")
            return
        remedy = "; ".join(dict.fromkeys(loss.remedy for loss in new))
        if self._losses is None:
            raise DataLoss(f"{what}; {remedy}, or read the rows there are with failOnDataLoss=false")
        reader = "" if self._losses.reader == "query" else f" --reader {self._losses.reader}"
        raise DataLoss(
            f"loss {id_}: {what}; {remedy}.  Every start fails until somebody has decided that the query goes on "
            f"without: start it with the option acknowledgeLoss={id_} or run onceway spark acknowledge-loss "
            f"{self._wal.location} {id_}{reader}"
        )

    def known(self, offset: Offset) -> dict[int, int]:
        """The offset's positions in this log; none where it belongs to another log.  `decide` comes next."""
        if offset.wal != self._wal.uuid:
            self.note(
                Loss(
                    f"log {offset.wal}",
                    f"the checkpoint continues in the log {offset.wal}, but {self._wal.location} holds "
                    f"{self._wal.uuid}: the log was lost or replaced, and with it what was received and not processed",
                    f"restore the directory, or {_NEW_LOG}",
                )
            )
            return {}
        for slot in offset.positions:
            if slot not in self.readers:
                self.note(
                    Loss(
                        f"slot {slot}",
                        f"the checkpoint has a position in slot {slot}, which {self._wal.location} does not have",
                        f"restore the directory, or {_NEW_LOG}",
                    )
                )
        return {slot: position for slot, position in offset.positions.items() if slot in self.readers}

    def position(self, text: str, option: str) -> Offset:
        """The position that an option gives.  Raises OffsetError, OptionError."""
        topics = by_topics(text)
        if topics is None:
            return offset_of(text)
        marks = {-1: self.plannable(), -2: self.starts()}
        positions = {}
        for topic, rows in topics.items():
            there = [slot for slot, name in self._wal.slots.items() if name == topic]
            for slot, row in rows.items():
                if slot not in there:
                    known = f"partitions {', '.join(map(str, there))}" if there else "nothing"
                    raise OptionError(
                        f"option {option}: {self._wal.location} has no partition {slot} of topic {topic!r}, of which "
                        f"it has {known}; the numbers are those of the column partition"
                    )
                positions[slot] = marks[row][slot] if row < 0 else row
        return Offset(self._wal.uuid, positions)

    def begins(self, start: Offset) -> dict[int, int]:
        """For every slot, the row to continue from.  Raises DataLoss."""
        known = self.known(start)
        begins = {slot: self._readable(slot, known.get(slot, first), first) for slot, first in self.starts().items()}
        self.decide()
        return begins

    def _readable(self, slot: int, position: int, first: int) -> int:
        if position >= first:
            return self._there(slot, position)
        self.note(
            Loss(
                f"trimmed {slot} {position}",
                f"rows {position} to {first - 1} of slot {slot} ({self._wal.slots[slot]}) in {self._wal.location} were "
                "trimmed: the checkpoint is older than what is kept",
                f"keep more by walRetention where checkpoints are rolled back, or {_NEW_LOG}",
            )
        )
        return first

    def _there(self, slot: int, position: int) -> int:
        """The position, if the log reaches it."""
        went_back = self._went_back(slot, position)
        if went_back is None:
            return position
        end, position = went_back
        self.note(
            Loss.went_back(
                slot,
                end,
                position,
                f"the checkpoint is at row {position} of slot {slot} ({self._wal.slots[slot]}), but the log in "
                f"{self._wal.location} ends at {end}: it is older than the checkpoint, or was damaged",
                f"restore the directory, or {_NEW_LOG}",
            )
        )
        return end

    def _went_back(self, slot: int, position: int) -> tuple[int, int] | None:
        """Where the log ended before this position, which it had reached once; None: it reaches it, or nobody knows
        yet (after a power cut readers see less until an ingest has recovered it)."""
        if self._losses is not None and (mark := self._losses.restart(slot, position)) is not None:
            return mark
        if slot in self._unchecked:
            # where recovery ended: what comes behind it may be in the place of rows that Spark has had
            recovered = self._recovered(slot)
            if recovered is None:
                return None
            end = recovered
        else:
            end = self.readers[slot].end()
            if position > end:
                end = self.readers[slot].end(fresh=True)
        if position > end:
            return end, position
        self._unchecked.pop(slot, None)
        return None

    def batch(self, start: Offset, end: Offset) -> tuple[dict[int, int], dict[int, int]]:
        """Start and end of a batch that was planned, perhaps by an earlier process.  Raises DataLoss."""
        ends = {slot: self._there(slot, position) for slot, position in self.known(end).items()}
        return self.begins(start), ends

    def stop_at_gaps(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, int]:
        """Ends the batch before a gap; raises DataLoss where it would begin at one, for all gaps that are ahead."""
        stops = dict(ends)
        at_gap = False
        for slot, end in ends.items():
            gaps = self._gaps[slot].read().known
            ahead = [gap for gap in gaps if gap.at >= begins[slot] and self._unacknowledged(slot, gap)]
            if not self._fail:
                ahead = [gap for gap in ahead if gap.at < max(end, begins[slot] + 1)]
            elif ahead:
                stops[slot] = min(end, ahead[0].at)
            at_gap |= bool(ahead) and (not self._fail or ahead[0].at == begins[slot])
            self._lost += [one for _, same in groupby(ahead, lambda gap: gap.at) for one in self._at_gap(slot, [*same])]
        if at_gap:
            self.decide()
        self._lost.clear()
        return stops

    def _unacknowledged(self, slot: int, gap: Gap) -> bool:
        return self._losses is None or bool(self._losses.new(self._at_gap(slot, [gap])))

    def _at_gap(self, slot: int, gaps: Sequence[Gap]) -> list[Loss]:
        """Of gaps at one place."""
        reasons = "; ".join({gap.reason: None for gap in gaps})
        dropped = sum(gap.dropped for gap in gaps)
        again = f", and {dropped} rows before it may come twice" if dropped else ""
        what = (
            f"messages of topic {self._wal.slots[slot]} may be missing before row {gaps[0].at} of slot {slot} "
            f"({reasons}){again}"
        )
        remedy = (
            "the network waits for a subscription as long as its address allows: declare it in the topology file (it "
            "is then waited for without end), or raise subscription_timeout"
        )
        return [Loss.at_gap(slot, gap, what, remedy) for gap in gaps]


def batch_ranges(options: SourceOptions) -> list[Range]:
    """The tasks of a batch read: all rows of the log (of `topic`, if given), or startingOffsets to endingOffsets."""
    wal = Wal.open(options.location)
    log = Log(wal, options.fail_on_data_loss)
    begins = starting(log, options)
    ends = log.ends()
    if options.ending != "latest":
        known = log.known(log.position(options.ending, "endingOffsets"))
        for slot, position in known.items():
            if position > ends[slot]:
                what = f"slot {slot} ends at {ends[slot]}, before endingOffsets' {position}"
                log.note(Loss(f"end {slot} {position}", what, "lower it"))
            if position < begins[slot]:
                raise OptionError(
                    f"option endingOffsets: row {position} of slot {slot} is before the first one, {begins[slot]} "
                    "(startingOffsets, or what has been trimmed); raise it"
                )
        log.decide()
        ends = {slot: min(known.get(slot, end), end) for slot, end in ends.items()}
    topics = options.topics
    if options.topic_pattern is not None:
        ends = {slot: ends[slot] for slot, topic in wal.slots.items() if matching(options.topic_pattern, [topic])}
    elif topics:
        wanted = {slot for topic in topics for slot in wal.slots_of(topic)}
        ends = {slot: end for slot, end in ends.items() if slot in wanted or wal.slots[slot] in topics}
    return tasks(log.readers, begins, ends, options)


def tasks(
    readers: Mapping[int, SlotReader], begins: Mapping[int, int], ends: Mapping[int, int], options: SourceOptions
) -> list[Range]:
    """The tasks of a batch: of at most about `maxTaskBytes`, and at least `minPartitions` by the slots' shares."""
    sizes = {slot: ends[slot] - begins[slot] for slot in ends if ends[slot] > begins[slot]}
    total, least = sum(sizes.values()), options.min_partitions or 0
    made = []
    for slot, size in sizes.items():
        reader, whole = readers[slot], (begins[slot], ends[slot])
        parts = max(-(-reader.bytes_between(*whole) // options.max_task), -(-least * size // total))
        pieces = [whole] if parts <= 1 else reader.split(*whole, parts)
        made += [Range(reader.for_task(low), low, high) for low, high in pieces]
    return made


def starting(log: Log, options: SourceOptions) -> dict[int, int]:
    ends = log.plannable()
    if options.starting_us is not None:
        return {slot: min(reader.row_since(options.starting_us), ends[slot]) for slot, reader in log.readers.items()}
    if options.starting == "earliest":
        return log.starts()
    if options.starting == "latest":
        return ends
    return log.begins(log.position(options.starting, "startingOffsets"))


# -- the query


class Stream:
    """`begin`, then Spark's calls in any order."""

    def __init__(
        self,
        options: SourceOptions,
        ingests: Callable[[SourceOptions, Wal], Ingests | Apart] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._clock = clock
        self.wal = Wal.open_or_create(
            options.location,
            options.subscription,
            options.topics,
            partitions=options.partitions,
            change=options.change_partitions and options.ingest == "driver",
        )
        self._topics: Topics | LoggedTopics | None = None
        if options.topic_pattern is not None:
            self._topics = (Topics if options.ingest == "driver" else LoggedTopics)(options)
            known = matching(options.topic_pattern, dict.fromkeys(self.wal.slots.values()))
            options = replace(options, topics=tuple(known))
        self._ingests = (ingests or (Ingests if options.ingest == "driver" else Apart))(options, self.wal)
        self._progress = Progress(self.wal, options.reader)
        self._progress.begin()
        self._losses = Losses(self.wal, options.reader)
        for unknown in self._losses.acknowledge(options.acknowledge_loss):
            say(f"acknowledgeLoss: {unknown} is no loss of {self.wal.location} that is known, or is over")
        self._log = Log(self.wal, options.fail_on_data_loss, self._ingests.recovered, self._losses)
        topics = options.topic_pattern or ", ".join(options.topics)
        routers = ", ".join(map(str, parse_urls(options.url)))  # without a password
        self._description = f"{topics} from {routers} by subscription {options.subscription}, log {self.wal.location}"
        self._initial: Offset | None = None
        self._unsure = False  # whether the query goes on with its batch 0, or has no checkpoint
        self._repeats = False  # its batch 0, which began where the log remembers
        self._frozen: dict[int, int] | None = None
        self._serves = False
        self._planned = clock()  # when the last batch was planned
        self._at: dict[int, int] = {}  # how far batches have been planned

    def begin(self) -> None:
        self._ingests.begin()
        if self._topics is not None:
            self._topics.begin()

    def _take_up(self, topics: Sequence[str]) -> None:
        """Those that are new.  A slot that an offset does not name begins at its first row."""
        known = {self.wal.slots[slot] for slot in self._log.readers}
        if new := [topic for topic in topics if topic not in known]:
            options = self._options
            self.wal = Wal.open_or_create(options.location, options.subscription, new, partitions=options.partitions)
            self._log.grow(self.wal)
            self._ingests.add(self.wal, [slot for topic in new for slot in self.wal.slots_of(topic)])
            say(f"topics that match {options.topic_pattern}: {', '.join(new)} added")

    def initial(self) -> Offset:
        """Where a query without a batch that is done starts; always the same.

        Spark asks for it also where the batch 0 of its checkpoint is not done.  It asks next for the rows of that batch
        (`ranges`); a query without a checkpoint asks what there is (`latest`).
        """
        if self._initial is None:
            self._unsure = self._progress.begun
            self._initial = Offset(self.wal.uuid, starting(self._log, self._options))
        return self._initial

    def latest(self, start: Offset, *, limited: bool) -> Offset:
        """The end of the next batch; `start` where there is none yet.

        Raises IngestFailed, DataLoss, CheckpointIsNew.
        """
        if self._unsure and start == self._initial:
            self._new_checkpoint(start)
        if self._repeats:  # that is done now
            self._initial, self._repeats = self._batch_0(), False
        if self._topics is not None:
            self._take_up(self._topics.found())
        self._ingests.check()
        self._progress.end_batch()  # Spark asks when it is done
        if not self._serves and all(self._ingests.recovered(slot) is not None for slot in self._log.readers):
            self._serves = True  # this process's ingests have the log
            self._progress.serve()
        begins = self._log.begins(start)
        available = self._log.plannable() if self._frozen is None else self._frozen
        ends = {slot: max(begins[slot], end) for slot, end in available.items()}
        self._at = begins  # Spark lags by the rows after the batch that is planned now
        self._ingests.processed(begins)
        if start.wal != self.wal.uuid or any(begins.get(slot) != at for slot, at in start.positions.items()):
            # A batch without rows skips what is missing, so that Spark records where it continues: a log that went
            # back will reach the old position again.
            return Offset(self.wal.uuid, begins)
        self._losses.passed()
        ends = self._log.stop_at_gaps(begins, self._old_partitions_first(begins, ends))
        if ends == begins or (limited and self._too_few(begins, ends)):
            self._progress.wait(begins)
            return start
        if limited or self._options.transport == "inline":
            ends = self._within_limits(begins, ends, limited)
        self._planned = self._clock()
        self._at = ends
        return Offset(self.wal.uuid, ends)

    def _batch_0(self) -> Offset:
        """Where it began, before the query was started again."""
        return Offset(self.wal.uuid, self._progress.initial or {})

    def _new_checkpoint(self, start: Offset) -> None:
        if self._options.on_new_checkpoint == "fail":
            raise CheckpointIsNew(
                f"{self.wal.location}: a query with a checkpoint has had rows of this log, and this one has no "
                "checkpoint: it would number its batches from 0 again, and a sink that knows batches by number "
                "(files, tables, foreachBatch) would leave out rows without a word.  Restore the checkpoint; or "
                "give the query a new sink as well as the new checkpoint, say by startingOffsets where to begin, "
                "and start it once with onNewCheckpoint=accept.  The full refresh of a pipeline gives its table a new "
                "checkpoint and empties it: set onNewCheckpoint=accept for good, and the next run fills it with the "
                "rows that the log has"
            )
        self._unsure = False
        before = sum(start.positions.values())
        say(f"a query with a new checkpoint reads {self.wal.location} without the first {before} rows")

    def _old_partitions_first(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> Mapping[int, int]:
        """A publisher's messages went on in other partitions when their number changed: these rows come later."""
        before = self.wal.before
        if any(ends.get(slot, 0) > begins[slot] for slot in before):
            self._planned = -math.inf  # nor does this batch wait for more rows
            return {slot: end if slot in before else begins[slot] for slot, end in ends.items()}
        return ends

    def _too_few(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> bool:
        """Whether minRowsPerTrigger asks to wait for more rows."""
        least = self._options.min_rows
        if least is None or self._frozen is not None:
            return False
        there = sum(ends[slot] - begins[slot] for slot in ends)
        return there < least and self._clock() - self._planned < self._options.max_delay_s

    def _within_limits(self, begins: Mapping[int, int], ends: Mapping[int, int], limited: bool) -> dict[int, int]:
        """Each slot gets a share of the limits in proportion to its rows and bytes."""
        rows = self._options.max_rows if limited else None
        size = self._options.max_bytes if limited else None
        if size is None and self._options.transport == "inline":
            size = INLINE_BYTES
        if rows is None and size is None:
            return dict(ends)
        there = {slot: end - begins[slot] for slot, end in ends.items()}
        sizes = {slot: self._log.bytes_between(slot, begins[slot], end) for slot, end in ends.items()}
        row_shares = _shares(rows, there)
        byte_shares = _shares(size, sizes)
        limits = {}
        for slot, end in ends.items():
            if not there[slot] or row_shares[slot] == 0:
                limits[slot] = begins[slot]
                continue
            bound = self._log.readers[slot].bounds(begins[slot], row_shares[slot], byte_shares[slot])
            limits[slot] = max(begins[slot], min(end, bound))
        return limits

    def freeze(self) -> None:
        """Trigger.AvailableNow and Once: receives what the network holds, then behaves as if nothing more came."""
        if self._topics is not None:
            self._take_up(self._topics.now(ATTACH_WITHIN_S))
        ends = self._ingests.drain(self._options.drain_timeout_s)
        self._frozen = {**self._log.ends(), **ends}

    def ranges(self, start: Offset, end: Offset) -> list[Range]:
        """The tasks of a batch.  Needs no ingest: it may be the first call after a restart.  Raises DataLoss."""
        first = start == self._initial
        if first and self._unsure and self._progress.initial is not None:
            self._repeats = True
        self._unsure = False
        begins, ends = self._log.batch(self._batch_0() if self._repeats else start, end)
        if ends != begins:
            self._progress.note_begun(start.positions if first and not self._repeats else None)
            self._progress.plan(ends)
        return tasks(self._log.readers, begins, ends, self._options)

    def commit(self, end: Offset) -> None:
        """Spark has recorded that everything before `end` is done.

        Trimming lags one batch, also across runs: a run of Trigger.AvailableNow may have a single batch.
        """
        if end.wal != self.wal.uuid:
            return
        self._ingests.processed(end.positions)
        before = self._progress.committed
        if before == end.positions:
            return  # repeated after a restart
        if before is not None and all(position <= end.positions.get(slot, -1) for slot, position in before.items()):
            self._ingests.trim(before)  # else the checkpoint was rolled back
        self._progress.commit(end.positions)

    def report(self) -> dict[str, Any]:
        """For progress: the end of the log, Spark's lag, and the state of the ingests."""
        ends = self._log.ends()
        at = {slot: min(self._at.get(slot, end), end) for slot, end in ends.items()}
        oldest = [self._log.readers[slot].received_us(at[slot]) / 1e6 for slot in ends if at[slot] < ends[slot]]
        return {
            "source": self._description,
            **Offset(self.wal.uuid, ends).as_dict(),
            "accepted": self._log.received(ends),  # what is durable: the ingest's own word may come after the batch
            "lagSeconds": round(max(0.0, time.time() - min(oldest)), 3) if oldest else 0.0,
            "lagRows": sum(ends[slot] - at[slot] for slot in ends),
            "backlogBytes": sum(self._log.bytes_between(slot, at[slot], end) for slot, end in ends.items()),
            **self._ingests.state(),
            **({} if self._progress.killed is None else {"killedBefore": self._progress.killed}),
        }

    def stop(self) -> None:
        if self._topics is not None:
            self._topics.stop()
        self._progress.end()
        self._ingests.stop()


def _shares(limit: int | None, there: Mapping[int, int]) -> dict[int, int | None]:
    """The limit divided in proportion, largest first so that rounding up never exceeds it."""
    if limit is None:
        return dict.fromkeys(there)
    shares: dict[int, int | None] = {}
    left, total = limit, sum(there.values())
    for slot in sorted(there, key=lambda slot: -there[slot]):
        share = min(there[slot], -(-left * there[slot] // total)) if total else 0
        shares[slot] = share
        left -= share
        total -= there[slot]
    return shares
