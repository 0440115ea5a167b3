"""The source's options: defaults, units, and every problem at once with its remedy."""

from __future__ import annotations

import os
import pickle
import re

import pytest

from onceway.spark.errors import OptionError
from onceway.spark.options import MIB, OPTIONS, REQUIRED, SourceOptions, source_options
from tests.live import ROOT

NEEDED = {
    "url": "amqp://127.0.0.1:5672",
    "topic": "orders",
    "subscription": "billing",
    "wallocation": "/data/wal",
}


def problems(use: str = "stream", **options: str) -> list[str]:
    with pytest.raises(OptionError) as caught:
        source_options({**NEEDED, **options}, use)  # type: ignore[arg-type]
    return str(caught.value).split("\n")


def test_defaults_are_those_that_the_list_of_options_says() -> None:
    read = source_options(NEEDED, "stream")
    assert read == SourceOptions("/data/wal", NEEDED["url"], ("orders",), "billing")
    written = {option.name.lower(): option.default for option in OPTIONS if option.default is not None}
    del written["endingoffsets"], written["maxtriggerdelay"]  # of batch reads, and beside minRowsPerTrigger
    assert source_options({**NEEDED, **written}, "stream") == read
    assert source_options({**NEEDED, "minRowsPerTrigger": "1", "maxTriggerDelay": "15m"}, "stream").max_delay_s == (
        read.max_delay_s
    )


def test_values_have_the_units_of_a_topology_file_and_keys_any_case() -> None:
    read = source_options(
        {
            **NEEDED,
            "topic": "orders, returns",
            "maxTriggerDelay": "500ms",
            "minrowspertrigger": "10",
            "MAXBYTESPERTRIGGER": "64MiB",
            "maxbacklogbytes": "1073741824",
            "walretention": "1h,2GiB",
            "failondataloss": "False",
            "transport": "INLINE",
        },
        "stream",
    )
    assert read.topics == ("orders", "returns")
    assert read.max_delay_s == 0.5
    assert read.max_bytes == 64 * MIB
    assert read.max_backlog == 1024 * MIB
    assert read.retention == (3600.0, 2048 * MIB)
    assert read.fail_on_data_loss is False
    assert read.transport == "inline"
    assert pickle.loads(pickle.dumps(read)) == read


def test_an_unknown_option_is_named_with_what_may_have_been_meant() -> None:
    assert problems(maxrowspertriger="1") == ['option maxrowspertriger: is unknown; did you mean "maxRowsPerTrigger"?']
    assert problems(paths='["/a","/b"]') == ['option paths: is unknown; did you mean "walLocation"?']
    assert problems(subscribe="orders") == ['option subscribe: is unknown; did you mean "topic"?']
    assert problems(maxoffsetspertrigger="5") == [
        'option maxoffsetspertrigger: is unknown; did you mean "maxRowsPerTrigger"?'
    ]
    assert problems(checkpointlocation="/c") == ["option checkpointlocation: is unknown; it belongs to writeStream"]
    assert problems(zzz="1")[0].startswith("option zzz: is unknown; known are url, topic, subscription, walLocation")


def test_everything_that_is_missing_is_named_with_an_example() -> None:
    with pytest.raises(OptionError) as caught:
        source_options({"credit": "100"}, "stream")
    assert str(caught.value).split("\n") == [
        'option url: is missing; give it, as in .option("url", "amqp://127.0.0.1:5672,127.0.0.1:5673")',
        'option topic: is missing; give it, as in .option("topic", "orders")',
        'option subscription: is missing; give it, as in .option("subscription", "billing")',
        'option walLocation: is missing; give it, as in .option("walLocation", "/data/billing-wal")',
    ]
    with pytest.raises(OptionError, match="walLocation: is missing"):
        source_options({}, "batch")
    assert source_options({}, "either").location == ""


