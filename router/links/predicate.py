"""Predicates on metadata: of a publisher at the metadata edge, and of a message where a receiving link has this filter.

    has Metadata/System and (Properties/UnitofTime = "s" or not Site in ("a", "b"))

The parser is lark's, LALR(1). The regular expression of `like` is searched for by RE2, which takes time proportional to
the value; with Python's own, whoever may subscribe could keep its router or edge busy for ever. RE2 is an extra:
without it, `like` is refused and everything else works.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args

from router.links.dear import MOST_STEPS

Value = str | int | float | bool
Metadata = Mapping[str, Value]
Matches = Callable[[Metadata], bool]
Needs = tuple[str, frozenset[str]]

MOST_CHARACTERS: Final = 8192
MOST_PROGRAM: Final = 1_000  # instructions of all regular expressions together
KNOWN: Final = 64  # values whose result one `like` keeps
KNOWN_CHARACTERS: Final = 256  # no longer ones
MOST_WORDS: Final = 1600
"""Keys, values, signs and words: to parse one takes some 10 us, and all is parsed in one turn."""
MOST_DEPTH: Final = 100  # of parentheses and `not`: their evaluation is recursive

_GRAMMAR: Final = r"""
    ?either: both ("or" both)*
    ?both: negated ("and" negated)*
    ?negated: "not" negated -> negation
        | KEY "=" VALUE -> equal
        | KEY "!=" VALUE -> unequal
        | KEY "like" VALUE -> like
        | KEY "in" "(" VALUE ("," VALUE)* ")" -> one_of
        | "has" KEY -> has
        | "(" either ")" -> nested
    KEY: /[A-Za-z~$_][A-Za-z0-9\/%_-]*/
    VALUE: /"(\\.|[^"\\])*"|'(\\.|[^'\\])*'/s
    %ignore /\s+/
"""
_SAID: Final = {
    "KEY": "a key",
    "VALUE": "a value in quotes",
    "EQUAL": '"="',
    "__ANON_0": '"!="',
    "LPAR": '"("',
    "RPAR": '")"',
    "COMMA": '","',
    "$END": "the end",
}
_BEGIN: Final = re.compile(r"[^\\\[({]*\{?")
_PLAIN: Final = re.compile(r"([^\\\[({.^$*+?]+)([*?{]?)")
_WORD: Final = re.compile(r"""'(?:\\.|[^'\\])*(?:'|\Z|\\\Z)|"(?:\\.|[^"\\])*(?:"|\Z|\\\Z)|[\w/%~$-]+|\S""", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\([\"'\\])")


