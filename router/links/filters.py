"""The filters of a receiving link's source (AMQP 3.5.3), applied to payloads at its router only (protocol 6.4.5).

`read_filters` takes those that are known and says which they are: the answer to the attach has these and no others.
`Selection` is what the core asks: which of these messages the subscription does not get, and what its outcome is.
A message of another message-format than 0 passes every filter, and one whose sections cannot be read passes none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from operator import itemgetter
from typing import Any, Final

from amqp10.annotations import APPLICATION_PROPERTIES, FOOTER
from amqp10.encoder import encode_value
from amqp10.errors import INVALID_FIELD, DecodeError, RemoteProtocolError
from amqp10.sections import REMEMBERED, Glance
from amqp10.types import Array, Described, Symbol, ULong, place_of
from router import names
from router.core.ports import Needs, Outcome, Places, Unwanted, too_large
from router.links.dear import SEARCH_BYTES, TooDear

Wants = Callable[[Glance], bool]
Told = Callable[[str, bool], None]
"""Why a message was passed by unread, and whether a filter is at fault."""

MOST_FILTERS: Final = 16
MOST_BYTES: Final = 16 << 10  # they are kept as long as the link
MOST_TOGETHER: Final = 80_000
"""Bytes of the filters of all subscriptions of an address at one router that one message asks: some 10 ms."""
OF_OCTET: Final = 12  # octets that are kept for one of a filter as it is sent: its texts, and expressions of LIKE
OF_PART: Final = 256  # for a word, a sign or a value: objects and functions
FREE_BYTES: Final = 128  # of filters that only messages with one value ask: as much as to send such a message takes
MOST_WORDS: Final = 1 << 13  # of a subject that patterns of words read
MOST_PARTITIONS: Final = 65_536
_PART: Final = re.compile(r"\w+|[^\s\w.,]")
_FIELDS: Final = {
    "message-id": "message_id",
    "user-id": "user_id",
    "to": "to",
    "subject": "subject",
    "reply-to": "reply_to",
    "correlation-id": "correlation_id",
    "content-type": "content_type",
    "content-encoding": "content_encoding",
    "absolute-expiry-time": "absolute_expiry_time",
    "creation-time": "creation_time",
    "group-id": "group_id",
    "group-sequence": "group_sequence",
    "reply-to-group-id": "reply_to_group_id",
}
_JMS: Final = {
    "JMSMessageID": "message_id",
    "JMSCorrelationID": "correlation_id",
    "JMSTimestamp": "creation_time",
    "JMSType": "subject",
    "JMSXGroupID": "group_id",
    "JMSXGroupSeq": "group_sequence",
}
_HEADERS: Final = (
    *(*_JMS, "JMSPriority", "JMSDeliveryMode"),
    *("amqp." + "".join(each) for field in _FIELDS for each in product(*("-_" if c == "-" else c for c in field))),
)
"""All names that `_header_of` knows."""


class Selection:
    """What one subscription gets: the core's `Selection` (router.core.ports)."""

    __slots__ = ("_begins", "_by_head", "_most_bytes", "_wanted", "_wants", "asked", "needs", "told")

    def __init__(self, wants: Sequence[Wants], most_bytes: int, asked: int = 0) -> None:
        """most_bytes: the receiver's max-message-size; 0: any. asked: bytes of the filters, as `asked_of` counts them:
        each message asks them, or each that has what it `needs`."""
        self._wants = wants
        self.asked = asked
        self.told: Told | None = None  # for the owner
        needs = [each.needs for each in wants if isinstance(each, _Selector) and each.needs is not None]
        self.needs = needs[0] if needs else None
        self._most_bytes = most_bytes
        # Messages often begin alike, and so are judged alike: the sections of the last one that count, and its verdict.
        self._by_head = all(isinstance(each, _Partition) for each in wants)
        self._begins: bytes | None = None
        self._wanted = True

    def unwanted(self, payloads: Sequence[bytes], message_format: int) -> list[Unwanted]:
        found = self._filtered(payloads) if self._wants and not message_format else []
        most = self._most_bytes
        if most and max(map(len, payloads), default=0) > most:
            gone = {i for start, stop, _ in found for i in range(start, stop)}
            refusal = too_large(most)
            found += [
                (i, i + 1, refusal) for i, payload in enumerate(payloads) if len(payload) > most and i not in gone
            ]
            found.sort(key=itemgetter(0))
        return found

    def places(self, payloads: Sequence[bytes], names: Container[str]) -> Places:
        """Implements `Selection`. What cannot be read has no value, so no selector that needs one lets it through."""
        found: Places = {}
        headers = [name for name in _HEADERS if name in names]
        for i, payload in enumerate(payloads):
            glance = Glance(payload)
            try:
                said = glance.application_properties
                for name, value in said.items():
                    if name in names:
                        found.setdefault(Needs(name, _place(value)), []).append(i)
                for name in headers:
                    if said.get(name) is None:
                        found.setdefault(Needs(name, _place(_header_of(glance, name))), []).append(i)
            except DecodeError as error:
                if self.told is not None:
                    self.told(str(error), False)
        return found

    def _filtered(self, payloads: Sequence[bytes]) -> list[Unwanted]:
        found: list[Unwanted] = []
        begins, wanted, first = self._begins, self._wanted, 0
        for i, payload in enumerate(payloads):
            if begins is not None and payload.startswith(begins):
                continue
            was, (begins, wanted) = wanted, self._judge(payload)
            if was and not wanted:
                first = i
            elif wanted and not was and i > first:
                found.append((first, i, Outcome.ACCEPTED))
        if not wanted and payloads:
            found.append((first, len(payloads), Outcome.ACCEPTED))
        self._begins, self._wanted = begins, wanted
        return found

    def _judge(self, payload: bytes) -> tuple[bytes | None, bool]:
        """Returns the sections that say it with the descriptor of the next one (None: unreadable), and whether the
        message is wanted."""
        glance, wants = Glance(payload), self._wants
        wanted = False
        try:
            wanted = all(each(glance) for each in wants) if len(wants) > 1 else wants[0](glance)
            if self._by_head:
                n, behind = len(glance.head()), _BEHIND_THE_HEAD
            else:
                n, behind = len(glance.before_the_body()), _BODIES
            return payload[: n + 3] if payload[n : n + 3] in behind else None, wanted
        except DecodeError as error:
            wanted = wanted and self._by_head
            if not wanted and self.told is not None:
                self.told(str(error), False)
            return None, wanted
        except TooDear as dear:
            if self.told is not None:
                self.told(str(dear), dear.own)
            return None, False


