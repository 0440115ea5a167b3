"""Finds every wait of the product by its syntax: `python -m scripts.waits` lists those that no row of the table has.

A *place* is an expression at which a coroutine, a thread or a process stops until somebody else does something: an
await of what is not one of our own coroutines (those are walked themselves), a lock, a call that blocks, and a bound
that is given to one. `asyncio.sleep` and `time.sleep` wait for nobody and are none.

A place belongs to a row of `onceway.base.waits` where the row's name stands in the expression, in the `with` around
it, or where the lock, the event, the queue or the future was made: `waits.STORE(loop.create_future())`. A bound that is
given in figures, `asyncio.timeout(waits.CONNECT.s)`, is a place as well: its number is the row's. A function that
waits for whatever its caller wants says `waits.CALLER`; then its calls are places.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from onceway.base import waits

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("onceway", "edges", "pyspark_onceway")
TABLE: Final = "onceway.base.waits"
CALLER: Final = "CALLER"
NAMES: Final = re.compile(r"^from onceway\.base(?:\.waits import| import .*\bwaits\b)", re.MULTILINE)
"""An import of the table."""

BLOCKING: Final = frozenset({  # whatever they are called on
    "accept4", "check_call", "check_output", "communicate", "create_connection", "create_future", "flock",
    "getaddrinfo", "getresponse", "lockf", "notifies", "sigwait", "urlopen", "waitid", "waitpid",
})  # fmt: skip
BLOCKING_OF: Final = {  # the types on which they block
    "accept": ("socket",), "acquire": ("Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition"),
    "call": ("subprocess",), "connect": ("socket", "sqlite3", "psycopg", "redis"), "get": ("Queue", "SimpleQueue"),
    "join": ("Thread", "Process", "Queue"), "open": ("build_opener", "OpenerDirector"), "poll": ("poll",),
    "put": ("Queue",), "readline": ("stdin",), "recv": ("socket", "Connection"), "recvmsg": ("socket",),
    "result": ("run_coroutine_threadsafe",), "run": ("subprocess",), "select": ("select", "DefaultSelector"),
    "shutdown": ("ThreadPoolExecutor",), "wait": ("Event", "Condition", "Popen", "Barrier"),
    "wait_for": ("Condition",), "sendall": ("socket",),
}  # fmt: skip
"""Names of methods, and the constructors or modules of what they block on."""
LOCKS: Final = frozenset({"Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition"})
BOUNDS: Final = frozenset({"timeout", "timeout_at", "wait_for", "ClientTimeout", "settimeout"})
"""Calls that bound a wait: the number comes from a row."""
JOINED: Final = frozenset({"all_of", "as_completed", "gather", "shield", "wait"})
"""Awaits of what is handed in."""
HELD: Final = frozenset(
    {"AsyncGenerator", "AsyncIterator", "Awaitable", "Coroutine", "Future", "Task", "create_task", "ensure_future"}
)
"""What stands for a coroutine or a future of ours that is walked where it is made."""


@dataclass(frozen=True, slots=True)
class Place:
    path: str
    line: int
    text: str
    rows: frozenset[str]  # the names of rows that it belongs to

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(slots=True)
class Module:
    """One file: which names it has imported, and what its variables and attributes are made of."""

    path: str
    tree: ast.Module
    foreign: set[str] = field(default_factory=set)  # names that are imported from others than our packages
    rows: set[str] = field(default_factory=set)  # names of the table that are imported by themselves
    table: set[str] = field(default_factory=set)  # names of the table's module
    made_of: dict[str, set[str]] = field(default_factory=dict)
    parameters: set[str] = field(default_factory=set)
    nodes: list[ast.AST] = field(init=False)
    passed_on: set[str] = field(default_factory=set)  # private functions that wait for what their caller wants

    def __post_init__(self) -> None:
        self.nodes = list(ast.walk(self.tree))
        for node in self.nodes:
            match node:
                case ast.Import(names=names):
                    self.foreign |= {(n.asname or n.name).split(".")[0] for n in names if not _ours(n.name)}
                case ast.ImportFrom(module=str(module), names=names):
                    known = {each.asname or each.name for each in names}
                    if module == TABLE:
                        self.rows |= known
                    elif not _ours(module):
                        self.foreign |= known
                    self.table |= {n.asname or n.name for n in names if f"{module}.{n.name}" == TABLE}
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._note(target, value)
                case ast.AnnAssign(target=target, annotation=annotation, value=value):
                    self._note(target, annotation)
                    if value is not None:
                        self._note(target, value)
                case ast.arg(arg=name, annotation=ast.expr() as annotation):
                    self.parameters.add(name)
                    self.made_of.setdefault(name, set()).update(_words(annotation))
                case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                    self._note(target, value)
                case ast.FunctionDef(name=name, returns=ast.expr() as annotation):
                    self.made_of.setdefault(name, set()).update(_words(annotation))

    def rows_of(self, name: str) -> set[str]:
        """The rows with which a variable or an attribute was made."""
        words = self.made_of.get(name, set())
        return {each for each in words if each.isupper() and (each in self.rows or words & self.table)}

    def _note(self, target: ast.expr, value: ast.expr) -> None:
        if name := _last(target):
            self.made_of.setdefault(name, set()).update(_words(value))


def _ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] in PACKAGES


def _words(value: ast.expr) -> set[str]:
    """The names of which an annotation, or the call that makes something, consists."""
    if isinstance(value, ast.Await):
        value = value.value
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        try:
            value = ast.parse(value.value, mode="eval").body
        except SyntaxError:
            return set()
    if isinstance(value, ast.Call):
        inside = [each.value for each in value.keywords if each.arg == "default_factory"]
        if _last(value.func).isupper() or _last(value.func) == "defaultdict":  # a row hands on what it is given
            inside += value.args
        return _words(value.func).union(*map(_words, inside))
    if isinstance(value, ast.Lambda):
        return _words(value.body)
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp | ast.IfExp | ast.BoolOp):
        return {name for node in ast.walk(value) for name in [getattr(node, "attr", getattr(node, "id", None))] if name}
    return set()


def _last(value: ast.expr) -> str:
    """The last name of `self._queue`, `queue.get` or `queues[0]`."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Await(value=inner):
            return _last(inner)
        case ast.Call(func=func):
            return _last(func)
    return ""


