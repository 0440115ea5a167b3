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
import zlib
from collections.abc import Callable, Iterable
from hashlib import blake2b
from types import MethodType
from typing import Any

from amqp10.reading import Reader
from amqp10.types import Symbol
from router.client_connection import ClientConnection
from router.config import AddressConfig, RouterConfig
from router.memory import Bookkeeping

WITHOUT: dict[type, dict[str, Callable[[], Any]]] = {
    ClientConnection: {"writes": int},
    Bookkeeping: {"_counted": int, "_since": int},
    Reader: {"frames": int, "_shapes": dict, "_dispositions": dict},
}
ATOMS = frozenset((str, bytes, int, Symbol))
CONFIGURATION: list[Any] = []  # never changes: pointed at, not copied


def configuration(place: int) -> Any:
    return CONFIGURATION[place]


def share(values: Iterable[Any]) -> None:
    CONFIGURATION.extend(value for value in values if value not in CONFIGURATION)


def _point_at(value: Any) -> Any:
    return (configuration, (CONFIGURATION.index(value),)) if value in CONFIGURATION else value.__reduce_ex__(5)


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
    RouterConfig: _point_at,
    AddressConfig: _point_at,
    **dict.fromkeys(WITHOUT, _without),
}


class Plain(pickle.Pickler):
    dispatch_table = TABLE


class Canonical(pickle.Pickler):
    dispatch_table = TABLE

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5)
        self.one: dict[Any, Any] = {}

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is str or kind is bytes:
            return self.one.setdefault(obj, obj)
        if kind is Symbol or (kind is tuple and obj and ATOMS.issuperset(map(type, obj))):
            return self.one.setdefault((kind, tuple(map(type, obj)), obj), obj)
        return None


class Snapshots:
    def __init__(self) -> None:
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
