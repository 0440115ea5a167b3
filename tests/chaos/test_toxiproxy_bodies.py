"""What our Toxiproxy makes of a request's body: values, and errors in the words of Go's encoding/json."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.toxiproxy.bodies import TOXIC, ApiError, attributes_of, fields, first_value
from chaos.toxiproxy.toxics import Latency


def said(what: Any, *arguments: Any) -> str:
    with pytest.raises(ApiError) as caught:
        what(*arguments)
    assert caught.value.status == 400
    return caught.value.message.removeprefix("bad request body: ")


@pytest.mark.parametrize(("text", "value"), [(" [1] ", [1]), ("{} {", {}), ("null", None), ("1.5x", 1.5)])
def test_the_first_value_counts(text: str, value: Any) -> None:
    assert first_value(text) == value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "EOF"),
        (" \n", "EOF"),
        ('{"name": "p', "unexpected EOF"),
        ('{"name": ', "unexpected EOF"),
        ('{"name"', "unexpected EOF"),
        ("[1,", "unexpected EOF"),
        ("tru", "unexpected EOF"),
        ('"\\u12', "unexpected EOF"),
        ("trux", "invalid character 'x' in literal true (expecting 'e')"),
        ("?", "invalid character '?' looking for beginning of value"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("NaN", "invalid character 'N' looking for beginning of value"),
        ("-Infinity", "invalid character 'I' looking for beginning of value"),
        ("{'a': 1}", "invalid character '\\'' looking for beginning of object key string"),
        ('{"a": 1,}', "invalid character '}' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a": "}" "b"}', "invalid character '\"' after object key:value pair"),
        ('{"a": [1, "]\\"[" 3]}', "invalid character '3' after array element"),
        ('"\\q"', "invalid character 'q' in string escape code"),
        ('"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ("[" * 100_000, "exceeded max depth"),
    ],
)
def test_what_is_no_json_is_told_in_the_words_of_the_original(text: str, error: str) -> None:
    assert said(first_value, text) == error


@pytest.mark.parametrize("number", ["1e999", "4e38", "-4e38", "1" + "0" * 5_000])
def test_a_share_that_is_no_float_is_refused(number: str) -> None:
    error = said(fields, first_value(f'{{"toxicity": {number}}}'), "ToxicWrapper", TOXIC)
    assert error == (
        f"json: cannot unmarshal number {number} into Go struct field ToxicWrapper.toxicity of type float32"
    )


@pytest.mark.parametrize("number", ["1.5", "1e3", "9223372036854775808", "-9223372036854775809", "1" + "0" * 5_000])
def test_an_attribute_that_is_no_int64_is_refused_as_it_was_written(number: str) -> None:
    given = first_value(f'{{"latency": 5, "jitter": {number}}}')
    assert said(attributes_of, Latency(), given) == (
        f"json: cannot unmarshal number {number} into Go struct field LatencyToxic.attributes.jitter of type int64"
    )


def test_attributes_are_known_in_any_case_and_null_is_as_good_as_absent() -> None:
    given = first_value('{"LATENCY": 9223372036854775807, "jitter": null, "colour": []}')
    assert attributes_of(Latency(), given) == {"latency": 2**63 - 1}
    assert attributes_of(Latency(), None) == {}
