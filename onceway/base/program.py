"""What this program is: its version, and whether its modules are compiled (docs/decisions/compiled.md)."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec


@cache
def is_compiled() -> bool:
    spec = find_spec("router.router")
    assert spec is not None, "the router is a part of the distribution"
    return not str(spec.origin).endswith(".py")


def program() -> str:
    """For example `onceway 1.0.0 (compiled)`, or `(pure Python)`."""
    return f"onceway {version('onceway')} ({'compiled' if is_compiled() else 'pure Python'})"
