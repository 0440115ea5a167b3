"""What mypyc asks of the modules that it compiles, and no other test would see (docs/decisions/compiled.md)."""

from __future__ import annotations

import ast
import importlib
import runpy
from pathlib import Path

import pytest

from tests.builds import COMPILED

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(not COMPILED, reason="scripts/compiled.sh compiles")
def test_each_module_that_is_compiled_can_be_imported() -> None:
    for module in runpy.run_path(str(ROOT / "setup.py"))["modules"]():
        found = importlib.import_module(module.removesuffix(".py").replace("/", ".")).__file__
        assert not str(found).endswith(".py"), module


def test_an_exception_of_another_type_has_another_name() -> None:
    for module in runpy.run_path(str(ROOT / "setup.py"))["modules"]():
        for function in ast.walk(ast.parse((ROOT / module).read_text())):
            if isinstance(function, ast.FunctionDef):
                types: dict[str, str] = {}
                for each in ast.walk(function):
                    if isinstance(each, ast.ExceptHandler) and each.name is not None:
                        assert each.type is not None
                        caught = ast.unparse(each.type)
                        assert types.setdefault(each.name, caught) == caught, f"{module}:{each.lineno}: {each.name}"
