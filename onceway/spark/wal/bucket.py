"""A slot in an object store: each group commit is an object of its own, and the objects are a chain.

    <slot>/g/00000000000000000007     head, entries, then one frame (`frames`); a fence has no frame

An object is only ever created, where there is none, and a writer creates number 8 only when it has created number 7.
So two writers never both write a number, and the chain has no holes.  A new writer creates a *fence*, an object without
rows and with a higher epoch, at the next number.  From then on an older writer, however long it was frozen, finds its
next number taken, and stops; it has accepted nothing that is not in the chain.  Nothing else is needed: an object that
is there is durable and counts.  A repeat of a create whose answer was lost finds the writer's own object (its nonce).

Each object has the entries (first row, sizes, time) of those before it, back to the last multiple of BLOCK.  So a
reader knows where all rows are from the last object of each block and the last of all.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import pyarrow as pa

from onceway.spark.errors import DAMAGE_REMEDY, WalDamaged, WalForeign, WalMissing, fenced_off
from onceway.spark.files import BytesLike, Documents
from onceway.spark.wal.documents import Document
from onceway.spark.wal.fencing import DOCUMENTS
from onceway.spark.wal.frames import (
    ALIGNMENT,
    FRAME_HEAD,
    Frame,
    Segment,
    body_is_good,
    decode_body,
    encode_frame,
    read_frame_head,
)
from onceway.spark.wal.leases import LASTS_S, Lease
from onceway.spark.wal.objects import Objects, objects_at
from onceway.spark.wal.reading import Part, SegmentIndex, SlotReader
from onceway.spark.wal.storage import Retention, Tail

BLOCK: Final = 256
APART_S: Final = 0.25  # four groups a second, and the documents: below five requests a second for each slot
LOOK_S: Final = 0.2  # a reader lists at most so often
_MAGIC: Final = b"OWobj\r\n\x01"
_HEAD: Final = Struct("<8sIIQQQ16s")  # magic, crc32 up to the frame, entries, epoch, number, nonce, uuid
_ENTRY: Final = Struct("<QQQII")  # first row, payload bytes, time of the last row, rows, bytes of the object


class Entry(NamedTuple):
    first: int
    payload_bytes: int
    received_us: int
    rows: int
    size: int


class Head(NamedTuple):
    epoch: int
    number: int
    nonce: int
    entries: list[Entry]  # its own is the last


def head_size(number: int) -> int:
    """Of the head and the entries of this object, with padding: where its frame begins."""
    size = _HEAD.size + (number % BLOCK + 1) * _ENTRY.size
    return -(-size // ALIGNMENT) * ALIGNMENT


def encode_head(head: Head, uuid: bytes) -> bytes:
    rest = _HEAD.pack(_MAGIC, 0, len(head.entries), head.epoch, head.number, head.nonce, uuid)[12:]
    rest += b"".join(_ENTRY.pack(*entry) for entry in head.entries)
    rest = rest.ljust(head_size(head.number) - 12, b"\0")
    return _MAGIC + zlib.crc32(rest).to_bytes(4, "little") + rest


def decode_head(data: bytes, place: str, number: int, uuid: bytes) -> Head:
    """Raises WalDamaged, WalForeign."""
    data = data[: head_size(number)]
    problem = "it does not begin as an object of a log" if len(data) < head_size(number) or data[:8] != _MAGIC else ""
    if not problem and zlib.crc32(data[12:]) != int.from_bytes(data[8:12], "little"):
        problem = "the checksum of its head is wrong"
    if problem:
        raise WalDamaged(f"{place}: {problem}; {DAMAGE_REMEDY}")
    _, _, count, epoch, written, nonce, owner = _HEAD.unpack_from(data)
    if owner != uuid or written != number:
        raise WalForeign(f"{place}: an object of another log, or of another place in it; {DAMAGE_REMEDY}")
    entries = [Entry(*_ENTRY.unpack_from(data, _HEAD.size + at * _ENTRY.size)) for at in range(count)]
    return Head(epoch, number, nonce, entries)


class ObjectDocument:
    """A document in an object: replaced only where it is still the one that was read or written here last."""

    def __init__(self, objects: Objects, location: str, key: str, documents: Documents) -> None:
        self.path = f"{location}/{key}"
        self._objects = objects
        self._key = key
        self._documents = documents
        self._version: str | None = None

    def read(self) -> dict[str, Any] | None:
        found = self._objects.get(self._key)
        if found is None:
            self._version = None
            return None
        data, self._version = found
        return self._documents.parse(self.path, data)

    def swap(self, content: Any) -> bool:
        data = self._documents.dump(content)
        made = self._objects.put(self._key, data, self._version)
        if made is None:  # somebody was quicker; or an earlier try of ours, whose answer was lost
            found = self._objects.get(self._key)
            if found is None or found[0] != data:
                return False
            made = found[1]
        self._version = made
        return True

    def write(self, content: Any) -> None:
        if self._version is None:
            self.read()
        if not self.swap(content):
            raise fenced_off(self.path)


class _Index(SegmentIndex):
    """All objects of a slot as one segment; `offset` of a frame is the object's number, `length` the object's size."""

    def __init__(self, place: str, first: int, uuid: bytes) -> None:
        super().__init__(place, Segment(first, 0), uuid)
        self.path = place

    def extend(self, to_row: int) -> None:
        pass

    def enter(self, number: int, entry: Entry) -> None:
        self.add(Frame(entry.first, entry.rows, entry.payload_bytes, entry.received_us, number, entry.size, 0))


class BucketReader(SlotReader):
    """`begin`: the number of the object at which its index begins; None: where the log begins."""

    def __init__(self, location: str, number: int, topic: str, uuid: str, begin: int | None = None) -> None:
        super().__init__(location, number, topic, uuid)
        self.epoch = 0  # of the last object
        self.next = 0  # number of the object that comes next
        self.entries: list[Entry] = []  # of the last block
        self.index: _Index | None = None
        self._objects = objects_at(location)
        self._begin = begin
        self._prefix = f"{number}/g/"
        self.trim_document = ObjectDocument(self._objects, location, f"{number}/trim.json", DOCUMENTS)
        self._looked = -LOOK_S

    def __reduce__(self) -> tuple[Any, ...]:
        return BucketReader, (self.location, self.number, self.topic, self.uuid, self._begin)

    def for_task(self, start: int) -> BucketReader:
        """A reader for executors, which need not look through all of the log."""
        index = self.index
        if index is None or not len(index) or start >= index.end:
            return self
        number = index.frame(index.at(start)).offset
        return BucketReader(self.location, self.number, self.topic, self.uuid, number - number % BLOCK)

    def start(self) -> int:
        content = self.trim_document.read()
        return 0 if content is None else int(content["start"])

    def _durable_end(self, *, fresh: bool) -> int:
        if fresh or time.monotonic() - self._looked >= LOOK_S:
            self.look()
        return self.index.end if self.index is not None else 0

    def key(self, number: int) -> str:
        return f"{self._prefix}{number:020d}"

    def look(self) -> None:
        """Enters what has been added since."""
        if self.index is None:
            self._start_index()
        while True:
            known = self.key(self.next - 1) if self.next else ""
            keys = self._objects.after(self._prefix, known)
            if not keys:
                break
            last = int(keys[-1].rpartition("/")[2])
            if self.next and int(keys[0].rpartition("/")[2]) != self.next:
                raise WalDamaged(f"{self.directory}: object {self.key(self.next)} is missing; {DAMAGE_REMEDY}")
            for number in (*range(self.next | (BLOCK - 1), last, BLOCK), last):
                self.enter(self.head(number))
        self._looked = time.monotonic()

    def _start_index(self) -> None:
        content = self.trim_document.read() or {"start": 0, "number": 0}
        self.next = int(content["number"]) if self._begin is None else self._begin
        self.index = _Index(self.directory, int(content["start"]), self._uuid)

    def head(self, number: int) -> Head:
        place = f"{self.location}/{self.key(number)}"
        try:
            data = self._objects.part(self.key(number), 0, head_size(number))
        except FileNotFoundError:
            raise WalMissing(f"{place}: no longer there: trimmed, or removed by somebody") from None
        return decode_head(data, place, number, self._uuid)

    def enter(self, head: Head) -> None:
        """The entries of this object that are not known yet."""
        assert self.index is not None
        first = head.number - len(head.entries) + 1
        for number, entry in enumerate(head.entries, first):
            if number >= self.next:
                if not len(self.index):
                    self.index = _Index(self.directory, entry.first, self._uuid)
                self.index.enter(number, entry)
        self.next, self.epoch, self.entries = head.number + 1, head.epoch, head.entries

    def forget(self, number: int) -> None:
        """The objects before this one, which begins a block, are removed."""
        old = self.index
        assert old is not None
        left = [frame for frame in map(old.frame, range(len(old))) if frame.offset >= number]
        self.index = _Index(self.directory, left[0].first if left else old.end, self._uuid)
        for frame in left:
            self.index.add(frame)

    def _cover(self, start: int, end: int) -> list[Part]:
        if start >= end:
            return []
        if self.index is None or self.index.end < end:
            self.look()
        index = self.index
        assert index is not None
        if not len(index) or start < index.segment.first or end > index.end:
            first, last = index.segment.first, index.end
            raise WalMissing(
                f"{self.directory}: rows {start} to {end - 1} are not there; the log has rows {first} to {last - 1}; "
                "they were trimmed (walRetention), or the checkpoint belongs to another copy of the log"
            )
        return [Part(index, None)]

    def _frames(self, start: int, end: int) -> Iterator[tuple[Frame, Any]]:
        for part in self._cover(start, end):
            for number in range(part.index.at(start), len(part.index)):
                known = part.index.frame(number)
                if known.first >= end:
                    return
                if known.rows:
                    yield self._frame(known)

    def _frame(self, known: Frame) -> tuple[Frame, Any]:
        key, at = self.key(known.offset), head_size(known.offset)
        try:
            data = self._objects.part(key, at, known.length)
        except FileNotFoundError:
            raise WalMissing(f"{self.location}/{key}: no longer there: trimmed (walRetention), or removed") from None
        found = read_frame_head(data[:FRAME_HEAD], 0, int.from_bytes(data[32:40], "little"))
        if found is None or found.first != known.first or not body_is_good(found, memoryview(data)[FRAME_HEAD:]):
            raise WalDamaged(
                f"{self.location}/{key}: rows {known.first} to {known.end - 1} are damaged (checksum); {DAMAGE_REMEDY}"
            )
        return found, decode_body(pa.py_buffer(data).slice(FRAME_HEAD, found.length))


class BucketStorage:
    """`Storage` of one slot's writer."""

    apart_s = APART_S
    was_fenced = False

    def __init__(self, reader: BucketReader, uuid: bytes, lease_s: float = LASTS_S, note: str = "") -> None:
        self.place = reader.directory
        self.start = 0
        self.on_lost: Callable[[], None] = lambda: None
        self._reader = reader
        self._uuid = uuid
        self._epoch = 0
        self._objects = objects_at(reader.location)
        lease = ObjectDocument(self._objects, reader.location, f"{reader.number}/lease.json", DOCUMENTS)
        self._lease = Lease(lease, self.place, self._lease_lost, lease_s, note)

    def claim(self, timeout_s: float) -> Tail:
        self._lease.take(timeout_s)
        tail = self._tail()
        self.was_fenced = self._reader.next > 0
        return tail

    def _lease_lost(self) -> None:
        self.on_lost()

    def _tail(self) -> Tail:
        self._reader.look()
        self.start = self._reader.start()
        assert self._reader.index is not None
        return Tail(max(self.start, self._reader.index.end))

    def take_over(self, epoch: int, segment_bytes: int) -> Tail:
        while True:
            tail = self._tail()
            self._epoch = max(epoch, self._reader.epoch + 1)
            if self._create(Entry(tail.end, 0, time.time_ns() // 1000, 0, 0), b""):
                return tail

    def is_ours(self) -> bool:
        return True  # the next create says so

    def encode(self, batch: Any, payload_bytes: int, received_us: int) -> Sequence[BytesLike]:
        assert self._reader.index is not None
        return encode_frame(batch, self._reader.index.end, payload_bytes, self._epoch, received_us)

    def append(self, frame: Sequence[BytesLike], rows: int) -> None:
        assert self._reader.index is not None
        data = b"".join(frame)
        found = read_frame_head(data[:FRAME_HEAD], 0, self._epoch)
        assert found is not None
        if not self._create(Entry(found.first, found.payload_bytes, found.received_us, rows, 0), data):
            raise fenced_off(self.place)

    def _create(self, entry: Entry, frame: bytes) -> bool:
        """The next object of the chain; False where another writer has made it."""
        reader = self._reader
        number, nonce = reader.next, secrets.randbits(63)
        size = head_size(number) + len(frame)
        entries = [*(reader.entries if number % BLOCK else []), entry._replace(size=size)]
        if len(entries) != number % BLOCK + 1:
            raise WalDamaged(f"{self.place}: the entries of object {number - 1} are incomplete; {DAMAGE_REMEDY}")
        head = Head(self._epoch, number, nonce, entries)
        if self._objects.put(reader.key(number), encode_head(head, self._uuid) + frame, None) is None:
            found = reader.head(number)
            if (found.epoch, found.nonce) != (head.epoch, nonce):
                return False
        reader.enter(head)
        return True

    def trim(self, up_to: int, retention: Retention) -> None:
        """Whole blocks: a removal is a request."""
        index = self._reader.index
        assert index is not None
        keep_from_us = (time.time() - retention.seconds) * 1e6
        kept, number = 0, 0
        for at in range(len(index) - 1, -1, -1):
            frame = index.frame(at)
            kept += frame.length
            gone = kept > retention.size and (not retention.seconds or frame.received_us < keep_from_us)
            if frame.end <= up_to and gone:
                number = frame.offset + 1
                break
        number -= number % BLOCK
        if not len(index) or number <= index.frame(0).offset:
            return
        first = index.frame(0).offset
        begin = next(index.frame(at).first for at in range(len(index)) if index.frame(at).offset == number)
        self._reader.trim_document.write({"start": begin, "number": number})
        self.start = begin
        self._reader.forget(number)
        keys = [self._reader.key(each) for each in range(first, number)]
        for at in range(0, len(keys), 1000):
            self._objects.remove(keys[at : at + 1000])

    def document(self, name: str, documents: Documents) -> Document:
        return ObjectDocument(self._objects, self._reader.location, f"{self._reader.number}/{name}", documents)

    def close(self) -> None:
        self._lease.release()
