"""Each client to each other, through three routers: every AMQP type, octet by octet, and each value as it was meant.

A value is a pair of its type and a text: numbers in decimal, what has no exact decimal in hexadecimal, a list as pairs, a
map as pairs of pairs. Programs get these as JSON, and say what they have sent (in octets) or read (as pairs).
"""

from __future__ import annotations

import json
import os
import struct
import uuid
from pathlib import Path
from typing import Any

import proton
import pytest
from cproton_ffi import ffi, lib

from tests.interop.messages import Sample
from tests.interop.raw import Subscriber, publish, unique
from tests.live import wait_until
from tests.running import PROGRAMS, Program

Value = list[Any]  # [type, text]

IN_HEXADECIMAL = {"float": "00000000 80000000 40490fdb ff7fffff 7f800000 ff800000 7fc00000",
    "double": "0000000000000000 8000000000000000 400921fb54442d18 0000000000000001 7ff0000000000000 7ff8000000000000",
    "decimal32": "22500000 22500001 a2500001 78000000 77f8967f",
    "decimal64": "2230000000000001 b230000000000001 7800000000000000",
    "decimal128": "30400000000000000000000000000001 b0400000000000000000000000000001",
    "binary": f" 00 00ff80 {bytes(range(256)).hex()}"}  # fmt: skip
OTHERS = {
    "null": ["null"],
    "boolean": ["true", "false"],
    "char": ["1", "97", "128512", "1114111"],
    "timestamp": ["0", "1700000000123", "-1", "4102444800000"],
    "uuid": [str(uuid.UUID(int=n)) for n in (0, 0x1234567890ABCDEF, 2**128 - 1)],
    "string": ["", "Hello, world", "grüße \U0001f680", "x" * 300],
    "symbol": ["", "x:example", "s" * 300],
}


def integers(bits: int, *, signed: bool) -> list[str]:
    """Where encodings change, and at both ends."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    near = (low, -129, -128, -1, 0, 1, 127, 128, 255, 256, high // 2, high // 2 + 1, high)
    return [str(number) for number in dict.fromkeys(near) if low <= number <= high]


def values() -> list[Value]:
    found = [[kind, text] for kind, texts in IN_HEXADECIMAL.items() for text in texts.split(" ")]
    for bits, name in ((8, "byte"), (16, "short"), (32, "int"), (64, "long")):
        found += [[name, text] for text in integers(bits, signed=True)]
        found += [["u" + name, text] for text in integers(bits, signed=False)]
    found += [[kind, text] for kind, texts in OTHERS.items() for text in texts]
    some: list[Value] = [["string", "a"], ["int", "-5"], ["null", "null"], ["boolean", "true"], ["binary", "00ff"]]
    inner: Value = ["map", [[["string", "b"], ["list", some]], [["string", "c"], ["ulong", "7"]]]]
    found += [["list", []], ["list", some], ["list", [["list", some], inner]], ["map", []], inner]
    found += [["array", [["int", "1"], ["int", "-2"], ["int", "300"]]], ["array", [["string", "a"], ["string", ""]]]]
    return found


VALUES = values()
# What a client has no word for: rhea leaves decimals unread, azure-servicebus has one of the three, and as a number.
CANNOT = {
    "rhea": {"decimal32", "decimal64", "decimal128"},
    "azure": {"decimal32", "decimal64", "decimal128", "char"},
    "proton": set[str](),
}
CANNOT["promise"] = CANNOT["rhea"]
CANNOT["c"] = {"char", "null"}  # its receive prints one octet of a char, and nothing for a body of null
CLIENTS = ("proton", "rhea", "promise", "azure", "c") if "INTEROP" in os.environ else ("proton", "rhea")

NUMBERS = {name: getattr(proton, name) for name in ("ubyte", "ushort", "uint", "ulong", "byte", "short", "int32")}
CLASSES: dict[str, Any] = {
    **NUMBERS, "int": proton.int32, "long": int, "timestamp": proton.timestamp, "float": proton.float32, "double": float,
    "decimal32": proton.decimal32, "decimal64": proton.decimal64, "decimal128": proton.decimal128, "char": proton.char,
    "boolean": bool, "null": type(None), "uuid": uuid.UUID, "binary": bytes, "string": str, "symbol": proton.symbol,
    "list": list, "map": dict, "array": proton.Array,
}  # fmt: skip


def to_proton(value: Value) -> Any:
    kind, text = value
    match kind:
        case "null":
            return None
        case "boolean":
            return text == "true"
        case "float" | "double":
            (number,) = struct.unpack(">f" if kind == "float" else ">d", bytes.fromhex(text))
            return CLASSES[kind](number)
        case "decimal32" | "decimal64":
            return CLASSES[kind](int(text, 16))
        case "decimal128" | "binary":
            return CLASSES[kind](bytes.fromhex(text))
        case "char":
            return proton.char(chr(int(text)))
        case "list":
            return [to_proton(each) for each in text]
        case "map":
            return {to_proton(key): to_proton(each) for key, each in text}
        case "array":
            code = {"int": proton.Data.INT, "string": proton.Data.STRING}[text[0][0]]
            return proton.Array(proton.UNDESCRIBED, code, *map(to_proton, text))
        case "uuid" | "string" | "symbol":
            return CLASSES[kind](text)
    return CLASSES[kind](int(text))


def encoded(body: Any) -> bytes:
    return bytes(proton.Message(body=body).encode())


def shown(value: Value) -> str:
    """As Debian's receive prints it, from pn_inspect of the same library."""
    data = proton.Data()
    data.put_object(to_proton(value))
    return bytes(ffi.string(lib.pn_tostring(data._data))).decode()


