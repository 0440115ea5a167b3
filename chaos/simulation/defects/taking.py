"""How a rule is taken away from real code: another body in the place of one small method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Body = Callable[..., Any]
Patch = tuple[type, str, Body]


def always(value: Any) -> Body:
    """A condition that is not looked at."""
    return lambda *arguments, **named: value


TAKEN: list[Patch] = []  # at the moment


def nothing_is_taken() -> bool:
    return not TAKEN


@contextmanager
def defective(patches: Iterable[Patch]) -> Iterator[None]:
    """The product with these methods' bodies replaced."""
    before: list[tuple[type, str, Any]] = []
    try:
        for owner, method, body in patches:
            if not hasattr(owner, method):
                raise LookupError(f"{owner.__name__}.{method} is no more: mend its defect in chaos/simulation/defects")
            before.append((owner, method, vars(owner).get(method, INHERITED)))
            setattr(owner, method, body)
            TAKEN.append((owner, method, body))
        yield
    finally:
        TAKEN.clear()
        for owner, method, body in reversed(before):
            if body is INHERITED:
                delattr(owner, method)
            else:
                setattr(owner, method, body)


INHERITED: Any = object()