class PredicateError(ValueError):
    """What was written is no predicate.

    Attributes:
        line, column: Where, counted from 1.
    """

    def __init__(self, text: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {text}")
        self.line = line
        self.column = column


class Predicate:
    """A predicate that was parsed.

    Attributes:
        text: As it was written.
        keys: The keys that it names. Nothing else of the metadata can change its result.
        matches: Says whether metadata match it. They do where to look for that would take too long: a value with more
            octets than `MOST_STEPS` divided by the instructions of the regular expressions.
        searches: Whether it has regular expressions.
        matches_nothing: Whether a publisher with none of its keys matches.
        needs: A key and values of which it must have one for the predicate to match; None: there is no such key.

    Raises:
        PredicateError: What was written is no predicate.
    """

    __slots__ = ("keys", "matches", "matches_nothing", "needs", "searches", "text")

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise PredicateError(f"a predicate has at most {MOST_CHARACTERS} characters, this one {len(text)}", 1, 1)
        words = len(_WORD.findall(text))
        if words > MOST_WORDS:
            raise PredicateError(f"a predicate has at most {MOST_WORDS} words, this one {words}", 1, 1)
        try:
            node: _Node = _PARSER.parse(text)  # type: ignore[assignment]  # what `_Builder` makes
        except UnexpectedInput as error:
            raise _unexpected(error, text) from None
        program = sum(each.program for each in node.expressions)
        if program > MOST_PROGRAM:
            text = f"its regular expressions have {program} instructions together, {MOST_PROGRAM} at most"
            raise PredicateError(text, 1, 1)
        for each in node.expressions:
            each.longest = MOST_STEPS // program
        self.text = text
        self.keys = frozenset(node.keys)
        self.matches = _bounded(node.matches) if node.expressions else node.matches
        self.needs = node.needs
        self.searches = bool(node.expressions)
        self.matches_nothing = node.matches({})


def as_text(value: object) -> str | None:
    """A value as predicates see it: numbers and booleans as JSON writes them; None for values of other types."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return repr(int(value))
    return repr(float(value)) if isinstance(value, float) else None


class _TooLongError(Exception):
    """A value has too many octets for the regular expressions of its predicate."""


def _bounded(found: Matches) -> Matches:
    def matches(metadata: Metadata) -> bool:
        try:
            return found(metadata)
        except _TooLongError:
            return True

    return matches


class _Expression:
    """One regular expression. longest: octets of a value that is searched."""

    __slots__ = ("_known", "_required", "_search", "longest", "program")

    def __init__(self, compiled: Any, required: str) -> None:
        self._search = compiled.search
        self._required = required
        self._known: dict[str, bool] = {}  # a key that has not changed has the value that was searched before
        self.program: int = compiled.programsize
        self.longest = 0

    def found_in(self, value: str) -> bool:
        if self._required not in value:
            return False
        known = self._known
        result = known.get(value)
        if result is None:
            octets = value.encode()
            if len(octets) > self.longest:
                raise _TooLongError
            result = self._search(octets) is not None
            if len(value) <= KNOWN_CHARACTERS:
                if len(known) >= KNOWN:
                    known.clear()
                known[value] = result
        return result


class _Node(NamedTuple):
    matches: Matches
    keys: tuple[str, ...]
    depth: int = 1
    needs: Needs | None = None
    expressions: tuple[_Expression, ...] = ()


@v_args(inline=True)
class _Builder(Transformer[Token, _Node]):
    """Called by the parser for each rule, from the inside out."""

    def either(self, *nodes: _Node) -> _Node:
        functions = [node.matches for node in nodes]

        def matches(metadata: Metadata) -> bool:  # a loop costs a third of what any() and a generator do
            for function in functions:  # noqa: SIM110
                if function(metadata):
                    return True
            return False

        needs = [node.needs for node in nodes if node.needs is not None]
        values = frozenset[str]().union(*(values for _, values in needs))
        same = len(needs) == len(nodes) and len({key for key, _ in needs}) == 1
        needed = (needs[0][0], values) if same else None
        return _Node(matches, _keys(nodes), _depth(nodes), needed, _expressions(nodes))

    def both(self, *nodes: _Node) -> _Node:
        functions = [node.matches for node in nodes]

        def matches(metadata: Metadata) -> bool:
            for function in functions:  # noqa: SIM110
                if not function(metadata):
                    return False
            return True

        needs = [node.needs for node in nodes if node.needs is not None]
        needed = min(needs, key=lambda each: len(each[1]), default=None)
        return _Node(matches, _keys(nodes), _depth(nodes), needed, _expressions(nodes))

    def negation(self, node: _Node) -> _Node:
        matches = node.matches
        return _Node(lambda metadata: not matches(metadata), node.keys, _depth([node]), None, node.expressions)

    def nested(self, node: _Node) -> _Node:
        return node._replace(depth=_depth([node]))

    def has(self, key: Token) -> _Node:
        name = str(key)
        return _Node(lambda metadata: name in metadata, (name,))

    def equal(self, key: Token, value: Token) -> _Node:
        name, wanted = str(key), _unquoted(value)

        def matches(metadata: Metadata) -> bool:
            found = metadata.get(name)
            return (found if type(found) is str else as_text(found)) == wanted

        return _Node(matches, (name,), needs=(name, frozenset((wanted,))))

    def unequal(self, key: Token, value: Token) -> _Node:
        return self.negation(self.equal(key, value))._replace(depth=1)

    def one_of(self, key: Token, *values: Token) -> _Node:
        name, wanted = str(key), frozenset(map(_unquoted, values))
        return _Node(lambda metadata: as_text(metadata.get(name)) in wanted, (name,), needs=(name, wanted))

    def like(self, key: Token, value: Token) -> _Node:
        name = str(key)
        try:
            re2, options = _re2()
        except ImportError:
            missing = "`like` needs google-re2 here, at the router or edge: pip install 'onceway[metadata]'"
            raise PredicateError(missing, *_place(value)) from None
        try:
            compiled = re2.compile(_unquoted(value).encode(), options)  # octets cost half of what strings do
        except re2.error as error:
            reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
            raise PredicateError(f"{value} is no regular expression: {reason}", *_place(value)) from None

        expression = _Expression(compiled, _required(_unquoted(value)))

        def matches(metadata: Metadata) -> bool:
            value = metadata.get(name)
            found = value if type(value) is str else as_text(value)
            return found is not None and expression.found_in(found)

        return _Node(matches, (name,), expressions=(expression,))


def _keys(nodes: Iterable[_Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for node in nodes for key in node.keys))


def _expressions(nodes: Iterable[_Node]) -> tuple[_Expression, ...]:
    return tuple(each for node in nodes for each in node.expressions)


def _depth(nodes: Iterable[_Node]) -> int:
    depth = 1 + max(node.depth for node in nodes)
    if depth > MOST_DEPTH:
        raise PredicateError(f"parentheses and `not` are nested deeper than {MOST_DEPTH}", 1, 1)
    return depth


def _unquoted(value: Token) -> str:
    """Backslashes stand before quotes and backslashes; before anything else they are themselves."""
    return _ESCAPED.sub(r"\1", value[1:-1])


def _required(pattern: str) -> str:
    """What a value must have to match: the longest run of plain characters before all brackets and escapes, or behind
    them. To look for that takes a tenth of a search's time."""
    begin = _BEGIN.match(pattern)
    assert begin is not None
    end = "" if "\\" in pattern or "(?" in pattern else pattern[max(map(pattern.rfind, "])}")) + 1 :]
    runs = [] if "|" in pattern else _PLAIN.findall(begin[0]) + _PLAIN.findall(end)
    # what may be missing is not required
    return max((run[:-1] if repeated else run for run, repeated in runs), key=len, default="")


def _place(token: Token) -> tuple[int, int]:
    return token.line or 1, token.column or 1


def _unexpected(error: UnexpectedInput, text: str) -> PredicateError:
    if isinstance(error, UnexpectedCharacters):
        found = text[error.pos_in_stream or 0]
        what = "a quote that is not closed" if found in "\"'" else f"unexpected {found!r}"
        return PredicateError(what, error.line, error.column)
    assert isinstance(error, UnexpectedToken)
    *first, last = sorted(_SAID.get(name, f'"{name.lower()}"') for name in error.expected or {"$END"})
    expected = f"{', '.join(first)} or {last}" if first else last
    if error.token.type == "$END":
        lines = text.split("\n")
        return PredicateError(f"expected {expected}, found the end", len(lines), len(lines[-1]) + 1)
    return PredicateError(f"expected {expected}, found {str(error.token)!r:.60}", *_place(error.token))


@cache
def _re2() -> tuple[Any, Any]:
    """The library and its options."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    return re2, options


_PARSER: Final = Lark(_GRAMMAR, parser="lalr", start="either", propagate_positions=False, transformer=_Builder())