def program(client: str, role: str, at: str, address: str, rhea: Path, table: Path, count: int) -> Program:
    installed = Path(os.environ.get("INTEROP", ""))
    if client == "c":
        (library,) = (installed / "deb/root/usr/lib").glob("*/libqpid-proton-core.so.10")
        environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
        return Program([str(installed / "deb" / role), *at.split(":"), address, str(count)], environment)
    if client == "azure":
        python = str(installed / "python" / "bin" / "python")
        return Program([python, str(PROGRAMS / "azure_amqp.py"), role, at, address, str(table)])
    modules = rhea if client == "rhea" else installed
    environment = {**os.environ, "NODE_PATH": str(modules / "node_modules")}
    script = str(PROGRAMS.parent / "rhea" / "types.js")
    return Program(["node", script, client, role, at, address, str(table)], environment)


@pytest.mark.parametrize("receiver", CLIENTS)
@pytest.mark.parametrize("sender", CLIENTS)
def test_every_type(sender: str, receiver: str, three_routers: Any, rhea: Path, tmp_path: Path) -> None:
    address, first, last = unique("types"), three_routers["a"].address, three_routers["c"].address
    if sender == "c":  # Debian's sends these and nothing else
        table = [["map", [[["string", "sequence"], ["int", str(n)]]]] for n in range(1, 11)]
    else:
        table = [value for value in VALUES if value[0] not in CANNOT[sender] | CANNOT[receiver]]
    if sender == "azure":  # it takes types inside of a list only
        table = [["list", [value]] for value in table]
    path = tmp_path / "table.json"
    path.write_text(json.dumps(table))
    with Subscriber(last, address) as witness:
        if receiver == "proton":
            octets = sent_by(sender, first, address, rhea, path, table)
        else:
            with program(receiver, "receive", last, address, rhea, path, len(table)) as reading:
                if receiver == "c":  # it says nothing before it has received
                    wait_until(lambda: three_routers["a"].directory_entries().get(address) == 2, "the subscription")
                else:
                    assert reading.line() == "attached"
                octets = sent_by(sender, first, address, rhea, path, table)
                read = reading.rest()
            if receiver == "c":
                assert read == [*map(shown, table), f"{len(table)} messages received"]
            else:
                assert [json.loads(line) for line in read] == table
        received = witness.wait(len(table))
    for sent, delivery, value in zip(octets, received, table, strict=True):
        if sent:
            Sample.of(sent).check(delivery.payload)
        message = proton.Message()
        message.decode(delivery.payload)
        assert encoded(message.body) == encoded(to_proton(value)), value


def sent_by(client: str, at: str, address: str, rhea: Path, path: Path, table: list[Value]) -> list[bytes]:
    """What the client says it has sent; Debian's says nothing."""
    if client == "proton":
        octets = [encoded(to_proton(value)) for value in table]
        assert set(publish(at, address, octets)) == {"accepted"}
        return octets
    with program(client, "send", at, address, rhea, path, len(table)) as sending:
        lines = sending.rest()
    if client == "c":
        assert lines == [f"{len(table)} messages sent and acknowledged"]
        return [b""] * len(table)
    return [bytes.fromhex(line) for line in lines]
