"""Counts the values of an encoding without decoding it, so that what a stranger makes us compute has a bound.

It reads constructors and sizes (AMQP 1.6) and judges nothing: what is malformed is the decoder's to refuse.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from amqp10.errors import RESOURCE_LIMIT_EXCEEDED, DecodeError

_unpack_u32: Final = Struct(">I").unpack_from
_LEAST_COMPOUND: Final = 0xC0  # constructors from here on are of lists, maps and arrays


def check_values(buf: bytes, offset: int, end: int, most: int) -> None:
    """Of all values between offset and end, those within others included, so many may be there. An array of arrays,
    lists, maps or described values counts as many as it has bytes. It takes as many steps as there are values.

    Raises:
        DecodeError: There are more, with the byte at which the first of them begins.
    """
    count, begins = 0, offset
    while offset < end:
        begins = offset
        count += 1
        code = buf[offset]
        width = code >> 4
        if code == 0x00 or width == 0x4:  # of a described value the descriptor follows, then the value
            offset += 1
        elif 0x5 <= width <= 0x9:
            offset += 1 + (1 << (width - 5))
        elif width == 0xC:  # its elements follow
            offset += 3
        elif width == 0xD:
            offset += 9
        elif width == 0xA and end - offset >= 2:
            offset += 2 + buf[offset + 1]
        elif width == 0xB and end - offset >= 5:
            offset += 5 + _unpack_u32(buf, offset + 1)[0]
        elif width == 0xE and end - offset >= 4:
            count += _elements(buf[offset + 3], buf[offset + 2], buf[offset + 1])
            offset += 2 + buf[offset + 1]
        elif width == 0xF and end - offset >= 10:
            size: int = _unpack_u32(buf, offset + 1)[0]
            count += _elements(buf[offset + 9], _unpack_u32(buf, offset + 5)[0], size)
            offset += 5 + size
        else:
            return
        if count > most:
            raise DecodeError(RESOURCE_LIMIT_EXCEEDED, f"more than {most} values in a frame before open", begins)


def _elements(constructor: int, count: int, size: int) -> int:
    return count if 0x40 <= constructor < _LEAST_COMPOUND else max(count, size)
