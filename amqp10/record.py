"""What small classes that are made for every message are, as mypyc makes no native class of a dataclass with slots."""

from __future__ import annotations

from inspect import signature
from typing import Any


class Record:  # noqa: PLW1641
    """Its attributes are what its constructor takes. It is compared and shown by them."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and values(other) == values(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values(self).items())})"


def values(each: Any) -> dict[str, Any]:
    """The attributes of a record or dataclass, by name, in the order in which its constructor takes them."""
    return {name: getattr(each, name) for name in signature(type(each)).parameters}
