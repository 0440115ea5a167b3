"""Frames and protocol headers (AMQP 2.2, 2.3, 5.3.1).

Knows the layout of a frame: eight bytes of header, an extended header that is ignored, a body. How large a frame may be
is for reading.py to say. Next: performatives.py for the bodies.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final

from amqp10.errors import FRAMING_ERROR, DecodeError, EncodeError

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_SIZE: Final = 8

AMQP_FRAME: Final = 0x00
SASL_FRAME: Final = 0x01
FRAME_HEAD_SIZE: Final = 8
MIN_MAX_FRAME_SIZE: Final = 512  # AMQP 2.4.1; also the largest frame before open and in the SASL layer (AMQP 5.3.1)

EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"  # the heartbeat (AMQP 2.4.5)

_HEAD: Final = Struct(">IBBH")
_pack_head: Final = _HEAD.pack
_unpack_head: Final = _HEAD.unpack_from


Part = bytes | memoryview
Body = bytes | Sequence[Part]
"""Of a frame: whole, or in parts, which are joined once."""

LARGE: Final = 16 * 1024
"""Bytes from which on a part of a frame is written as it is. Smaller ones are copied together, which costs less than a
part of its own."""


def encode_frame(frame_type: int, channel: int, body: Body) -> bytes:
    """One frame."""
    if isinstance(body, bytes):
        return encode_frame_head(frame_type, channel, len(body)) + body
    return b"".join([encode_frame_head(frame_type, channel, sum(map(len, body))), *body])


def encode_frame_head(frame_type: int, channel: int, size: int) -> bytes:
    """What precedes a body of this size."""
    try:
        return _pack_head(FRAME_HEAD_SIZE + size, 2, frame_type, channel)
    except error:
        raise EncodeError(f"no frame can hold {size} bytes on channel {channel}") from None


def gathered(parts: Sequence[Part]) -> list[Part]:
    """The same bytes: large parts as they are, and what lies between them joined."""
    found: list[Part] = []
    small: list[Part] = []
    for part in parts:
        if len(part) < LARGE:
            small.append(part)
            continue
        if small:
            found.append(b"".join(small))
            small = []
        found.append(part)
    if small:
        found.append(b"".join(small))
    return found


def parse_frame_header(buf: bytes, offset: int = 0) -> tuple[int, int, int, int]:
    """(size of the frame, doff: offset of its body in 4 byte words, type, channel).

    `buf` must hold the eight bytes. The body runs from offset + 4 * doff to offset + size. Whether the size is
    acceptable and the type known is for the caller to say.
    """
    size, doff, frame_type, channel = _unpack_head(buf, offset)
    if size < FRAME_HEAD_SIZE:
        raise DecodeError(FRAMING_ERROR, f"a frame of {size} bytes is smaller than its head", offset)
    if doff < 2:
        raise DecodeError(FRAMING_ERROR, f"data offset {doff} lies inside the frame's head", offset + 4)
    if doff * 4 > size:
        raise DecodeError(FRAMING_ERROR, f"data offset {doff} lies outside the frame of {size} bytes", offset + 4)
    return size, doff, frame_type, channel
