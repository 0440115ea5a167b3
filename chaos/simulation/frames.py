"""Telling frames apart in the bytes of a connection."""

from __future__ import annotations


def frames_of(data: bytes) -> list[bytes]:
    """Bytes of a connection as frames; a protocol header stays with the frame that follows it."""
    if data and int.from_bytes(data[:4], "big") == len(data):  # as it is mostly
        return [data]
    frames, offset, start = [], 0, 0
    while offset < len(data):
        if data[offset : offset + 4] == b"AMQP":
            offset += 8
            continue
        offset += int.from_bytes(data[offset : offset + 4], "big")
        frames.append(data[start:offset])
        start = offset
    if start < offset:
        frames.append(data[start:offset])
    return frames


KINDS = {
    0x10: "open", 0x11: "begin", 0x12: "attach", 0x13: "flow", 0x14: "transfer", 0x15: "disposition", 0x16: "detach",
    0x17: "end", 0x18: "close",
}  # fmt: skip


def kind_of(frame: bytes) -> str:
    """The performative of the first frame in these bytes; "heartbeat" for an empty one."""
    offset = 8 if frame[:4] == b"AMQP" else 0
    return KINDS[frame[offset + 10]] if len(frame) > offset + 8 else "heartbeat"
