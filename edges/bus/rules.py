"""What requests may hold, and events as bytes. Knows no state.

Events come from requests and from clients of AMQP. Both are read with the same function and held to the same rules, so
what the bus keeps is an event, and what it sends is JSON to every parser (RFC 8259).
"""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from router.json_text import write_json

TOPIC: Final = re.compile(r"[a-z_]{1,64}")
NAME: Final = re.compile(r"[a-z0-9:_-]{1,64}")
TOKEN: Final = re.compile(r"[a-z0-9:_-]+?--[0-9a-f]{32}")  # that the bus has made
TYPES: Final = ("create", "update", "delete", "noop")
EVENT: Final = frozenset(("type", "url", "timestamp", "data"))
SHOWN: Final = ("topic", "type", "url", "t", "data")
URL_CHARACTERS: Final = 1024
TIMEOUT_MS: Final = 500
MAX_TIMEOUT_MS: Final = 3_600_000
MAX_EVENTS: Final = 100
COMPRESSED_OCTETS: Final = 5_000  # events larger than this travel and are kept compressed
MOST_OCTETS: Final = 1 << 20  # of a request's body
EVENT_OCTETS: Final = 6 * MOST_OCTETS + 4096  # of an event, in which a character may be written as \uXXXX
TOKEN_TAIL: Final = 34  # of a token: two hyphens and 32 hexadecimal digits
_COMPRESSED: Final = b"zlib:"
_PLAIN: Final = re.compile(r"(https?)://[a-z0-9][a-z0-9.-]*(?:/[!-~]*)?\Z")  # a URL of the usual form
_EVENT: Final = re.compile(rf'\{{"topic":"({TOPIC.pattern})"|zlib:({TOPIC.pattern}):'.encode())


_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text:.20} is too large")
    return number


_DECODE: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_number).decode


class BadRequest(Exception):
    """The request cannot be followed; says why."""


def read_json(body: bytes) -> dict[str, Any]:
    """The object that a request's body holds."""
    try:
        text = body.decode()
        value = _DECODE(text)
        if _SURROGATE.search(text):  # halves of a pair, which parsers that keep texts in UTF-8 refuse
            write_json(value, ascii_only=False).encode()
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object")
    return value


def only(data: dict[str, Any], *keys: str) -> None:
    if not data.keys() <= set(keys):
        unknown = sorted(data.keys() - set(keys))
        raise BadRequest(f"unknown field {unknown[0][:80]!r}; known: {', '.join(keys)}")


def topic_name(value: object) -> str:
    if not isinstance(value, str) or not TOPIC.fullmatch(value):
        raise BadRequest("a topic is 1 to 64 lower-case letters and underscores")
    return value


def client(data: dict[str, Any]) -> tuple[str, str | None]:
    """The name of a client, and the token that the caller has for it; None: one is made, which has the name in it."""
    only(data, "name", "token")
    name, token = data.get("name"), data.get("token")
    most = 64 - TOKEN_TAIL if token is None else 64
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > most:
        raise BadRequest(f"a name is 1 to {most} of a-z 0-9 : _ -")
    if token is None:
        return name, None
    if not isinstance(token, str) or not NAME.fullmatch(token) or (":" in token and not TOKEN.fullmatch(token)):
        raise BadRequest("a token is 1 to 64 of a-z 0-9 _ -: a user name of HTTP Basic has no colon")
    return name, token


def event(topic: str, data: dict[str, Any], now_ms: int) -> bytes:
    """What a push asks to be published: the event as it is delivered, JSON in ASCII, compressed if it is large."""
    if not data.keys() <= EVENT:
        only(data, *sorted(EVENT))
    url, timestamp = data.get("url"), data.get("timestamp")
    if timestamp is None:
        timestamp = now_ms
    _check(data.get("type"), url, timestamp)
    shown = f'{{"topic":"{topic}","type":"{data["type"]}","url":{encode_basestring_ascii(data["url"])},"t":{timestamp}'
    if data.get("data") is not None:
        try:
            shown += f',"data":{write_json(data["data"], compact=True)}'
        except RecursionError as error:
            raise BadRequest("data: nested too deeply") from error
    text = f"{shown}}}".encode()
    if len(text) <= COMPRESSED_OCTETS:
        return text
    return _COMPRESSED + topic.encode() + b":" + zlib.compress(text, 1)


def _check(kind: object, url: object, timestamp: object) -> None:
    if kind not in TYPES:
        raise BadRequest(f"type: one of {', '.join(TYPES)}")
    if not isinstance(url, str) or len(url) > URL_CHARACTERS or not _has_host(url, ("https",)):
        raise BadRequest(f"url: an https URL of at most {URL_CHARACTERS} characters")
    if not isinstance(timestamp, int) or isinstance(timestamp, bool) or not 0 <= timestamp < 1 << 63:
        raise BadRequest("timestamp: a whole number of milliseconds since 1970")


