"""What a part may call of those above it is declared by a base class, and there without a body."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import router.core
from router.core.base import BaseAddress


def stubs() -> list[tuple[type, str]]:
    """Methods of `router.core` without a body."""
    found = []
    for each in pkgutil.walk_packages(router.core.__path__, "router.core."):
        module = importlib.import_module(each.name)
        source = Path(router.core.__path__[0], *each.name.split(".")[2:]).with_suffix(".py")
        if not source.exists():  # a package
            continue
        for cls in ast.parse(source.read_text()).body:
            if not isinstance(cls, ast.ClassDef) or not cls.name.startswith("Base"):
                continue
            for method in cls.body:
                if isinstance(method, ast.FunctionDef) and ast.unparse(method.body[-1]) in (
                    "...",
                    "raise NotImplementedError",
                ):
                    found.append((getattr(module, cls.name), method.name))
    return found


def ends(cls: type) -> list[type]:
    """The classes made from it that no other is made from."""
    below = cls.__subclasses__()
    return [end for each in below for end in ends(each)] if below else [cls]


STUBS = stubs()


@pytest.mark.parametrize(("cls", "name"), STUBS, ids=[f"{cls.__name__}.{name}" for cls, name in STUBS])
def test_what_a_base_class_leaves_open_is_there(cls: type, name: str) -> None:
    product = [end for end in ends(cls) if end.__module__.startswith("router.")]
    assert product
    assert [end for end in product if getattr(end, name) is getattr(cls, name)] == []


def test_stubs_are_found() -> None:
    assert (BaseAddress, "feed_late") in STUBS
