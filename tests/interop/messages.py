"""The messages of the interop tests, encoded by proton: every body type, sizes from nothing to 10 MB, all sections."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Described,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    symbol,
    timestamp,
    ubyte,
)
from proton import byte as int8
from proton import short as int16
from proton import uint as uint32
from proton import ulong as uint64
from proton import ushort as uint16

from tests.interop.raw import ANNOTATION, decode_section, section

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78


@dataclass(frozen=True, slots=True)
class Sample:
    """An encoded message in the three parts that routers treat differently."""

    name: str
    head: bytes  # header, delivery annotations
    annotations: dict[object, object] | None  # message annotations as sent
    bare: bytes  # properties to footer: nobody may touch a byte of it

    @classmethod
    def of(cls, octets: bytes) -> Sample:
        """An encoded message of another library."""
        head = start = 0
        annotations = None
        while start < len(octets):
            code, value, used = decode_section(octets[start:])
            if code > MESSAGE_ANNOTATIONS:
                break
            start += used
            if code == MESSAGE_ANNOTATIONS:
                annotations = value
            else:
                head = start
        return cls(octets[:80].hex(), octets[:head], annotations, octets[start:])

    @property
    def payload(self) -> bytes:
        between = b"" if self.annotations is None else section(MESSAGE_ANNOTATIONS, lambda d: _map(d, self.annotations))
        return self.head + between + self.bare

    def check(self, payload: bytes) -> None:
        """Arrived as sent, plus the publisher's identity among the message annotations and nothing else."""
        assert payload.endswith(self.bare), f"{self.name}: properties, body or footer changed"
        assert payload.startswith(self.head), f"{self.name}: header or delivery annotations changed"
        between = payload[len(self.head) : len(payload) - len(self.bare)]
        code, annotations, used = decode_section(between)
        assert (code, used) == (MESSAGE_ANNOTATIONS, len(between)), f"{self.name}: {between[:80]!r}"
        identity = annotations.pop(ANNOTATION)
        assert identity.count("/") == 1, identity
        assert annotations == (self.annotations or {}), self.name


def _map(data: Data, values: dict[object, object] | None) -> None:
    data.put_dict(values or {})


def data_section(body: bytes) -> bytes:
    return section(DATA, lambda d: d.put_binary(body))


def value_section(put: Callable[[Data], None]) -> bytes:
    return section(VALUE, put)


