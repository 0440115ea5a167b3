"""The bytes of a segment: a head with the schema, then frames, each one group of rows.

    segment   head (magic, crc32, epoch, first row, uuid, schema's length), Arrow schema message, padding
    frame     head of 64 bytes (length, crc32, rows, first row, payload bytes, epoch, time; a crc32 of its own), then
              one Arrow record batch message of that length (a multiple of 64, so that Arrow reads it in place)

A frame is only begun when the one before it is durable.  So after a crash only the last frame can be torn, and
anything wrong before a good frame is damage.  The head's own checksum lets an index be built from heads alone.
All numbers are little-endian.  Columns: the payload as received, its delivery-tag, the time of receipt (us).
"""

from __future__ import annotations

import os
import re
import zlib
from struct import Struct
from typing import Any, Final, NamedTuple

import pyarrow as pa

SCHEMA: Final[Any] = pa.schema(
    [
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("delivery_tag", pa.binary(), nullable=False),
        pa.field("received_us", pa.int64(), nullable=False),
    ]
)
ALIGNMENT: Final = 64
FRAME_HEAD: Final = 64
SEGMENT_MAGIC: Final = b"OWwal\r\n\x01"
FRAME_MAGIC: Final = b"OWf\x01"

_SEGMENT: Final = Struct("<8sIIQQ16s")  # magic, crc32 of the rest, length of the schema, epoch, first row, uuid
_FRAME: Final = Struct("<4sIIIQQQQ")  # magic, length, crc32, rows, first row, payload bytes, epoch, received
_CHECKSUM: Final = Struct("<I")
_SCHEMA_MESSAGE: Final[bytes] = SCHEMA.serialize().to_pybytes()
SEGMENT_HEAD: Final = -(-(_SEGMENT.size + len(_SCHEMA_MESSAGE)) // ALIGNMENT) * ALIGNMENT
_NAME: Final = re.compile(r"seg-(\d{20})-(\d{20})\.wal")


class Segment(NamedTuple):
    """One file of rows from `first` on, written in `epoch`."""

    first: int
    epoch: int

    @property
    def name(self) -> str:
        return f"seg-{self.epoch:020d}-{self.first:020d}.wal"


class Frame(NamedTuple):
    """What a frame's head says, and where the frame lies."""

    first: int
    rows: int
    payload_bytes: int
    received_us: int  # its last row
    offset: int  # of the head
    length: int  # of the body
    crc: int

    @property
    def end(self) -> int:
        return self.first + self.rows

    @property
    def body(self) -> int:
        return self.offset + FRAME_HEAD

    @property
    def stop(self) -> int:
        """The offset after it."""
        return self.offset + FRAME_HEAD + self.length


def segments(directory: str) -> list[Segment]:
    """The segments in a slot's directory, by first row, then epoch.  Raises OSError."""
    matches = map(_NAME.fullmatch, os.listdir(directory))
    return sorted(Segment(int(match[2]), int(match[1])) for match in matches if match)


def segment_head(segment: Segment, uuid: bytes) -> bytes:
    rest = _SEGMENT.pack(SEGMENT_MAGIC, 0, len(_SCHEMA_MESSAGE), segment.epoch, segment.first, uuid)[12:]
    rest = (rest + _SCHEMA_MESSAGE).ljust(SEGMENT_HEAD - 12, b"\0")
    return SEGMENT_MAGIC + _CHECKSUM.pack(zlib.crc32(rest)) + rest


def check_segment_head(data: bytes, segment: Segment, uuid: bytes) -> str | None:
    """What is wrong with it; None if nothing."""
    if len(data) < SEGMENT_HEAD or data[:8] != SEGMENT_MAGIC:
        return "it does not begin as a segment of this format"
    _, crc, _, epoch, first, written = _SEGMENT.unpack_from(data)
    if zlib.crc32(data[12:SEGMENT_HEAD]) != crc:
        return "the checksum of its head is wrong"
    if written != uuid:
        return "it belongs to another log"
    if (epoch, first) != (segment.epoch, segment.first):
        return "its head says another epoch or first row than its name"
    return None


def encode_batch(payloads: list[bytes], tags: list[bytes], received: Any) -> Any:
    """Rows as the RecordBatch that is stored.  received: an int64 array."""
    columns = [pa.array(payloads, pa.binary()), pa.array(tags, pa.binary()), received]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def encode_frame(batch: Any, first: int, payload_bytes: int, epoch: int, received_us: int) -> list[bytes | memoryview]:
    """[head, body, padding] of a frame, to be written one after the other."""
    body = memoryview(batch.serialize())
    padding = bytes(-len(body) % ALIGNMENT)
    length, crc = len(body) + len(padding), zlib.crc32(padding, zlib.crc32(body))
    head = _FRAME.pack(FRAME_MAGIC, length, crc, batch.num_rows, first, payload_bytes, epoch, received_us)
    head += _CHECKSUM.pack(zlib.crc32(head))
    return [head.ljust(FRAME_HEAD, b"\0"), body, padding]


def read_frame_head(head: bytes, offset: int, epoch: int) -> Frame | None:
    """The frame whose head these bytes are; None where they are no head of this epoch's."""
    if len(head) < FRAME_HEAD or head[:4] != FRAME_MAGIC:
        return None
    _, length, crc, rows, first, payload_bytes, written, received_us = _FRAME.unpack_from(head)
    if zlib.crc32(head[: _FRAME.size]) != _CHECKSUM.unpack_from(head, _FRAME.size)[0] or written != epoch:
        return None
    return Frame(first, rows, payload_bytes, received_us, offset, length, crc)


def body_is_good(frame: Frame, body: bytes | memoryview) -> bool:
    return len(body) == frame.length and zlib.crc32(body) == frame.crc


def decode_body(body: Any) -> Any:
    """The stored RecordBatch of a body (a pyarrow Buffer), which is not copied."""
    return pa.ipc.read_record_batch(body, SCHEMA)
