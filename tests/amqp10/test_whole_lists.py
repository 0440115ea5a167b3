"""Peers that read fields by number get lists with all fields (amqp10/whole_lists.py), and nobody else does."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from amqp10.composite import read_list_head
from amqp10.events import ConnectionClosed
from amqp10.frames import EMPTY_FRAME, encode_frame
from amqp10.outcomes import ACCEPTED, Error, Rejected
from amqp10.performatives import Begin, Close, Disposition, Transfer, decode_performative
from amqp10.runs import Transfers
from amqp10.whole_lists import ADDED, PRODUCTS, with_whole_lists
from tests.amqp10.composites import performatives
from tests.amqp10.pair import Pair

HEADER = 8


def bodies(sent: bytes) -> list[bytes]:
    """Of frames; protocol headers are left out."""
    found, offset = [], 0
    while offset < len(sent):
        if sent.startswith(b"AMQP", offset):
            offset += HEADER
            continue
        size = int.from_bytes(sent[offset : offset + 4], "big")
        found.append(sent[offset + HEADER : offset + size])
        offset += size
    return found


def count_of(body: bytes) -> int:
    return read_list_head(body, 3, len(body), "a performative")[2]


@given(performatives.filter(lambda each: not type(each).__name__.startswith("Sasl")), st.binary(max_size=300))
def test_frames_mean_the_same_and_have_all_fields(performative: Any, payload: bytes) -> None:
    body = performative.encode()
    payload = payload if isinstance(performative, Transfer) else b""
    frame = encode_frame(0, 3, body + payload)
    whole = with_whole_lists(EMPTY_FRAME + frame + EMPTY_FRAME)
    assert whole.startswith(EMPTY_FRAME)
    assert whole.endswith(EMPTY_FRAME)
    (found,) = [each for each in bodies(whole) if each]
    decoded, end = decode_performative(found, 0, len(found))
    assert (decoded.encode(), found[end:]) == (body, payload)
    assert count_of(found) == len(type(performative).fields)
    assert len(found) <= len(body + payload) + ADDED
    assert with_whole_lists(whole) == whole


def test_errors_inside_have_all_fields_too() -> None:
    rejected = Disposition(True, 0, state=Rejected(Error("a:b")), settled=True)
    for performative in (Close(Error("a:b")), rejected):
        (body,) = bodies(with_whole_lists(encode_frame(0, 0, performative.encode())))
        assert b"\x00\x53\x1d\xc0\x08\x03\xa3\x03a:b\x40\x40" in body


def exchanged(product: str) -> bytes:
    """What a server sends to a client of this product in a short life."""
    pair = Pair(client={"properties": {"product": product}})
    session = pair.client.begin()
    receiver, sender = pair.subscribing(session)
    _, incoming = pair.publishing(session, name="back")
    sender.send([b"1", b"2"], [b"one", b"two"])
    at_client, _ = pair.pump()
    assert [event.payloads for event in at_client if isinstance(event, Transfers)] == [[b"one", b"two"]]
    receiver.dispose(0, 1, ACCEPTED, True)
    incoming.detach(Error("a:b"))
    pair.pump()
    pair.server.close(Error("a:b", "enough"))
    at_client, _ = pair.pump()
    assert isinstance(at_client[-1], ConnectionClosed)
    return pair.sent_by_server


def test_only_who_needs_it_gets_it() -> None:
    for product in PRODUCTS:
        for body in bodies(exchanged(product)):
            assert count_of(body) == len(type(decode_performative(body, 0, len(body))[0]).fields)
    plain = [body for body in bodies(exchanged("another")) if count_of(body) < 5]
    assert plain, "transfers, closes and others end with their last field"
    begins = [body for body in bodies(exchanged("another")) if body[2] == Begin.descriptor_code]
    assert [count_of(body) for body in begins] == [len(Begin.fields)], "who it is may come out later"
