"""rhea (node): the same through one router and through three, alone and together with proton."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.interop import messages
from tests.interop.conftest import Way
from tests.interop.raw import MODES, Subscriber, publish, unique
from tests.running import Program, python

PROGRAMS = Path(__file__).parent / "rhea"


def node(rhea: Path, program: str, at: str, *arguments: object) -> Program:
    environment = {**os.environ, "NODE_PATH": str(rhea / "node_modules")}
    return Program(["node", str(PROGRAMS / program), *at.rsplit(":", 1), *map(str, arguments)], environment)


@pytest.mark.parametrize("mode", MODES)
def test_rhea_reaches_rhea_with_every_body_type(way: Way, rhea: Path, mode: str) -> None:
    address = unique("rhea")
    count = 39
    with node(rhea, "subscribe.js", way.subscribe, address, mode, count) as subscriber:
        assert subscriber.line() == "attached"
        with node(rhea, "publish.js", way.publish, address, mode, "bodies") as publisher:
            *sent, last = publisher.rest()
            assert last == f"{len(sent)} {'sent' if mode == 'pre-settled' else 'accepted'}"
        assert len(sent) == count
        assert subscriber.rest() == sent


@pytest.mark.parametrize("mode", MODES)
def test_rhea_reaches_rhea_beyond_its_buffer(way: Way, rhea: Path, mode: str) -> None:
    """rhea keeps at most 2,048 deliveries that it cannot free: a router that does not settle stalls it there."""
    address = unique("rhea-many")
    with node(rhea, "subscribe.js", way.subscribe, address, mode, 5_000) as subscriber:
        assert subscriber.line() == "attached"
        with node(rhea, "publish.js", way.publish, address, mode, 5_000) as publisher:
            *sent, _ = publisher.rest(60)
        assert subscriber.rest(60) == sent


@pytest.mark.parametrize("mode", MODES)
def test_ten_megabytes_from_rhea_to_rhea(way: Way, rhea: Path, mode: str) -> None:
    address = unique("rhea-large")
    with node(rhea, "subscribe.js", way.subscribe, address, mode, 1, "large") as subscriber:
        assert subscriber.line() == "attached"
        with node(rhea, "publish.js", way.publish, address, mode, "large", messages.LARGEST) as publisher:
            publisher.rest(60)
        body = messages.pattern(messages.LARGEST)
        assert subscriber.rest(60) == [f"{len(body)} {hashlib.md5(body).hexdigest()}"]


@pytest.mark.parametrize("mode", MODES)
def test_proton_reaches_rhea_with_every_body_type(way: Way, rhea: Path, mode: str) -> None:
    address = unique("to-rhea")
    # rhea cannot decode decimals, nor integers beyond 2**53 as numbers; the digest is of what it can.
    samples = [s for s in messages.bodies() + messages.sections() if "decimal" not in s.name]
    with (
        Subscriber(way.subscribe, address, mode=mode) as proton,
        node(rhea, "subscribe.js", way.subscribe, address, mode, len(samples)) as subscriber,
    ):
        assert subscriber.line() == "attached"
        publish(way.publish, address, [sample.payload for sample in samples], mode=mode)
        lines = subscriber.rest()
        for sample, delivery in zip(samples, proton.wait(len(samples)), strict=True):
            sample.check(delivery.payload)
    by_name = dict(zip([sample.name for sample in samples], map(json.loads, lines), strict=True))
    assert by_name["value string"]["body"] == "grüße \U0001f680 " * 40
    assert by_name["value map"]["body"] == {"2": "b", "a": 1, "nested": {"list": [1, 2, 3]}}
    assert by_name["data of 100 bytes"]["body"]["content"].startswith("100 bytes")
    assert by_name["all sections"]["application_properties"]["text"] == "ä"
    assert by_name["all sections"]["message_annotations"]["x-opt-first"] == "one"
    assert by_name["all sections"]["subject"] == "subject"
    assert by_name["all sections"]["footer"] == {"x-crc": 12345}


@pytest.mark.parametrize("mode", MODES)
def test_rhea_reaches_proton(way: Way, rhea: Path, mode: str) -> None:
    address = unique("from-rhea")
    with python("simple_recv", f"amqp://{way.subscribe}/{address}", 300, mode) as receiver:
        assert receiver.line() == "attached"
        with node(rhea, "publish.js", way.publish, address, mode, 300) as publisher:
            publisher.rest()
        assert receiver.rest() == [f"{{'sequence': uint({number})}}" for number in range(1, 301)]


def test_rhea_reaches_proton_byte_by_byte_with_every_body_type(way: Way, rhea: Path) -> None:
    address, count = unique("bytes-from-rhea"), 39
    with (
        Subscriber(way.subscribe, address) as subscriber,
        node(rhea, "publish.js", way.publish, address, "unsettled", "bytes") as publisher,
    ):
        received = subscriber.wait(count)
        *sent, last = publisher.rest()
    assert last == f"{count} accepted"
    for octets, delivery in zip(map(bytes.fromhex, sent), received, strict=True):
        messages.Sample.of(octets).check(delivery.payload)
