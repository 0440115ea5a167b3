"""Packets of every type for hypothesis: all that a peer may say in each version."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mqtt import kinds, packets
from mqtt.decoder import DISCONNECT_REASONS, REASONS_OF
from mqtt.errors import RETURN_CODES, Reason
from mqtt.properties import BINARY, BYTE, FOUR, NO_PROPERTIES, PAIR, TABLE, TEXT, TWO, Properties, Property

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=12)
LEVELS = st.sampled_from(["", "a", "b", "$SYS", "+", "\U0001f600"])
FILTERS = st.one_of(
    st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool),
    st.lists(LEVELS, max_size=3).map(lambda levels: "/".join([*levels, "#"])),
)
OCTETS = st.binary(max_size=40)
IDS = st.integers(1, 65_535)
QOS = st.integers(0, 2)


def value(row: Property) -> st.SearchStrategy[Any]:
    if row.form == PAIR:
        return st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)
    if row.field == "response_topic":
        return st.none() | NAMES
    if row.form == TEXT:
        return st.none() | TEXTS
    if row.form == BINARY:
        return st.none() | OCTETS
    high = min(row.high, {BYTE: 0xFF, TWO: 0xFFFF, FOUR: 0xFFFFFFFF}.get(row.form, 268_435_455))
    return st.none() | st.integers(row.low, high)


def properties(version: int, kind: int, **given: Any) -> st.SearchStrategy[Properties]:
    """Properties that the packet may have; `given` replaces the strategy of a field."""
    if version == 4:
        return st.just(NO_PROPERTIES)
    rows = {row.field: value(row) for row in TABLE if kind in row.packets and row.field != "subscription_ids"}
    made: st.SearchStrategy[Properties] = st.fixed_dictionaries(rows | given).map(lambda fields: Properties(**fields))
    return st.just(NO_PROPERTIES) | made.map(with_method)


def with_method(found: Properties) -> Properties:
    if found.authentication_data is not None and found.authentication_method is None:
        return found._replace(authentication_method="m")
    return found


def wills(version: int) -> st.SearchStrategy[packets.Will]:
    return st.builds(packets.Will, NAMES, OCTETS, QOS, st.booleans(), properties(version, kinds.WILL))


@st.composite
def connects(draw: st.DrawFn, version: int) -> packets.Connect:
    username = draw(st.none() | TEXTS)
    password = draw(st.none() | OCTETS) if version == 5 or username is not None else None
    will = draw(st.none() | wills(version))
    found = draw(properties(version, kinds.CONNECT))
    is_bridge = version == 4 and draw(st.booleans())
    clean_start, keep_alive_s = draw(st.booleans()), draw(st.integers(0, 65_535))
    return packets.Connect(draw(TEXTS), version, clean_start, keep_alive_s, username, password, will, found, is_bridge)


@st.composite
def publishes(draw: st.DrawFn, version: int, from_client: bool) -> packets.Publish:
    ids = st.just(()) if from_client else st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple)
    found = draw(properties(version, kinds.PUBLISH, subscription_ids=ids))
    topic = draw(NAMES | st.just("")) if found.topic_alias is not None else draw(NAMES)
    qos = draw(QOS)
    dup, packet_id = (draw(st.booleans()), draw(IDS)) if qos else (False, 0)
    return packets.Publish(topic, draw(OCTETS), qos, draw(st.booleans()), dup, packet_id, found)


def acknowledgements(version: int) -> st.SearchStrategy[packets.Packet]:
    return st.one_of(
        [
            st.builds(made, IDS, reasons(version, kind), properties(version, kind))
            for kind, made in (
                (kinds.PUBACK, packets.Puback),
                (kinds.PUBREC, packets.Pubrec),
                (kinds.PUBREL, packets.Pubrel),
                (kinds.PUBCOMP, packets.Pubcomp),
            )
        ]
    )


def reasons(version: int, kind: int) -> st.SearchStrategy[Reason]:
    return st.just(Reason.SUCCESS) if version == 4 else st.sampled_from([*REASONS_OF[kind].values()])


def from_client(version: int) -> st.SearchStrategy[packets.Packet]:
    """What a client may send after CONNECT."""
    options = (
        st.builds(packets.Subscription, FILTERS, QOS)
        if version == 4
        else st.builds(packets.Subscription, FILTERS, QOS, st.booleans(), st.booleans(), QOS)
    )
    number = st.just(()) | st.tuples(st.integers(1, 268_435_455))
    found = [
        publishes(version, True),
        acknowledgements(version),
        st.builds(
            packets.Subscribe,
            IDS,
            st.lists(options, min_size=1, max_size=3),
            properties(version, kinds.SUBSCRIBE, subscription_ids=number),
        ),
        st.builds(
            packets.Unsubscribe, IDS, st.lists(FILTERS, min_size=1, max_size=3), properties(version, kinds.UNSUBSCRIBE)
        ),
        st.just(packets.Pingreq()),
        st.just(packets.Disconnect()) if version == 4 else disconnects(True, server_reference=st.none()),
    ]
    return st.one_of(found if version == 4 else [*found, auths()])


def from_server(version: int) -> st.SearchStrategy[packets.Packet]:
    """What a server may send."""
    if version == 4:
        connacks = st.sampled_from([*RETURN_CODES]).map(lambda reason: packets.Connack(False, reason))
        subacks = st.builds(
            packets.Suback, IDS, st.lists(st.sampled_from([Reason(code) for code in (0, 1, 2, 128)]), min_size=1)
        )
        return st.one_of(
            connacks, publishes(4, False), acknowledgements(4), subacks, st.just(packets.Pingresp()),
            st.builds(packets.Unsuback, IDS, st.just([])),
        )  # fmt: skip
    return st.one_of(
        st.builds(packets.Connack, st.just(False), reasons(5, kinds.CONNACK), properties(5, kinds.CONNACK)),
        st.builds(packets.Connack, st.just(True), st.just(Reason.SUCCESS), properties(5, kinds.CONNACK)),
        publishes(5, False),
        acknowledgements(5),
        *(
            st.builds(made, IDS, st.lists(reasons(5, kind), min_size=1, max_size=4), properties(5, kind))
            for kind, made in ((kinds.SUBACK, packets.Suback), (kinds.UNSUBACK, packets.Unsuback))
        ),
        st.just(packets.Pingresp()),
        disconnects(False, session_expiry_s=st.none()),
        auths(),
    )


def disconnects(client: bool, **given: Any) -> st.SearchStrategy[packets.Disconnect]:
    return st.builds(
        packets.Disconnect,
        st.sampled_from([*DISCONNECT_REASONS[client].values()]),
        properties(5, kinds.DISCONNECT, **given),
    )


def auths() -> st.SearchStrategy[packets.Auth]:
    found = properties(5, kinds.AUTH, authentication_method=TEXTS).filter(lambda p: p.authentication_method is not None)
    return st.builds(packets.Auth, reasons(5, kinds.AUTH), found)
