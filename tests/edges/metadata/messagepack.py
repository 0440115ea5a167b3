"""MessagePack once more, from its specification alone: what the contract needs of it, to judge `edges.metadata.wire`."""

from __future__ import annotations

import struct
from typing import Any

_SIZES = {  # type byte: (how many bytes say the length, what it is)
    0xC4: (1, "bin"), 0xC5: (2, "bin"), 0xC6: (4, "bin"),
    0xD9: (1, "str"), 0xDA: (2, "str"), 0xDB: (4, "str"),
    0xDC: (2, "array"), 0xDD: (4, "array"),
    0xDE: (2, "map"), 0xDF: (4, "map"),
}  # fmt: skip
_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def pack(value: Any) -> bytes:
    for byte, constant in _CONSTANTS.items():
        if value is constant:
            return bytes([byte])
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, str):
        data = value.encode()
        return (bytes([0xA0 | len(data)]) if len(data) < 32 else b"\xdb" + struct.pack(">I", len(data))) + data
    if isinstance(value, list):
        head = bytes([0x90 | len(value)]) if len(value) < 16 else b"\xdd" + struct.pack(">I", len(value))
        return head + b"".join(map(pack, value))
    head = bytes([0x80 | len(value)]) if len(value) < 16 else b"\xdf" + struct.pack(">I", len(value))
    return head + b"".join(pack(key) + pack(each) for key, each in value.items())


def unpack(data: bytes, at: int = 0) -> tuple[Any, int]:
    """A value, and where the next one begins. IndexError or struct.error: there is not all of it yet."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    if byte >= 0xE0:
        return byte - 256, at
    if byte in _CONSTANTS:
        return _CONSTANTS[byte], at
    if byte in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[byte], data, at)
        return number, at + struct.calcsize(_NUMBERS[byte])
    if byte < 0xC0:
        kind = "map" if byte < 0x90 else "array" if byte < 0xA0 else "str"
        length = byte & (0x1F if kind == "str" else 0x0F)
    else:
        width, kind = _SIZES[byte]
        if at + width > len(data):
            raise IndexError
        length = int.from_bytes(data[at : at + width], "big")
        at += width
    if kind in ("bin", "str"):
        if at + length > len(data):
            raise IndexError
        found = data[at : at + length]
        return (found if kind == "bin" else found.decode()), at + length
    if kind == "array":
        items = []
        for _ in range(length):
            item, at = unpack(data, at)
            items.append(item)
        return items, at
    pairs = {}
    for _ in range(length):
        key, at = unpack(data, at)
        pairs[key], at = unpack(data, at)
    return pairs, at