def read_filters(asked: Mapping[Any, Any] | None, container: str) -> tuple[Mapping[str, Any], list[Wants]]:
    """The filters that are applied, for the answer, and the same as functions.

    container: the receiver's container-id, for `no-local`.

    Raises:
        RemoteProtocolError: A known filter is malformed.
    """
    applied: dict[str, Any] = {}
    wants: list[Wants] = []
    for key, value in (asked or {}).items():
        descriptor, inner = (value.descriptor, value.value) if isinstance(value, Described) else (key, value)
        make = KNOWN_FILTERS.get(int(descriptor) if isinstance(descriptor, ULong) else str(descriptor))
        if make is None:
            continue
        if len(wants) == MOST_FILTERS:
            raise _malformed(key, f"there are more than {MOST_FILTERS} filters")
        try:
            wants.append(make(inner, container))
        except ValueError as error:
            raise _malformed(key, str(error)) from None
        applied[Symbol(key)] = value
    if applied and len(encode_value(applied)) > MOST_BYTES:
        raise RemoteProtocolError(INVALID_FIELD, f"attach.source.filter: takes more than {MOST_BYTES} bytes")
    return applied, wants


def asked_of(applied: Mapping[str, Any], wants: Sequence[Wants]) -> int:
    """Bytes of the filters that a message asks, with what searches count for; not of partitions, and FREE_BYTES less
    where one look at a message says whether it may be wanted."""
    asked = free = 0
    for value, each in zip(applied.values(), wants, strict=False):
        if isinstance(each, _Partition):
            continue
        asked += len(encode_value(value))
        if isinstance(each, _Selector | _Predicate):
            asked += SEARCH_BYTES * each.searches
        if isinstance(each, _Selector) and each.needs is not None:
            free = FREE_BYTES
    return max(0, asked - free)


def octets_of(applied: Mapping[str, Any]) -> int:
    """What these filters take in memory, at most, with what is made of them."""
    if not applied:
        return 0
    parts = 0
    for value in applied.values():
        inner = value.value if isinstance(value, Described) else value
        parts += len(_PART.findall(inner)) if isinstance(inner, str) else _parts(inner)
    return OF_OCTET * len(encode_value(applied)) + OF_PART * parts


