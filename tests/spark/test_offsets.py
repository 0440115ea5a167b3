"""Spark's offsets: one text for one position, and clear words for what is no offset of ours."""

from __future__ import annotations

import json

import pytest

from onceway.spark.errors import OffsetError
from onceway.spark.source.stream import Offset, offset_of


def test_the_same_position_is_always_the_same_text() -> None:
    text = '{"p": {"0": 12345, "2": 7, "10": 1}, "v": 1, "wal": "w"}'
    assert json.dumps(Offset("w", {10: 1, 0: 12345, 2: 7}).as_dict()) == text
    assert json.dumps(offset_of(json.loads(text)).as_dict()) == text
    assert offset_of(text) == Offset("w", {0: 12345, 2: 7, 10: 1})


def test_reports_may_say_more() -> None:
    assert offset_of({**Offset("w", {0: 1}).as_dict(), "lagRows": 5}) == Offset("w", {0: 1})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"v": 2, "wal": "w", "p": {}}, "is of version 2, this onceway reads 1; use the onceway that wrote"),
        ({"orders": {"0": 5}}, "was the checkpoint written by another source?"),
        ({"v": 1, "wal": "w"}, "is incomplete"),
        ({"v": 1, "wal": "w", "p": {"0": -1}}, "slot '0' at -1"),
        ({"v": 1, "wal": "w", "p": {"zero": 1}}, "slot 'zero' at 1"),
        ({"v": 1, "wal": "w", "p": {"0": True}}, "slot '0' at True"),
        ("{not json", "is no offset"),
        (17, "17 is no offset of onceway"),
    ],
)
def test_what_is_no_offset_is_refused(value: object, said: str) -> None:
    with pytest.raises(OffsetError) as caught:
        offset_of(value)
    assert said in str(caught.value)
