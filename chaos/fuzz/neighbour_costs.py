"""Cost cases of what neighbours send: every message between routers, and every packet of a trunk.

They are made from their declarations: the classes that `router.peers.wire` and `interrouter.packets` read, and the
types of their fields. In each field that holds several values grows their number. Neighbours are no strangers: what one
message brings is as much as their own clients have caused, so a turn has no bound here, and that cost is linear is
looked at.
"""

# mypy: disable-error-code="misc"
# (as in costs.py)

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import product
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from amqp10.sections import Message, Properties
from chaos.fuzz.cost import Case, Turn
from chaos.fuzz.costs import NOW, UNBOUNDED
from interrouter import packets
from router.config import AddressConfig, Life, RouterConfig
from router.core.messages import Hello, KeptItem, PeerProtocolError
from router.core.messages import Message as RouterMessage
from router.core.ports import MapState
from router.peers.wire import decode, encode
from router.router import Router

PUBLISHER: Final = b"somebody"
QUESTION: Final = Message(properties=Properties(reply_to="x")).encode()
LISTS: Final = (list, tuple)
KINDS: Final[tuple[Literal["topic", "queue"], ...]] = ("topic", "queue")


def made(hint: Any, n: int, number: int = 0) -> Any:
    """A value of this type: its lists have n entries, or one where n is 0. number: makes it differ from others."""
    if hint in _PLAIN:
        return _PLAIN[hint](number)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return made(next(each for each in arguments if each is not NoneType), n, number)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(made(each, n, 8 * number + place) for place, each in enumerate(arguments))
    if origin in LISTS:
        return origin(made(arguments[0], 0, i) for i in range(max(n, 1)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return hint(**{name: _part(name, each, n, number) for name, each in parts_of(hint).items()})


def _part(name: str, hint: Any, n: int, number: int) -> Any:
    if name == "publisher":  # it has eight bytes
        return PUBLISHER[:4] + number.to_bytes(4, "big")
    if name in ("request", "answer"):
        return QUESTION
    return [] if name == "owed" else made(hint, n, number)  # tokens are of the entries that they are within


def _tag(number: int) -> bytes:
    return PUBLISHER if not number else PUBLISHER + (1).to_bytes(8, "big") + b"%d" % number


_PLAIN: Final[dict[Any, Callable[[int], Any]]] = {
    bool: lambda number: False,
    int: lambda number: number + 1,
    float: lambda number: 1.0,
    str: lambda number: f"x{number}",
    bytes: _tag,
    KeptItem: lambda number: (_tag(number), int(MapState.ACCEPTED), number & 0xFFFF),
}


def parts_of(cls: Any) -> dict[str, Any]:
    """What it is made of: names and types."""
    hints = get_type_hints(cls if issubclass(cls, tuple) else cls.__init__)
    return {name: hints[name] for name in inspect.signature(cls).parameters}


def holds_several(hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(holds_several(each) for each in arguments)
    return origin is list or (origin is tuple and arguments[-1] is Ellipsis)


def neighbour(kind: Literal["topic", "queue"]) -> Router:
    """A router in session with b, which has said one of everything. kind: of the address that it has said it of."""
    addresses = (AddressConfig("*", type=kind),)
    a, b = [Router(RouterConfig(name, ("a", "b"), addresses), Life(1, NOW, True), wall_us=_wall_us) for name in "ab"]
    a.peer_up("b", NOW)
    b.peer_up("a", NOW)
    moved = True
    while moved:
        moved = False
        for source, target in ((a, b), (b, a)):
            source.flush(NOW)
            for _, data in source.take_messages():
                target.peer_message(source.config.name, data, NOW)
                moved = True
    for cls in get_args(RouterMessage):
        if cls is not Hello:
            hears(a, encode(made(cls, 0)))
    return a


def _wall_us() -> int:
    return int(NOW * 1e6)


def hears(router: Router, data: bytes) -> bool:
    """False: this is no message of such an address, or of this state."""
    try:
        router.peer_message("b", data, NOW)
    except PeerProtocolError:
        return False
    router.flush(NOW)
    router.take_messages()
    return True


def of_messages() -> Iterator[Case]:
    for cls, kind in product(get_args(RouterMessage), KINDS):
        parts = parts_of(cls)
        several = [name for name, hint in parts.items() if holds_several(hint)]
        for name in several or ["whole"]:

            def prepare(
                n: int, cls: Any = cls, kind: Any = kind, parts: dict[str, Any] = parts, name: str = name
            ) -> Iterable[Turn]:
                # tags and payloads are as many as each other
                together = {"tags", "payloads"} if name in ("tags", "payloads") else {name}
                values = {each: _part(each, hint, n if each in together else 0, 0) for each, hint in parts.items()}
                data = encode(cls(**values))
                router = neighbour(kind)
                return [lambda: decode(data), lambda: hears(router, data)]

            yield Case(f"neighbour/{kind}/{cls.__name__.lower()}/{name}", prepare, 24, 1 << 15, UNBOUNDED)


def of_packets() -> Iterator[Case]:
    """Packets whose numbers of entries a neighbour chooses."""

    def link_state(n: int) -> Iterable[Turn]:
        state = packets.LinkStatePacket(**{k: made(h, n) for k, h in parts_of(packets.LinkStatePacket).items()})
        data = packets.encode_link_state(state)

        def turn() -> None:
            try:
                packets.decode_link_state(data, 4, len(data))
            except packets.PacketError:
                return

        return [turn]

    def stream(kind: int, entries: int, messages: int) -> Iterable[Turn]:
        entry = [(i + 1, 1, 1, 1, 1, 1, 0) for i in range(entries)]
        data = b"".join(packets.encode_stream(kind, entry, [1] * messages, [b"x"] * messages))

        def turn() -> None:
            for start, end in packets.split(data):
                _, body = packets.destinations(data, start, end)
                packets.branch(data, start, end, body, range(entries))
                packets.decode_body(data, body, end)

        return [turn]

    yield Case("packet/link-state", link_state, 20, packets.MAX_LINKS, UNBOUNDED)
    yield Case("packet/row", lambda n: [lambda: packets.split(packets.HEARTBEAT_PACKET * n)], 5)
    for name, kind in (("stream", packets.STREAM), ("ack", packets.ACK)):
        yield Case(f"packet/{name}/entries", lambda n, kind=kind: stream(kind, n, 1), 40, 1 << 15, UNBOUNDED)
        yield Case(f"packet/{name}/messages", lambda n, kind=kind: stream(kind, 1, n), 5, 1 << 15, UNBOUNDED)


MAKERS: Final = (of_messages, of_packets)