def _first(value: ast.expr) -> str:
    while isinstance(value, ast.Attribute | ast.Subscript | ast.Call):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def rows(module: Module, nodes: Sequence[ast.AST]) -> set[str]:
    """The rows that are named there."""
    found: set[str] = set()
    for top in nodes if module.table or module.rows else ():
        for node in ast.walk(top):
            if isinstance(node, ast.Name) and node.id in module.rows and node.id.isupper():
                found.add(node.id)
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in module.table
                and node.attr.isupper()
            ):
                found.add(node.attr)
    return found


class Walk:
    """Every place of `modules`; `found` has them after the walk.

    Attributes:
        coroutines: Names of our own coroutines and of asynchronous generators and context managers.
        passed_on: Names of functions, and of classes, that wait for what their caller wants.
    """

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules
        self.coroutines: set[str] = set()
        self.classes: set[str] = set()
        self.returns: dict[str, set[str]] = {}
        self.passed_on: set[str] = set()
        for module in modules:
            for node in module.nodes:
                if isinstance(node, ast.AsyncFunctionDef):
                    self.coroutines.add(node.name)
                elif isinstance(node, ast.ClassDef):
                    self.classes.add(node.name)
                elif isinstance(node, ast.FunctionDef) and node.returns is not None:
                    self.returns.setdefault(node.name, set()).update(_words(node.returns))
        self.own = self.classes | self.coroutines | HELD
        self.own |= {name for name, words in self.returns.items() if words & self.own}
        for module in modules:
            for node in module.nodes:
                if isinstance(node, ast.ClassDef):
                    self._pass_on(module, node.body, node.name)
            self._pass_on(module, module.tree.body)
        self.found = [place for module in modules for place in self._in(module, module.tree, frozenset())]

    def _pass_on(self, module: Module, body: list[ast.stmt], made: str = "") -> None:
        """made: the class whose body it is."""
        for node in body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if CALLER in rows(module, [*node.body, *node.decorator_list]):
                name = made if node.name == "__init__" else node.name
                (module.passed_on if name.startswith("_") else self.passed_on).add(name)

    def _passes_on(self, module: Module, name: str) -> bool:
        return name in self.passed_on or name in module.passed_on

    def _in(self, module: Module, node: ast.AST, within: frozenset[str]) -> Iterator[Place]:
        """The places in `node`; `within`: the rows of what is around it in the same function."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                marked = rows(module, getattr(node, "decorator_list", []))
                within = frozenset(marked)
            case ast.With(items=items) | ast.AsyncWith(items=items):
                own = within | rows(module, [item.context_expr for item in items])
                for item in items:
                    if self._holds(module, item.context_expr, isinstance(node, ast.AsyncWith)):
                        yield self._place(module, item.context_expr, own)
                    yield from self._in(module, item.context_expr, own)
                for inner in node.body:
                    yield from self._in(module, inner, own)
                return
            case ast.AsyncFor(iter=iterated):
                if self._waits(module, iterated):
                    yield self._place(module, iterated, within)
            case ast.Await(value=value):
                if self._waits(module, value):
                    yield self._place(module, value, within)
                if isinstance(value, ast.Call):  # not a place twice
                    within = within | rows(module, [value.func])
                    for inner in [value.func, *value.args, *(each.value for each in value.keywords)]:
                        yield from self._in(module, inner, within)
                    return
            case ast.Call() if self._blocks(module, node) and not _at_once(node):
                yield self._place(module, node, within)
        if isinstance(node, ast.Call):
            within = within | rows(module, [node.func])
        for inner in ast.iter_child_nodes(node):
            yield from self._in(module, inner, within)

    def _place(self, module: Module, node: ast.expr, within: frozenset[str]) -> Place:
        named = within | rows(module, [node])
        for each in ast.walk(node):
            if isinstance(each, ast.Name | ast.Attribute):
                named |= module.rows_of(_last(each))
        return Place(module.path, node.lineno, " ".join(ast.unparse(node).split())[:100], frozenset(named))

    def _waits(self, module: Module, value: ast.expr) -> bool:
        """An await of it waits for others."""
        match value:
            case ast.IfExp(body=body, orelse=orelse):
                return self._waits(module, body) or self._waits(module, orelse)
            case ast.Set(elts=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
                return any(self._waits(module, each) for each in parts)
            case ast.Starred(value=inner) | ast.Await(value=inner):
                return self._waits(module, inner)
            case ast.GeneratorExp(elt=inner) | ast.ListComp(elt=inner) | ast.SetComp(elt=inner):
                return self._waits(module, inner)
            case ast.Call(func=func, args=args):
                name = _last(func)
                if name == "sleep":
                    return False
                if rows(module, [func]):
                    return True  # a row that says so
                if name == "map":
                    return not self._is_own(module, ast.Call(args[0], [], []))
                if name in JOINED and _first(func) in ("asyncio", name):
                    return any(self._waits(module, each) for each in args)
        return not self._is_own(module, value)

    def _is_own(self, module: Module, value: ast.expr) -> bool:
        """A coroutine of ours, or what stands for one."""
        if not isinstance(value, ast.Call):
            made = module.made_of.get(_last(value), set())
            return bool(made & self.own) and not made & module.foreign - HELD - {"asyncio"}
        name = _last(value.func)
        if self._passes_on(module, name):
            return False
        if isinstance(value.func, ast.Name) and name in module.parameters:
            return True  # it is walked where it is written
        return name in self.own and not (
            isinstance(value.func, ast.Attribute) and self._is_foreign(module, value.func.value)
        )

    def _is_foreign(self, module: Module, value: ast.expr) -> bool:
        """It is a thing of other packages than ours."""
        if isinstance(value, ast.Name) and value.id in module.foreign:
            return True
        made = module.made_of.get(_last(value), set())
        if made & self.classes and not made & module.foreign:
            return False
        return bool(made & module.foreign)

    def _holds(self, module: Module, value: ast.expr, awaited: bool) -> bool:
        """Entering `with` on it waits."""
        if isinstance(value, ast.Call):
            return awaited and _last(value.func) not in BOUNDS and not self._is_own(module, value)
        return bool(module.made_of.get(_last(value), set()) & LOCKS) or (awaited and not self._is_own(module, value))

    def _blocks(self, module: Module, call: ast.Call) -> bool:
        name = _last(call.func)
        if not isinstance(call.func, ast.Attribute):
            return (name in BLOCKING and name in module.foreign) or (
                name in self.passed_on and name not in self.coroutines
            )
        if name in BOUNDS:
            return _first(call.func) in module.foreign or name == "settimeout"
        if name == "wait" and _first(call.func) == "asyncio":
            return any(each.arg == "timeout" for each in call.keywords)
        if self._passes_on(module, name) and name not in self.coroutines:
            return True
        if name in BLOCKING:
            return True
        of = call.func.value
        made = {_last(of)} | module.made_of.get(_last(of), set())
        return bool(made & set(BLOCKING_OF.get(name, ())))


def _at_once(call: ast.Call) -> bool:
    """It is told not to wait."""
    last = [each.value for each in call.keywords if each.arg == "timeout"] or call.args[-1:]
    return any(isinstance(each, ast.Constant) and each.value == 0 for each in last) or any(
        isinstance(each, ast.Attribute) and each.attr in ("LOCK_NB", "AI_NUMERICHOST", "SOCK_DGRAM")
        for each in ast.walk(call)
    )


def files() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def modules() -> list[Module]:
    return [Module(str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))) for path in files()]


@cache
def walk() -> Walk:
    """Of the product as it is."""
    return Walk(modules())


def without_a_row(found: Iterable[Place]) -> Iterator[str]:
    """A line for each wait that has none, with the remedy."""
    names = {row.name for row in (*waits.TABLE, waits.CALLER)}
    for place in found:
        if not place.rows:
            yield f"{place}: no row of {TABLE} is named there: name one, `waits.ROW(...)`, or add one to the table"
        elif unknown := {name for name in place.rows if name.lower() not in names}:
            yield f"{place}: {', '.join(sorted(unknown))}: no row of {TABLE}"


def by_row() -> dict[str, list[str]]:
    """The packages in which each row is waited for, by its name."""
    found: dict[str, list[str]] = {row.name: [] for row in waits.TABLE}
    for path in files():
        text = path.read_text(encoding="utf-8")
        if NAMES.search(text) is None:
            continue
        module = Module(str(path.relative_to(ROOT)), ast.parse(text))
        package = module.path.rpartition("/")[0]
        for row in rows(module, [module.tree]):
            if package not in found.setdefault(row.lower(), []):
                found[row.lower()].append(package)
    return found


def main() -> int:
    found = [*without_a_row(walk().found)]
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