def test_all_problems_come_at_once() -> None:
    found = problems(credit="many", groupms="-1", segmentbytes="3 apples", failondataloss="maybe", topic="a,,b")
    assert [line.split(":")[0] for line in found] == [
        "option topic",
        "option credit",
        "option groupMs",
        "option segmentBytes",
        "option failOnDataLoss",
    ]


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("url", "amqps://router:port", "Port could not be cast"),
        ("url", "http://router", "the scheme must be amqp"),
        ("topic", "orders,orders", '"orders" is there twice'),
        ("topicpattern", "*", '"*" is no regular expression'),
        ("wallocation", "hdfs://there/wal", "is no directory of this machine"),
        ("wallocation", "s3://bucket", "names no place in a bucket; write it as in s3://logs/orders"),
        ("credit", "0", '"0" is too little; write at least 1'),
        ("maxbacklogbytes", "1KiB", '"1KiB" is too little; write at least 1048576'),
        ("walretention", "10", '"10" has no unit; did you mean 10s?'),
        ("lockTimeout", "5", '"5" has no unit; did you mean 5s?'),
        ("transport", "carrier pigeon", "is none of file, inline; write one of them"),
        ("startingoffsets", "yesterday", "write earliest or latest"),
        ("startingoffsets", "{", "write an offset such as"),
        ("startingoffsets", '{"orders":{"0":-3}}', "write an offset such as"),
        ("startingoffsets", '{"orders":{"none":3}}', "write an offset such as"),
        ("startingoffsets", '{"v":1,"wal":"x","p":{"0":-1}}', "write an offset such as"),
        ("subscription", "  ", "is empty; write for example billing"),
        ("wallocation", "dbfs:/mnt/wal", "is no directory of this machine"),
        ("walretention", "10m,20m", "says the same twice; write a duration, a size, or one of each"),
        ("credit", "2147483648", "is too much; write at most 2147483647"),
        ("locktimeout", "10000000h", '"10000000h" is too much; write at most 87600h'),
        ("wallocation", "/data\0", "has the character NUL; leave it out"),
        ("topicpattern", "x{99999999999}", "is no regular expression"),
        ("startingoffsets", '{"p":' + "[" * 50_000, "write an offset such as"),
        ("credit", "9" * 5000, "is no whole number"),
        ("segmentbytes", "9" * 5000, "is no whole number"),
        ("segmentbytes", "9" * 400 + "GiB", "is no size"),
        ("locktimeout", "9" * 400 + "s", "is no duration"),
    ],
)
def test_a_bad_value_is_refused_with_a_remedy(key: str, text: str, said: str) -> None:
    (found,) = problems(**{key: text})
    assert said in found


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"minrowspertrigger": "9", "maxrowspertrigger": "5"}, "no batch could ever be planned"),
        ({"maxtriggerdelay": "5s"}, "waits for minRowsPerTrigger"),
        ({"grouprows": "500", "credit": "100"}, "no group could ever fill"),
        ({"maxbytespertrigger": "2GiB", "maxbacklogbytes": "1GiB"}, "at which receiving stops"),
        ({"endingoffsets": "latest"}, "has no meaning in a stream"),
        ({"topicpattern": "orders.*"}, "names topics, as topic does"),
    ],
)
def test_what_cannot_go_together_is_refused(options: dict[str, str], said: str) -> None:
    (found,) = problems(**options)
    assert said in found


def test_a_batch_read_takes_no_limits() -> None:
    (found,) = problems("batch", maxrowspertrigger="5")
    assert found == ("option maxRowsPerTrigger: has no meaning in a batch read; use startingOffsets and endingOffsets")


def test_the_path_of_load_is_the_log() -> None:
    assert source_options({"path": "file:/data/my%20wal"}, "batch").location == "/data/my wal"
    assert source_options({"path": "wal"}, "batch").location == os.path.abspath("wal")
    assert problems(path="/another")[0].startswith("option walLocation: is given twice")


def test_credit_and_group_follow_each_other_where_only_one_is_given() -> None:
    assert source_options({**NEEDED, "credit": "100"}, "stream").group_rows == 100
    assert source_options({**NEEDED, "groupRows": "50000"}, "stream").credit == 50_000


def test_the_documentation_has_every_option_with_its_default() -> None:
    page = (ROOT / "docs" / "spark.md").read_text()
    part = page.split("### Options of the source")[1].split("###")[0]
    told = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| .* \|$", part, re.MULTILINE)
    said = [
        (
            option.name,
            "required" if option.name in REQUIRED["stream"] else f"`{option.default}`" if option.default else "",
        )
        for option in OPTIONS
    ]
    assert told == said
