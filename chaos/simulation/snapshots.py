"""Numbers for situations: two are the same exactly if their snapshots are.

A snapshot is the pickled graph of the live objects of one process: a router with its connections, or a client. What a
situation leads on to is found out from its snapshot, so that equal numbers behave alike by construction: nothing is
abstracted that could come back. What `WITHOUT` names is put at its initial value in every snapshot: counts of what has
happened by which nothing decides, estimates of memory that are thousands of names away from deciding anything, and the
shapes of frames that an engine has learnt to read faster, to the same effect.

Pickle writes the second mention of an object as a reference, so two equal strings differ from one that is mentioned
twice. To compare, equal text, octets, and tuples of these, are made one object first (`Canonical`); that takes thrice
as long, and is left out where the octets themselves have been seen before.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import zlib
from collections.abc import Callable
from hashlib import blake2b
from types import MethodType
from typing import Any

from amqp10.connection import ConnectionState
from amqp10.handshake import Phase as HandshakePhase
from amqp10.link import LinkState
from amqp10.reading import Reader
from amqp10.session import SessionState
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol
from router.client_connection import ClientConnection
from router.config import AddressConfig, RouterConfig
from router.irregular import State as ResumeState
from router.limits import Limits
from router.memory import Bookkeeping
from router.messages import JoinKind
from router.negotiation import Modes
from router.ports import Outcome
from router.publisher import Phase as PublisherPhase

WITHOUT: dict[type, dict[str, Callable[[], Any]]] = {
    ClientConnection: {"writes": int},
    Bookkeeping: {"_counted": int, "_since": int},
    Reader: {"frames": int, "_shapes": dict, "_dispositions": dict},
}
ATOMS = frozenset((str, bytes, int, Symbol))
NEVER_CHANGE = frozenset((
    RouterConfig, AddressConfig, Limits, ConnectionSettings, Modes, Outcome, PublisherPhase, JoinKind, ResumeState,
    LinkState, SessionState, ConnectionState, HandshakePhase,
))  # fmt: skip
SHARED: list[Any] = []  # values of these: pointed at, not copied
MADE_ONE = NEVER_CHANGE | {Symbol, tuple}
BY_ID: dict[int, int] = {}  # of those in SHARED
CODES: dict[tuple[str, str], int] = {}  # module and class -> its number
FIRST_CODE = 0x8000  # beyond any that somebody may have registered


def shared(place: int) -> Any:
    return SHARED[place]


def _point_at(value: Any) -> Any:
    place = BY_ID.get(id(value))
    if place is None:
        alike = (i for i, each in enumerate(SHARED) if type(each) is type(value) and each == value)
        place = next(alike, len(SHARED))
        if place == len(SHARED):
            SHARED.append(value)
            BY_ID[id(value)] = place
    return shared, (place,)


def name_classes() -> None:
    """Classes of the code go by numbers, not by names, which are looked up each time."""
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in ("amqp10", "router"):
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == name:
                    code = CODES.setdefault((name, value.__qualname__), FIRST_CODE + len(CODES))
                    copyreg.add_extension(name, value.__qualname__, code)


def _without(value: Any) -> Any:
    make, arguments, (state, slots), *rest = value.__reduce_ex__(5)
    initial = {name: first() for name, first in WITHOUT[type(value)].items()}
    return (make, arguments, (state, {**slots, **initial}), *rest)


def _method(method: Any) -> Any:
    """By the name under which its class has it: a deliberate defect is a function with a name of its own."""
    owner, name, body = method.__self__, method.__name__, method.__func__
    if getattr(type(owner), name, None) is not body:
        name = next(each for cls in type(owner).__mro__ for each, value in vars(cls).items() if value is body)
    return (getattr, (owner, name))


TABLE = {
    MethodType: _method,
    **copyreg.dispatch_table,
    **dict.fromkeys(NEVER_CHANGE, _point_at),
    **dict.fromkeys(WITHOUT, _without),
}


class Plain(pickle.Pickler):
    dispatch_table = TABLE


class Canonical(pickle.Pickler):
    dispatch_table = TABLE

    def __init__(self, file: io.BytesIO) -> None:
        one: dict[Any, Any] = {}
        the_first = one.setdefault

        def persistent_id(obj: Any) -> Any:  # asked of every object there is, thousands for a router
            kind = type(obj)
            if kind is str or kind is bytes:
                return the_first(obj, obj)
            if kind not in MADE_ONE:
                return None
            if kind is Symbol or (kind is tuple and obj and ATOMS.issuperset(map(type, obj))):
                return the_first((kind, tuple(map(type, obj)), obj), obj)
            return None if kind is tuple else _point_at(obj)[1]

        self.persistent_id = persistent_id  # type: ignore[method-assign]
        super().__init__(file, 5)


class Snapshots:
    def __init__(self) -> None:
        name_classes()
        self.names: dict[bytes, int] = {}  # what octets are called, as they are and canonical -> number
        self.packed: list[bytes] = []
        self.alike = b""  # the first snapshot: the others are packed by how they differ

    def number(self, root: Any) -> int:
        file = io.BytesIO()
        Plain(file, 5).dump(root)
        data = file.getvalue()
        plain = blake2b(data, digest_size=16).digest()
        number = self.names.get(plain)
        if number is None:
            file = io.BytesIO()
            Canonical(file).dump(root)
            name = blake2b(file.getvalue(), digest_size=16).digest()
            number = self.names.get(name)
            if number is None:
                number = self.names[name] = self._keep(data)
            self.names[plain] = number
        return number

    def _keep(self, data: bytes) -> int:
        if not self.packed:
            self.alike = data[-32768:]
        packer = zlib.compressobj(1, zdict=self.alike)
        self.packed.append(packer.compress(data) + packer.flush())
        return len(self.packed) - 1

    def load(self, number: int) -> Any:
        data = zlib.decompressobj(zdict=self.alike).decompress(self.packed[number])
        return pickle.loads(data)  # what `number` has written

    def __len__(self) -> int:
        return len(self.packed)
