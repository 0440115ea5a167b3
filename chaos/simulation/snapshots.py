"""Numbers for situations: two are the same exactly if their snapshots are.

A snapshot is the pickled graph of the live objects of one process: a router with its connections, or a client. What a
situation leads on to is found out from its snapshot, so that equal numbers behave alike by construction: nothing is
abstracted that could come back. What nothing will ask for any more is put at its initial value in every snapshot:

- `WITHOUT`: counts of what has happened by which nothing decides, estimates of memory and of the sizes of frames that
  are thousands of names and transfers away from deciding anything, and the shapes of frames that an engine has learnt
  to read faster, to the same effect;
- of the attaches of a link that is attached (`_link`) the maps, properties and termini: they are read when an attach
  is answered or the answer has come, and the answer to an attach ends that;
- of a proof that is not open (`_proof`) what it was opened with: opening it sets all of that anew.

Pickle writes the second mention of an object as a reference, so two equal strings differ from one that is mentioned
twice: which of them are one object is a matter of caches, and of what the program has done before. To compare, equal
values are made one object first, values being what cannot change and holds nothing that can but by reference, and
sets are put in order (`Canonical`). That takes thrice as long, and is left out where the octets themselves have been
seen before.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from amqp10.connection import ConnectionState
from amqp10.handshake import Phase as HandshakePhase
from amqp10.link import Link, LinkState
from amqp10.reading import Reader
from amqp10.receiver import ReceiverLink
from amqp10.sender import SenderLink
from amqp10.session import SessionState
from amqp10.settings import ConnectionSettings
from router.client_connection import ClientConnection
from router.config import AddressConfig, RouterConfig
from router.irregular import State as ResumeState
from router.limits import Limits
from router.memory import Bookkeeping
from router.messages import JoinKind
from router.negotiation import Modes
from router.ports import Outcome
from router.proof import Proof
from router.publisher import Phase as PublisherPhase
from router.subscriber_link import MOST_AT_ONCE, PORTION, SubscriberLink

WITHOUT: dict[type, dict[str, Callable[[], Any]]] = {
    ClientConnection: {"writes": int},
    Bookkeeping: {"_counted": int, "_since": int},
    Reader: {"frames": int, "_shapes": dict, "_dispositions": dict},
    SubscriberLink: {"_size": lambda: PORTION // MOST_AT_ONCE, "_write": int, "_allowance": lambda: MOST_AT_ONCE},
}
BY_VALUE = frozenset((int, bool, float, type(None)))  # pickle writes these out each time
THINGS = frozenset((dict, list, bytearray, deque, MethodType, FunctionType, BuiltinFunctionType, type)) | BY_VALUE
NEVER_CHANGE = frozenset((
    RouterConfig, AddressConfig, Limits, ConnectionSettings, Modes, Outcome, PublisherPhase, JoinKind, ResumeState,
    LinkState, SessionState, ConnectionState, HandshakePhase,
))  # fmt: skip
VALUES = (tuple, int, str, bytes)
FROZEN: dict[type, tuple[str, ...] | None] = {}  # of classes met: the fields of those whose instances do not change
SHARED: list[Any] = []  # values of these: pointed at, not copied
BY_ID: dict[int, int] = {}  # of those in SHARED
UNANSWERED = (LinkState.NEW, LinkState.ATTACH_SENT, LinkState.ATTACH_RECEIVED)
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


def _changed(value: Any, new: dict[str, Any]) -> Any:
    make, arguments, (state, slots), *rest = value.__reduce_ex__(5)
    return (make, arguments, (state, {**slots, **new}), *rest)


def _without(value: Any) -> Any:
    return _changed(value, {name: first() for name, first in WITHOUT[type(value)].items()})


def _link(link: Link) -> Any:
    attaches: dict[str, Any] = {}
    if link._state not in UNANSWERED:
        for name in ("local_attach", "remote_attach"):
            attach = getattr(link, name)
            if attach is not None:
                attaches[name] = replace(attach, unsettled=None, properties=None, source=None, target=None)
    return _changed(link, attaches)


def _proof(proof: Proof) -> Any:
    return _changed(
        proof, {} if proof.open else {"since": 0.0, "_threshold": 0, "_seen": frozenset(), "_written": False}
    )


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
    **dict.fromkeys(WITHOUT, _without),
    SenderLink: _link,
    ReceiverLink: _link,
    Proof: _proof,
}


class Plain(pickle.Pickler):
    dispatch_table = TABLE


def _frozen(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass whose instances do not change; None for other classes."""
    if kind not in FROZEN:
        parameters = getattr(kind, "__dataclass_params__", None)
        fixed = parameters is not None and parameters.frozen
        FROZEN[kind] = tuple(kind.__dataclass_fields__) if fixed else None  # type: ignore[attr-defined]
    return FROZEN[kind]


class Canonical(pickle.Pickler):
    dispatch_table = TABLE

    def __init__(self, file: io.BytesIO) -> None:
        one: dict[Any, Any] = {}
        the_first = one.setdefault
        sets: dict[int, Any] = {}

        def only(value: Any) -> Any:
            """The first one that is equal to this value; anything but a value is itself."""
            kind = type(value)
            if kind is str or kind is bytes:
                return the_first(value, value)
            if kind in THINGS or kind in NEVER_CHANGE:
                return value
            if isinstance(value, (int, str, bytes)):
                return the_first((kind, value), value)
            names = None
            if not isinstance(value, tuple) and (names := _frozen(kind)) is None:
                return value
            parts = value if names is None else (getattr(value, name) for name in names)
            key = [(type(part), part) if type(part) in BY_VALUE else id(only(part)) for part in parts]
            return the_first((kind, *key), value)

        def persistent_id(obj: Any) -> Any:  # asked of every object there is, thousands for a router
            kind = type(obj)
            if kind is str or kind is bytes:
                return the_first(obj, obj)
            if kind in THINGS:
                return None
            if kind in NEVER_CHANGE:
                return _point_at(obj)[1]
            if kind is set or kind is frozenset:
                sets.setdefault(id(obj), obj)
                return kind, list(sets).index(id(obj)) if kind is set else 0, sorted(obj, key=repr)
            if kind is tuple and obj and type(obj[-1]) is dict:  # the state of an object, put together just now
                return None
            found = only(obj)
            return found if found is not obj or isinstance(obj, VALUES) or _frozen(kind) is not None else None

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