def _parts(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + sum(_parts(key) + _parts(each) for key, each in value.items())
    if isinstance(value, Described):
        return 1 + _parts(value.descriptor) + _parts(value.value)
    if isinstance(value, Array):
        return 1 + sum(map(_parts, value.values))
    return 1 + sum(map(_parts, value)) if isinstance(value, list) else 1


def publisher_of(glance: Glance) -> tuple[str, str] | None:
    """Container-id and link name of the message's publisher, as its router has noted them (protocol 6.1)."""
    return names.publisher_named(glance.annotation(names.PUBLISHER_ANNOTATION))


def _malformed(key: object, text: str) -> RemoteProtocolError:
    return RemoteProtocolError(INVALID_FIELD, f"attach.source.filter: {key!s:.60}: {text}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a string, not {value!r:.60}")
    return str(value)


def _selector(value: Any, container: str) -> Wants:
    from router.links.selector import compile_selector  # lark, 50 ms of every start, and most routers see no selector

    return _Selector(*compile_selector(_text(value)))


class _Selector:
    """Whether a selector selects a message. `needs`: what the message must have for that, where it is one value."""

    __slots__ = ("_evaluate", "needs", "searches")

    def __init__(
        self, evaluate: Callable[[Callable[[str], Any]], Any], needs: tuple[str, Any] | None, searches: int
    ) -> None:
        self._evaluate = evaluate
        self.searches = searches
        self.needs = None if needs is None else Needs(needs[0], _place(needs[1]))

    def __call__(self, glance: Glance) -> bool:
        return self._evaluate(lambda name: _looked_up(glance, name)) is True


def _looked_up(glance: Glance, name: str) -> Any:
    found = glance.application_properties.get(name)
    return _header_of(glance, name) if found is None else found


def _place(value: Any) -> str | bytes:
    """Of a value, equal for those that a selector's `=` finds equal; what it finds equal to nothing is an empty one."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return place_of(value) if isinstance(value, str | int | float) else b""


def _predicate(value: Any, container: str) -> Wants:
    from router.links.predicate import Predicate  # as for selectors

    predicate = Predicate(_text(value))
    return _Predicate(predicate.matches, predicate.searches)


class _Predicate:
    """A predicate of the metadata edge, on application properties: a null one is one that is not there."""

    __slots__ = ("_matches", "searches")

    def __init__(self, matches: Callable[[Mapping[str, Any]], bool], searches: int) -> None:
        self._matches = matches
        self.searches = searches

    def __call__(self, glance: Glance) -> bool:
        return self._matches({key: each for key, each in glance.application_properties.items() if each is not None})


def _header_of(glance: Glance, name: str) -> Any:
    """A value that is no application property: one of JMS's headers, or `amqp.` with the name of a field."""
    if name == "JMSPriority":
        return glance.header.priority
    if name == "JMSDeliveryMode":
        return "PERSISTENT" if glance.header.durable else "NON_PERSISTENT"
    field = _JMS.get(name) or (_FIELDS.get(name[5:].replace("_", "-")) if name.startswith("amqp.") else None)
    return getattr(glance.properties, field) if field else None


def _no_local(value: Any, container: str) -> Wants:
    def wants(glance: Glance) -> bool:
        publisher = publisher_of(glance)
        return publisher is None or publisher[0] != container

    return wants


def _subject(value: Any, container: str) -> Wants:
    wanted = _text(value)
    return lambda glance: glance.properties.subject == wanted


def _topic(value: Any, container: str) -> Wants:
    """Words between dots; `*` is one word, `#` any number of them."""
    pattern = _text(value)
    if "*" not in pattern and "#" not in pattern:
        return _subject(value, container)
    words = pattern.split(".")

    def wants(glance: Glance) -> bool:
        subject = glance.properties.subject
        if subject is None:
            return False
        count = subject.count(".") + 1
        if count > MOST_WORDS:
            raise TooDear(
                f"a subject of {count} words with a pattern of words, {pattern!r:.60}: at most {MOST_WORDS}", False
            )
        return matches_words(words, places_of(subject), count)

    return wants


@lru_cache(maxsize=8)
def places_of(subject: str) -> Mapping[str, int]:
    """The words of a subject, each with its places: a bit for each of them."""
    places: dict[str, int] = {}
    for i, word in enumerate(subject.split(".")):
        places[word] = places.get(word, 0) | 1 << i
    return places


def matches_words(pattern: Sequence[str], places: Mapping[str, int], count: int) -> bool:
    """Says whether a pattern of words matches a subject of `count` words."""
    all_of_them = (1 << count + 1) - 1
    reached = 1  # bit i: the pattern so far may have taken i words
    for word in pattern:
        if word == "#":
            reached = all_of_them & -(reached & -reached)  # the lowest one, and all above it
        else:
            reached = (reached if word == "*" else reached & places.get(word, 0)) << 1 & all_of_them
        if not reached:
            return False
    return bool(reached >> count)


def _properties(value: Any, container: str) -> Wants:
    tests = []
    for key, wanted in _entries(value):
        field = _FIELDS.get(key)
        if field is None:
            raise ValueError(f"{key!r:.60} is no field of the properties section")
        tests.append((field, _equal_to(wanted)))
    return lambda glance: all(test(getattr(glance.properties, field)) for field, test in tests)


def _application_properties(value: Any, container: str) -> Wants:
    tests = [(key, _equal_to(wanted)) for key, wanted in _entries(value)]
    return lambda glance: all(test(glance.application_properties.get(key)) for key, test in tests)


def _entries(value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"must be a map with names as keys, not {value!r:.60}")
    return [(str(key), wanted) for key, wanted in value.items()]


def _equal_to(wanted: Any) -> Callable[[Any], bool]:
    """AMQP filter expressions 4.2.1: null matches nothing to compare with; `&p:` begins a prefix, `&s:` a suffix."""
    if isinstance(wanted, str) and wanted.startswith("&"):
        rest = str(wanted[3:])
        if wanted.startswith("&p:"):
            return lambda value: isinstance(value, str) and value.startswith(rest)
        if wanted.startswith("&s:"):
            return lambda value: isinstance(value, str) and value.endswith(rest)
        if not wanted.startswith("&&"):
            raise ValueError(f"{wanted!r:.60}: '&' begins '&p:', '&s:' or '&&'")
        wanted = wanted[1:]
    if isinstance(wanted, Mapping | list | float) and wanted != wanted:
        return lambda value: False
    is_flag = isinstance(wanted, bool)
    return lambda value: value == wanted and isinstance(value, bool) is is_flag


def _partition(value: Any, container: str) -> Wants:
    """[index, count]: of count links with different indexes each message goes to exactly one, by a hash."""
    if not isinstance(value, list) or len(value) != 2 or any(isinstance(each, bool) for each in value):
        raise ValueError(f"must be a list of index and count, not {value!r:.60}")
    index, total = value
    if not isinstance(index, int) or not isinstance(total, int):
        raise ValueError(f"must be a list of two integers, index and count, not {value!r:.60}")
    if not 0 <= index < total <= MOST_PARTITIONS:
        raise ValueError(f"index must be below count, and count at most {MOST_PARTITIONS}, not {value!r:.60}")
    return _Partition(index, total)


class _Partition:
    """Whether a message is in one of so many partitions, which its sections before the application properties say."""

    __slots__ = ("index", "total")

    def __init__(self, index: int, total: int) -> None:
        self.index = index
        self.total = total

    def __call__(self, glance: Glance) -> bool:
        return partition_of(glance, self.total) == self.index


# The descriptor of the next section, in its usual three octets
_BEHIND_THE_HEAD: Final = frozenset(bytes((0, 0x53, code)) for code in range(APPLICATION_PROPERTIES, FOOTER + 1))
_BODIES: Final = _BEHIND_THE_HEAD - {bytes((0, 0x53, APPLICATION_PROPERTIES))}


def partition_of(glance: Glance, total: int) -> int:
    """The partition of a message: by `x-opt-partition-key`, else by its group-id, else by its publisher."""
    try:
        head = glance.head()
    except DecodeError:  # behind the key, which may be there all the same
        return _key_hash(glance) % total
    return (_head_hash(head) if len(head) <= REMEMBERED else _key_hash(glance)) % total


@lru_cache(maxsize=8192)
def _head_hash(head: bytes) -> int:
    """Every partition's link asks for every message, and the messages of a publisher often begin alike."""
    return _key_hash(Glance(head))


def _key_hash(glance: Glance) -> int:
    key = glance.annotation("x-opt-partition-key")
    if key is None:
        key = glance.properties.group_id
    if key is None:
        publisher = publisher_of(glance)
        key = "" if publisher is None else "\x00".join(publisher)
    data = bytes(key) if isinstance(key, bytes) else str(key).encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def _known() -> dict[int | str, Callable[[Any, str], Wants]]:
    found: dict[int | str, Callable[[Any, str], Wants]] = {}
    for code, name, make in (
        (0x0000468C00000000, "apache.org:legacy-amqp-direct-binding:string", _subject),
        (0x0000468C00000001, "apache.org:legacy-amqp-topic-binding:string", _topic),
        (0x0000468C00000003, "apache.org:no-local-filter:list", _no_local),
        (0x0000468C00000004, "apache.org:selector-filter:string", _selector),
        (0x0000000000000173, "amqp:properties-filter", _properties),
        (0x0000000000000174, "amqp:application-properties-filter", _application_properties),
    ):
        found[code] = found[name] = make
    found[names.PARTITION] = _partition
    found[names.PREDICATE] = _predicate
    return found


KNOWN_FILTERS: Final = _known()
