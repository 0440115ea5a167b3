"""Flows that a peer sends with every few messages: read by shape, as transfers and dispositions are.

A peer encodes its flows in the same way but for the numbers in them. A `FlowShape` is learnt from a frame that the
generic codec has decoded. Next: reading.py.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from struct import Struct
from typing import Any, Final

from amqp10.performatives import Flow
from amqp10.session import Session
from amqp10.transfers import field_spans

FLOW_START: Final = b"\x00\x53\x13"
_HEADER: Final = 8
_NUMBERS: Final = {0x52: "B", 0x70: "I"}  # the constructors of uint that a value follows


class FlowShape:
    """Bytes that are the same in all of them, and numbers, by turns."""

    __slots__ = ("_constants", "_defaults", "_pick", "_unpack", "session")

    def __init__(self, session: Session, buf: bytes, offset: int, stop: int, flow: Flow) -> None:
        """The frame at `offset`, which has been decoded as this flow."""
        self.session = session
        constants: list[bytes] = []
        numbers: list[int] = []
        layout = ">"
        for number, (start, end) in enumerate(field_spans(buf, offset + _HEADER + len(FLOW_START), stop)):
            if buf[start] in _NUMBERS:
                numbers.append(number)
                constants.append(buf[offset : start + 1])
                layout += f"{start + 1 - offset}s{_NUMBERS[buf[start]]}"
                offset = end
        constants.append(buf[offset:stop])
        self._constants = tuple(constants)
        self._unpack = Struct(f"{layout}{stop - offset}s").unpack_from
        self._defaults = Flow.values_of(flow)
        places = list(range(2 * len(numbers) + 1, 2 * len(numbers) + 1 + len(self._defaults)))
        for index, number in enumerate(numbers):
            places[number] = 2 * index + 1
        self._pick: Callable[[Any], Any] = itemgetter(*places)

    def read(self, buf: bytes, offset: int) -> Flow | None:
        """The flow in the frame at `offset`, which is as large as the one it was learnt from; None: it is of another
        shape."""
        pieces = self._unpack(buf, offset)
        return Flow(*self._pick(pieces + self._defaults)) if pieces[::2] == self._constants else None


def flow_key(buf: bytes, offset: int) -> bytes:
    """The key of the flow frame at `offset` in the table of shapes: size, channel, and how the list begins."""
    return buf[offset : offset + 14]
