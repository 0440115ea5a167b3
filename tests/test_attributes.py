"""How much one object holds: the attributes of a class, inherited ones included."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("amqp10", "mqtt", "router", "interrouter")
MOST = 20


def is_record(cls: ast.ClassDef) -> bool:
    """Values that are made once and read, as settings and what a packet says."""
    words = [ast.unparse(each) for each in (*cls.decorator_list, *cls.bases)]
    return any("dataclass" in each or each in ("NamedTuple", "Protocol") for each in words)


def own(cls: ast.ClassDef) -> set[str]:
    """What its methods set on `self`, and what it declares."""
    declared = {
        each.target.id for each in cls.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return declared | {
        each.attr
        for each in ast.walk(cls)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def attributes() -> dict[str, set[str]]:
    """By `package.Class`; base classes are looked for in the same module first, then in the same package."""
    classes = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for cls in ast.parse(path.read_text()).body:
                if isinstance(cls, ast.ClassDef) and not is_record(cls):
                    classes[str(path.relative_to(ROOT)), cls.name] = cls

    def whole(place: str, cls: ast.ClassDef) -> set[str]:
        found = own(cls)
        for base in [ast.unparse(each).split("[")[0].rpartition(".")[2] for each in cls.bases]:
            near = sorted(
                (key for key in classes if key[1] == base and key != (place, cls.name)),
                key=lambda key: (key[0] != place, key[0].rpartition("/")[0] != place.rpartition("/")[0], key[0]),
            )
            if near:
                found |= whole(near[0][0], classes[near[0]])
        return found

    return {f"{place} {name}": whole(place, cls) for (place, name), cls in classes.items()}


def test_no_object_holds_more_than_one_reads_at_once() -> None:
    held = {name: len(names) for name, names in attributes().items()}
    assert max(held.values()) > MOST // 2, "attributes are found"
    assert {name: number for name, number in held.items() if number > MOST} == {}