def read_event(body: object) -> tuple[str, bytes]:
    """The topic and the JSON of an event: what `event` has made, or a client of AMQP in the same way.

    Raises:
        BadRequest: It is no event, or only begins like one.
    """
    found = _EVENT.match(body) if isinstance(body, bytes) else None
    if found is None or not isinstance(body, bytes):
        raise BadRequest("this is no event of a bus")
    text = text_of(body)
    if text is None:
        raise BadRequest(f"it has more than {EVENT_OCTETS} octets, or is not compressed by zlib")
    data = read_json(text)
    only(data, *SHOWN)
    topic = (found[1] or found[2]).decode()
    if data.get("topic") != topic:
        raise BadRequest(f"topic: {topic} is what it begins with")
    _check(data.get("type"), data.get("url"), data.get("t"))
    return topic, text


def is_event(body: object) -> bool:
    try:
        read_event(body)
    except BadRequest:
        return False
    return True


def text_of(body: bytes) -> bytes | None:
    """The event's JSON; None if it cannot be decompressed, or has more than EVENT_OCTETS."""
    if not body.startswith(_COMPRESSED):
        return body if len(body) <= EVENT_OCTETS else None
    inflating = zlib.decompressobj()
    try:
        text = inflating.decompress(body[body.index(b":", len(_COMPRESSED)) + 1 :], EVENT_OCTETS)
    except (ValueError, zlib.error):
        return None
    return text if inflating.eof and not inflating.unused_data else None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a subscriber asks for; None: as it is."""

    topics: tuple[str, ...] | None = None
    callback: str | None = None
    uuid: str | None = None
    timeout_ms: int | None = None
    max_events: int | None = None


def subscription(data: dict[str, Any], schemes: tuple[str, ...], *, whole: bool) -> Wish:
    """What POST /subscription (`whole`) or PUT /subscriber asks for; `schemes` of call-backs that are taken."""
    keys = ("topics", "callback", "uuid", "timeout", "max") if whole else ("callback", "uuid", "timeout", "max")
    only(data, *keys)
    data = {key: value for key, value in data.items() if value is not None or key in ("topics", "callback")}
    topics = data.get("topics")
    if whole:
        if not isinstance(topics, list):
            raise BadRequest("topics: a list of names")
        topics = tuple(dict.fromkeys(topic_name(name) for name in topics))
    callback, uuid = data.get("callback"), data.get("uuid")
    if whole or "callback" in data:
        if not isinstance(callback, str) or not _has_host(callback, schemes) or "?" in callback:
            raise BadRequest(f"callback: an {' or '.join(schemes)} URL without a query")
        place = urlsplit(callback)
        if "@" in place.netloc:  # others are shown the call-back, and its user is a secret
            uuid = unquote(place.username or "") if uuid is None else uuid
            callback = place._replace(netloc=place.netloc.rpartition("@")[2]).geturl()
        if len(callback) > URL_CHARACTERS:
            raise BadRequest(f"callback: at most {URL_CHARACTERS} characters")
    if uuid is not None and (
        not isinstance(uuid, str) or not 0 < len(uuid) <= URL_CHARACTERS or ":" in uuid or not uuid.isprintable()
    ):
        raise BadRequest("uuid: the user name for the call-back, without a colon")
    timeout = _whole_number(data, "timeout", 0, MAX_TIMEOUT_MS)
    most = _whole_number(data, "max", 1, 1_000_000)
    return Wish(topics, callback, "" if whole and uuid is None else uuid, timeout, most)


def replay(data: dict[str, Any]) -> tuple[str, int] | None:
    """Where PUT /subscriber/topics/:name is to begin: ("position", number), ("time", ms), None: with new events."""
    only(data, "position", "time")
    if len(data) > 1:
        raise BadRequest("either position or time")
    for key in data:
        number = _whole_number(data, key, 0, 1 << 62)
        assert number is not None
        return key, number
    return None


def _whole_number(data: dict[str, Any], key: str, least: int, most: int) -> int | None:
    if key not in data:
        return None
    value = data[key]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadRequest(f"{key}: a whole number from {least} to {most}")
    return value


def _has_host(url: str, schemes: tuple[str, ...]) -> bool:
    if (plain := _PLAIN.match(url)) is not None:
        return plain[1] in schemes
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname
    return parts.scheme in schemes and bool(host) and port != 0 and not any(c <= " " or c == "\x7f" for c in url)
