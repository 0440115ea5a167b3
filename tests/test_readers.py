"""Everything that is accepted can be read by every reader: one corpus goes through every pair of writer and reader.

A writer makes payloads of what clients may say; `clients` are the odd messages that any client may send. A reader gets
whatever any writer makes. It decodes it, or hands it over raw, or rejects it with a reason; it never raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from amqp10.annotations import with_message_annotations, with_true_annotation
from amqp10.encoder import encode_value
from amqp10.errors import DecodeError
from amqp10.sections import Message
from amqp10.types import Raw
from edges.pipe.log import PipeLog, State
from edges.pipe.messages import as_sent, decode_entry, encode_entry
from edges.pipe.reader import Received
from edges.pipe.serve import StoredPipe
from onceway.base.logs import logger
from onceway.cli.subscribe import shown
from onceway.client.delivery import Batch, Delivery
from onceway.client.protocol.events import Arrived
from router.names import PUBLISHER_ANNOTATION
from tests.odd_messages import odd_messages

Payload = tuple[bytes, int]
"""And its message-format."""
NAMED = encode_value("somebody/link")
NOBODY: Any = None


# -- writers


def clients() -> Iterable[Payload]:
    """What routers pass on of what clients send: with the publisher's name, and without what is no message to them."""
    for _, payload, message_format in odd_messages():
        try:
            if message_format:
                yield with_true_annotation(payload, PUBLISHER_ANNOTATION, NAMED), message_format
            else:
                yield with_message_annotations([payload], PUBLISHER_ANNOTATION, NAMED)[0], 0
        except DecodeError:  # the publisher is detached
            continue


# -- readers: what came of a payload, decoded or raw; or None, it was rejected


def batch_of(payload: bytes, message_format: int) -> Batch:
    batch = Batch(NOBODY)
    batch._add(Arrived(0, [b"tag"], [payload], False, message_format), 0, 1)
    return batch


def client(payload: bytes, message_format: int) -> object:
    batch = batch_of(payload, message_format)
    delivery = Delivery(NOBODY, 0, b"tag", payload, message_format, False)
    body, message = delivery.body, delivery.message
    assert repr(body) == repr(batch.bodies[0]) == repr(batch[0].body)
    assert repr(message) == repr(batch.messages[0])
    assert delivery.publisher in (("somebody", "link"), None)
    assert (delivery.raw is not None) == isinstance(body, Raw)
    if message.raw is None:
        assert repr(body) == repr(message.value)
    else:
        assert message.value == payload
        assert Message.decode(message.encode()).value == payload  # it can be passed on
        assert body == payload or delivery.raw is None  # the body alone may be readable
    return body


def subscribe(payload: bytes, message_format: int) -> object:
    lines = shown("test", batch_of(payload, message_format).bodies)
    assert lines.endswith("\n")
    assert lines.count("\n") == 1
    return lines


def pipe(payload: bytes, message_format: int) -> object:
    log = PipeLog(NOBODY, "jobs", State(), logger("pipe"))
    store: Any = SimpleNamespace(_log=log)
    entries, refused = StoredPipe._entries(store, batch_of(payload, message_format))
    if not entries:
        ((_, error),) = refused
        assert error.description
        return None
    (entry,) = entries
    assert decode_entry(encode_entry(1, 0, entry)) == (1, 0, entry)
    received = Received(0, *as_sent(entry.record))
    assert received.message_format == message_format
    assert received.control is None
    assert received.raw is None or received.message.raw == received.raw
    return received.body


WRITERS: dict[str, Callable[[], Iterable[Payload]]] = {"clients": clients}
READERS: dict[str, Callable[[bytes, int], object]] = {
    "onceway.client": client,
    "onceway.cli.subscribe": subscribe,
    "edges.pipe": pipe,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_reader_reads_what_every_writer_writes(writer: str, reader: str) -> None:
    read = READERS[reader]
    for payload, message_format in WRITERS[writer]():
        try:
            read(payload, message_format)
        except Exception as error:
            raise AssertionError(f"{payload!r} of message-format {message_format}") from error
