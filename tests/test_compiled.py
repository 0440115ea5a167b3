"""What mypyc asks of the modules that it compiles, and no other test would see (docs/decisions/compiled.md)."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent


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
