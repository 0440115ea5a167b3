"""The data types of a packet (MQTT 5, 1.5): integers, text, binary data, read with their bounds and written.

Next: properties.py, decoder.py.
"""

from __future__ import annotations

from typing import Final

from mqtt.errors import EncodeError, malformed

MAX_LENGTH: Final = 65_535  # of text and of binary data
MAX_VARIABLE: Final = 268_435_455  # of a Variable Byte Integer


class FieldReader:
    """Reads one packet's fields in their order; what goes beyond `stop` is malformed."""

    __slots__ = ("data", "position", "stop")

    def __init__(self, data: bytes, position: int, stop: int) -> None:
        self.data = data
        self.position = position
        self.stop = stop

    def take(self, count: int, what: str) -> int:
        """Step over `count` octets, and return where they begin.

        Raises:
            RemoteProtocolError: Fewer are left.
        """
        start = self.position
        if count > self.stop - start:
            raise malformed(f"{what} goes beyond its end")
        self.position = start + count
        return start

    def byte(self, what: str) -> int:
        """One octet."""
        return self.data[self.take(1, what)]

    def two_bytes(self, what: str) -> int:
        """A Two Byte Integer."""
        start = self.take(2, what)
        return self.data[start] << 8 | self.data[start + 1]

    def four_bytes(self, what: str) -> int:
        """A Four Byte Integer."""
        start = self.take(4, what)
        return int.from_bytes(self.data[start : start + 4], "big")

    def variable(self, what: str) -> int:
        """A Variable Byte Integer (1.5.5), in its shortest form [MQTT-1.5.5-1]."""
        value = 0
        for shift in (0, 7, 14, 21):
            octet = self.byte(what)
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                if octet == 0 and shift:
                    raise malformed(f"{what} is not in its shortest form")
                return value
        raise malformed(f"{what} has more than four octets")

    def binary(self, what: str) -> bytes:
        """Binary Data (1.5.6)."""
        length = self.two_bytes(what)
        start = self.take(length, what)
        return self.data[start : start + length]

    def text(self, what: str) -> str:
        """A UTF-8 Encoded String (1.5.4)."""
        return to_text(self.binary(what), what)

    def done(self, what: str) -> None:
        """Check that all has been read.

        Raises:
            RemoteProtocolError: Octets are left.
        """
        if self.position != self.stop:
            raise malformed(f"{what} has {self.stop - self.position} octets too many")


def to_text(octets: bytes, what: str) -> str:
    """UTF-8 without U+0000 and surrogates [MQTT-1.5.4-1, -2]; U+FEFF stays [MQTT-1.5.4-3].

    Raises:
        RemoteProtocolError: It is something else.
    """
    try:
        text = str(octets, "utf-8")
    except UnicodeDecodeError:
        raise malformed(f"{what} is not UTF-8") from None
    if "\0" in text:
        raise malformed(f"{what} has U+0000")
    return text


def of_text(text: str, what: str) -> bytes:
    """A UTF-8 Encoded String with its length.

    Raises:
        EncodeError: It is too long, or has U+0000 or a surrogate.
    """
    if "\0" in text:
        raise EncodeError(f"{what} has U+0000")
    try:
        return of_binary(text.encode(), what)
    except UnicodeEncodeError:
        raise EncodeError(f"{what} has a surrogate") from None


def of_binary(octets: bytes, what: str) -> bytes:
    """Binary Data with its length.

    Raises:
        EncodeError: It is too long.
    """
    if len(octets) > MAX_LENGTH:
        raise EncodeError(f"{what} has {len(octets)} octets; {MAX_LENGTH} is the most")
    return len(octets).to_bytes(2, "big") + octets


def of_integer(value: int, size: int, what: str) -> bytes:
    """An integer of `size` octets.

    Raises:
        EncodeError: The value does not fit.
    """
    if not 0 <= value < 1 << 8 * size:
        raise EncodeError(f"{what} is {value}; it has {size} octets")
    return value.to_bytes(size, "big")


def of_variable(value: int, what: str) -> bytes:
    """A Variable Byte Integer.

    Raises:
        EncodeError: The value does not fit.
    """
    if 0 <= value < 0x80:
        return bytes((value,))
    if not 0 <= value <= MAX_VARIABLE:
        raise EncodeError(f"{what} is {value}; {MAX_VARIABLE} is the most")
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)
