"""How much a router keeps: every object that can be reached from it, by a walk that knows none of its containers."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any

_CODE = (type, ModuleType, BuiltinFunctionType, FrameType)


class Size:
    """objects: by type. octets: of all of them."""

    def __init__(self, *roots: Any, without: tuple[Any, ...] = ()) -> None:
        """without: what is not looked into, such as the other side of a test."""
        self.objects: Counter[str] = Counter()
        self.octets = 0
        seen = {id(each) for each in without}
        found = list(roots)
        while found:
            each = found.pop()
            if type(each) is int:  # each time that it is kept: Python has one object for all the same, up to 256
                self.objects["int"] += 1
                self.octets += sys.getsizeof(each) if id(each) not in seen else 0
                seen.add(id(each))
                continue
            if id(each) in seen or isinstance(each, _CODE):
                continue
            seen.add(id(each))
            if isinstance(each, FunctionType):  # not its module's names, which are what the whole program keeps
                self.octets += sys.getsizeof(each)
                found += each.__closure__ or ()
                continue
            self.objects[type(each).__name__] += 1
            self.octets += sys.getsizeof(each)
            found += gc.get_referents(each)

    @property
    def number(self) -> int:
        return self.objects.total()

    def grown_since(self, before: Size) -> dict[str, int]:
        """By type, the largest first: for whoever reads why a test failed."""
        return dict((self.objects - before.objects).most_common(12))
