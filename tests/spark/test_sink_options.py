"""The sink's options: values, defaults, and every problem at once."""

from __future__ import annotations

import os
import re

import pytest

pytest.importorskip("pyarrow")

from onceway.spark.errors import SinkOptionError
from onceway.spark.options import SINK_OPTIONS, SinkOptions, Terms, sink_options
from tests.live import ROOT

NEEDED = {"url": "amqp://127.0.0.1:5672", "outboxlocation": "/data/outbox"}


def test_the_least_that_must_be_given() -> None:
    assert sink_options(NEEDED, "stream") == SinkOptions(
        location="/data/outbox",
        topic=None,
        terms=Terms(
            url="amqp://127.0.0.1:5672",
            name=None,
            timeout_s=300,
            on_reject="fail",
            on_undecided="fail",
            lock_timeout_s=30,
            retention_s=3600,
        ),
        write_id=None,
    )


def test_all_that_can_be_given() -> None:
    options = sink_options(
        {
            "url": "amqp://h:1,h:2",
            "path": "file:///data/out%20box",
            "topic": "orders",
            "name": "till",
            "publishtimeout": "90s",
            "locktimeout": "0s",
            "outboxretention": "24h",
            "onreject": "Ignore",
            "onundecided": "resend",
            "writeid": "2026-11-21",
        },
        "batch",
    )
    assert (options.location, options.topic, options.write_id) == ("/data/out box", "orders", "2026-11-21")
    assert options.terms == Terms("amqp://h:1,h:2", "till", 90, "ignore", "resend", 0, 86_400)
    assert sink_options({**NEEDED, "outboxlocation": "here"}, "stream").location == os.path.abspath("here")
    stream = sink_options({**NEEDED, "onmissingbatches": "ignore", "checkpointLocation": "/data/c"}, "stream")
    assert (stream.terms.on_missing, stream.terms.checkpoint) == ("ignore", "/data/c")


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(SinkOptionError) as caught:
        sink_options(
            {
                "kafka.bootstrap.servers": "h:1",
                "outboxlocation": "s3://bucket/outbox",
                "publishtimeout": "soon",
                "onreject": "retry",
                "onundecide": "skip",
                "colour": "red",
                "topic": " ",
                "writeid": "a/b",
                "checkpointlocation": "/c",
            },
            "stream",
        )
    told = str(caught.value).splitlines()
    assert told[0] == 'option kafka.bootstrap.servers: is unknown; did you mean "url"?'
    assert told[1].startswith('option outboxLocation: "s3://bucket/outbox" is no directory of this machine; it is')
    assert told[2] == 'option publishTimeout: "soon" is no duration; write for example 500ms, 60s or 5m'
    assert told[3] == 'option onReject: "retry" is none of fail, ignore; write one of them'
    assert told[4] == 'option onundecide: is unknown; did you mean "onUndecided"?'
    known = ", ".join(option.name for option in SINK_OPTIONS)
    assert told[5] == f"option colour: is unknown; known are {known}"
    assert told[6] == "option topic: is empty; write for example orders"
    assert told[7].startswith('option writeId: "a/b" cannot be a file name')
    assert told[8] == 'option url: is missing; give it, as in .option("url", "amqp://127.0.0.1:5672,127.0.0.1:5673")'
    assert len(told) == 9


def test_the_documentation_has_every_option_with_its_default() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    part = page.split("### Options of the sink")[1].split("###")[0]
    told = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| .* \|$", part, re.MULTILINE)
    assert [name for name, _ in told] == [
        option.name for option in sorted(SINK_OPTIONS, key=lambda option: option.name not in ("url", "outboxLocation"))
    ]
    for option, (_, default) in zip(SINK_OPTIONS, told, strict=True):
        if option.default is not None:
            assert default == f"`{option.default}`"


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("topic", "orders,returns", '"orders,returns" names several topics; write one, or give each row its own'),
        ("outboxlocation", "dbfs:/mnt/outbox", "is no directory of this machine"),
    ],
)
def test_a_bad_value_is_refused_with_a_remedy(key: str, text: str, said: str) -> None:
    with pytest.raises(SinkOptionError, match=re.escape(said)):
        sink_options({**{name.lower(): value for name, value in NEEDED.items()}, key: text}, "stream")


def test_a_stream_has_no_write_id() -> None:
    with pytest.raises(SinkOptionError, match="option writeId: has no meaning in a stream"):
        sink_options({**NEEDED, "writeid": "x"}, "stream")


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(SinkOptionError) as caught:
        sink_options({**NEEDED, "url": "amqp://u:secret@h:1/x"}, "stream")
    assert str(caught.value).startswith("option url: router URL 'amqp://u:...@h:1/x': nothing may follow the port")
