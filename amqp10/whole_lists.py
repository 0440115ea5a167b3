"""Frames whose lists have all fields, for peers that read fields by number and do not look at how many there are.

AMQP lets a sender leave out the nulls at the end of a list (AMQP 1.4), and so do we. `azure-eventhub` up to 5.15.1 and
`azure-servicebus` up to 7.14.3 raise IndexError there. What goes out to a peer that names itself so is written again on
its way; nothing else knows of it, and others' output is not looked at.
"""

from __future__ import annotations

from typing import Final

from amqp10.composite import BY_CODE, read_list_head
from amqp10.decoder import skip_value
from amqp10.encoder import encode_list
from amqp10.frames import AMQP_FRAME, FRAME_HEAD_SIZE, encode_frame, parse_frame_header
from amqp10.outcomes import Error, Rejected
from amqp10.performatives import Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Transfer

EVENT_HUBS: Final = "azsdk-python-eventhubs"
PRODUCTS: Final = (EVENT_HUBS, "azsdk-python-servicebus")
"""`product` among the properties of an open."""
ADDED: Final = 32
"""Bytes by which a frame grows, at most."""
_WHOLE: Final = frozenset(
    cls.descriptor_code
    for cls in (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close, Error, Rejected)
)


def with_whole_lists(frames: bytes) -> bytes:
    """The same frames. Heartbeats, which have no body, stay as they are."""
    found: list[bytes] = []
    offset = 0
    while offset < len(frames):
        size, _, _, channel = parse_frame_header(frames, offset)
        stop = offset + size
        if size == FRAME_HEAD_SIZE:
            found.append(frames[offset:stop])
        else:
            performative, behind = _whole(frames, offset + FRAME_HEAD_SIZE, stop)
            found.append(encode_frame(AMQP_FRAME, channel, (performative, frames[behind:stop])))
        offset = stop
    return b"".join(found)


def _whole(buf: bytes, offset: int, end: int) -> tuple[bytes, int]:
    """The value at this offset, and where it ends."""
    stop = skip_value(buf, offset, end)
    code = buf[offset + 2] if buf.startswith(b"\x00\x53", offset) else -1
    if code not in _WHOLE:
        return buf[offset:stop], stop
    entries: list[bytes] = []
    at, _, count = read_list_head(buf, offset + 3, stop, "a performative")
    for _ in range(count):
        entry, at = _whole(buf, at, stop)
        entries.append(entry)
    entries += [b"\x40"] * (len(BY_CODE[code].fields) - count)
    return buf[offset : offset + 3] + encode_list(entries), stop
