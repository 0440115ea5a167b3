"""Numbers for the states of processes: two are the same exactly if their snapshots are.

A snapshot is the pickled graph of the live objects of one process: a router with its connections, or a client. What
follows from a state is computed from its snapshot, so equal numbers behave alike by construction: nothing is abstracted
that could matter again, but for what `normalization.py` lists, which nothing will ever read.

Pickle writes the second mention of an object as a reference, so an object that is mentioned twice differs from two
equal ones; which of them are one object depends on caches, and on what the program has done before. For the
comparison equal values are made one object first (a value cannot change, and refers only to values), and sets are
sorted (`Canonical`). That takes longer, and is skipped where the bytes themselves have been seen before.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import zlib
from collections.abc import Callable
from hashlib import blake2b
from operator import attrgetter
from types import MethodType
from typing import Any

from amqp10.handshake import Phase as HandshakePhase
from amqp10.link import LinkState
from amqp10.session import SessionState
from amqp10.settings import ConnectionSettings
from amqp10.states import ConnectionState
from chaos.simulation.exhaustive.normalization import AS_IF
from router.config import AddressConfig, Limits, RouterConfig
from router.core.irregular import State as ResumeState
from router.core.messages import JoinKind
from router.core.ports import Outcome
from router.core.publisher_handshake import State as PublisherState
from router.core.publisher_handshake import Vouched
from router.core.subscriber_handshake import State as SubscriberState
from router.links.negotiation import Modes

BY_VALUE = frozenset((int, bool, float, type(None)))  # pickle writes these out each time
A_THING, WHOLE, BY_PARTS, SORTED, POINTED_AT = "a thing", "whole", "by parts", "sorted", "pointed at"
NEVER_CHANGE = frozenset((
    RouterConfig, AddressConfig, Limits, ConnectionSettings, Modes, Outcome, PublisherState, SubscriberState, Vouched,
    JoinKind, ResumeState, LinkState, SessionState, ConnectionState, HandshakePhase,
))  # fmt: skip
VALUES = (tuple, int, str, bytes)
SHARED: list[Any] = []  # values of these: pointed at, not copied
BY_ID: dict[int, int] = {}  # of those in SHARED
SHAPES: dict[type, tuple[int, dict[str, int], Callable[[Any], tuple[Any, ...]] | None]] = {}
"""Of classes with slots: their code, the places of their fields, and what gets all fields of an object; of those with a
`__dict__` the code only."""
KEYS: dict[tuple[str, ...], int] = {}  # of a `__dict__`
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


def _settings(value: ConnectionSettings) -> Any:
    """Before the end of SASL they ask their router, which is not the same in two snapshots."""
    return _point_at(value) if value.per_user is None else value.__reduce_ex__(5)


def name_classes() -> None:
    """Classes of the code go by numbers, not by names, which are looked up each time."""
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in ("amqp10", "router"):
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == name:
                    code = CODES.setdefault((name, value.__qualname__), FIRST_CODE + len(CODES))
                    copyreg.add_extension(name, value.__qualname__, code)
                    if value not in TO_COMPARE or value in AS_IF:
                        _shape(code, value)
    TO_COMPARE.update(dict.fromkeys(SHAPES, _compact))


def _as_if(value: Any) -> Any:
    make, arguments, state, *rest = value.__reduce_ex__(5)
    new = AS_IF[type(value)](value)
    if isinstance(state, tuple):
        state = (state[0], {**state[1], **new})
    else:
        state = {**state, **new}
    return (make, arguments, state, *rest)


def _method(method: Any) -> Any:
    """By the name under which its class has it: a deliberate defect is a function with a name of its own."""
    owner, name, body = method.__self__, method.__name__, method.__func__
    if getattr(type(owner), name, None) is not body:
        name = next(each for cls in type(owner).__mro__ for each, value in vars(cls).items() if value is body)
    return (getattr, (owner, name))


TABLE: dict[type, Callable[[Any], Any]] = {
    MethodType: _method,
    **copyreg.dispatch_table,
    **dict.fromkeys(NEVER_CHANGE, _point_at),
    ConnectionSettings: _settings,
    **dict.fromkeys(AS_IF, _as_if),
}


TO_COMPARE = {**TABLE}


class Plain(pickle.Pickler):
    dispatch_table = TABLE


class Dealt(dict[type, str]):
    """How values of a class are dealt with where they are compared."""

    def __missing__(self, kind: type) -> str:
        parameters = getattr(kind, "__dataclass_params__", None)
        if kind in NEVER_CHANGE:
            how = POINTED_AT
        elif issubclass(kind, (set, frozenset)):
            how = SORTED
        elif issubclass(kind, tuple) or (parameters is not None and parameters.frozen):
            how = BY_PARTS
        elif issubclass(kind, (str, bytes)) or (issubclass(kind, int) and kind not in BY_VALUE):
            how = WHOLE
        else:
            how = A_THING
        self[kind] = how
        return how


DEALT = Dealt()


def _compact(value: Any) -> Any:
    """As pickle would, but for the names of its fields: to be compared, never to be loaded."""
    kind = type(value)
    code, names, get = SHAPES[kind]
    new = AS_IF[kind](value) if kind in AS_IF else None
    if get is not None:
        try:
            state: list[Any] = [*get(value)]
        except AttributeError:  # one is not set
            return _as_if(value) if new is not None else value.__reduce_ex__(5)
        if new:
            for name, instead in new.items():
                state[names[name]] = instead
        return _compact, (code,), state
    fields = {**vars(value), **new} if new else vars(value)
    return _compact, (code, KEYS.setdefault(tuple(fields), len(KEYS))), [*fields.values()]


def _shape(code: int, kind: Any) -> None:
    """How instances of this class are compared, if they are plain objects."""
    plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__getstate__ is object.__getstate__
    if not plain or issubclass(kind, (*VALUES, dict, list, BaseException)) or kind in NEVER_CHANGE:
        return
    slots = [name for cls in reversed(kind.__mro__) for name in vars(cls).get("__slots__", ())]
    if kind.__dictoffset__ and not slots:
        SHAPES[kind] = code, {}, None
    elif not kind.__dictoffset__ and len(slots) > 1:
        SHAPES[kind] = code, {name: place for place, name in enumerate(slots)}, attrgetter(*slots)


def fields_of(value: Any) -> list[Any]:
    return [getattr(value, name) for name in value.__dataclass_fields__]


class Canonical(pickle.Pickler):
    dispatch_table = TO_COMPARE

    def __init__(self, file: io.BytesIO) -> None:
        one: dict[Any, Any] = {}
        the_first = one.setdefault
        sets: dict[int, Any] = {}

        def only(value: Any, kind: type, how: str) -> Any:
            """The first that is equal to this value, of its class; anything but a value is itself."""
            if how is WHOLE:
                return the_first((kind, value), value)
            if how is not BY_PARTS and kind is not frozenset:
                return value
            fixed = value if how is not BY_PARTS or isinstance(value, tuple) else fields_of(value)
            key: list[Any] = []
            for part in fixed:
                of = type(part)
                key.append((of, part) if of in BY_VALUE else id(only(part, of, DEALT[of])))
            return the_first((kind, frozenset(key) if kind is frozenset else tuple(key)), value)

        def persistent_id(obj: Any) -> Any:  # asked of every object there is, thousands for a router
            kind = type(obj)
            how = DEALT[kind]
            if how is A_THING:
                return None
            if how is POINTED_AT:
                return None if getattr(obj, "per_user", None) else _point_at(obj)[1]
            if how is SORTED:
                which = sets.setdefault(id(obj), (len(sets), obj))[0] if kind is set else -1
                return kind, which, sorted(obj, key=repr)
            if how is BY_PARTS and kind is tuple and obj and type(obj[-1]) is dict:
                return None  # the state of an object, put together just now
            return only(obj, kind, how)

        self.persistent_id = persistent_id  # type: ignore[method-assign]
        super().__init__(file, 5)


class Snapshots:
    def __init__(self) -> None:
        name_classes()
        self.names: dict[bytes, int] = {}  # what bytes are called, as they are and canonical -> number
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