def pattern(size: int) -> bytes:
    """Bytes of which no two near ones are equal, so that a misplaced frame shows."""
    block = bytes(range(251))
    return (block * (size // len(block) + 1))[:size]


def plain(size: int) -> Sample:
    return Sample(f"data of {size} bytes", b"", None, data_section(pattern(size)))


SIZES = (0, 1, 100, 255, 256, 4_096, 16_384, 65_536, 100_000, 1_000_000)
LARGEST = 10_000_000


def bodies() -> list[Sample]:
    samples = [plain(size) for size in SIZES]
    several = b"".join(data_section(pattern(size)) for size in (0, 3, 300))
    samples.append(Sample("three data sections", b"", None, several))
    one = section(SEQUENCE, lambda d: d.put_sequence([1, "two", b"three", None, [4, {"five": 6}]]))
    two = section(SEQUENCE, lambda d: d.put_sequence([]))
    samples.append(Sample("a sequence", b"", None, one))
    samples.append(Sample("three sequences", b"", None, one + two + one))
    samples += [Sample(f"value {name}", b"", None, value_section(put)) for name, put in values().items()]
    return samples


def values() -> dict[str, Callable[[Data], None]]:
    """Every type that AMQP has, as an amqp-value."""
    return {
        "null": lambda d: d.put_null(),
        "true": lambda d: d.put_bool(True),
        "false": lambda d: d.put_bool(False),
        "ubyte": lambda d: d.put_ubyte(ubyte(255)),
        "ushort": lambda d: d.put_ushort(uint16(65_535)),
        "uint": lambda d: d.put_uint(uint32(4_294_967_295)),
        "uint 0": lambda d: d.put_uint(uint32(0)),
        "ulong": lambda d: d.put_ulong(uint64(2**64 - 1)),
        "byte": lambda d: d.put_byte(int8(-128)),
        "short": lambda d: d.put_short(int16(-32_768)),
        "int": lambda d: d.put_int(int32(-(2**31))),
        "long": lambda d: d.put_long(-(2**63)),
        "float": lambda d: d.put_float(float32(1.5)),
        "double": lambda d: d.put_double(-1e300),
        "decimal32": lambda d: d.put_decimal32(decimal32(0x22500001)),
        "decimal64": lambda d: d.put_decimal64(decimal64(0x2230000000000001)),
        "decimal128": lambda d: d.put_decimal128(decimal128(bytes(range(16)))),
        "char": lambda d: d.put_char(char("\U0001f600")),
        "timestamp": lambda d: d.put_timestamp(timestamp(1_700_000_000_123)),
        "uuid": lambda d: d.put_uuid(uuid.UUID(int=0x1234567890ABCDEF)),
        "binary": lambda d: d.put_binary(pattern(1_000)),
        "string": lambda d: d.put_string("grüße \U0001f680 " * 40),
        "symbol": lambda d: d.put_symbol(symbol("a-symbol")),
        "list": lambda d: d.put_sequence(["a", 1, None, [True, [2.5]]]),
        "map": lambda d: d.put_dict({"a": 1, 2: "b", "nested": {"list": [1, 2, 3]}}),
        "array": lambda d: d.put_py_array(Array(UNDESCRIBED, Data.INT, 1, -2, 3)),
        "described array": lambda d: d.put_py_array(Array(symbol("x:kilo"), Data.STRING, "a", "b")),
        "described": lambda d: d.put_py_described(Described(symbol("example:point:list"), [1, 2])),
    }


def sections() -> list[Sample]:
    """Messages whose other sections must arrive as they were sent."""
    # durable, priority 9, ttl 60 s, not first acquirer, delivery-count 0
    header = section(HEADER, lambda d: d.put_sequence([True, ubyte(9), uint32(60_000), False, uint32(0)]))
    short_header = section(HEADER, lambda d: d.put_sequence([True]))
    delivery = section(DELIVERY_ANNOTATIONS, lambda d: d.put_dict({symbol("x-hop"): 1}))
    properties = section(
        PROPERTIES,
        lambda d: d.put_sequence(
            [
                uuid.UUID(int=7),
                b"user",
                "to",
                "subject",
                "reply-to",
                uint64(2**40),
                symbol("application/json"),
                symbol("gzip"),
                timestamp(1_900_000_000_000),
                timestamp(1_700_000_000_000),
                "group",
                uint32(3),
                "reply-group",
            ]
        ),
    )
    application = section(
        APPLICATION_PROPERTIES,
        lambda d: d.put_dict({"text": "ä", "number": -5, "flag": True, "none": None, "real": 2.5}),
    )
    footer = section(FOOTER, lambda d: d.put_dict({symbol("x-crc"): 12345}))
    body = data_section(b"body")
    annotations: dict[object, object] = {symbol("x-opt-first"): "one", symbol("x-opt-second"): [1, 2, {"three": 4}]}
    return [
        Sample("all sections", header + delivery, annotations, properties + application + body + footer),
        Sample("header and body", short_header, None, body),
        Sample("delivery annotations and body", delivery, None, body),
        Sample("message annotations and body", b"", annotations, body),
        Sample("empty message annotations", b"", {}, body),
        Sample("properties and body", b"", None, properties + body),
        Sample("application properties and value", b"", None, application + value_section(lambda d: d.put_string("v"))),
        Sample(
            "header, properties, sequence", header, None, properties + section(SEQUENCE, lambda d: d.put_sequence([1]))
        ),
        Sample("body and footer", b"", None, body + footer),
    ]
