"""Selectors: the conditions of JMS (2.0, 3.8) over the properties of a message, parsed once and evaluated per message.

    colour = 'blue' AND weight BETWEEN 2 AND 5 OR NOT (name LIKE 'a!_%' ESCAPE '!') OR note IS NULL

The parser is lark's, LALR(1). A condition is compiled to nested functions of a message's `lookup`. They return True,
False, or None for unknown (three-valued logic); a selector selects what is True. `like` is matched piece by piece, in
time proportional to the value, or in MOST_STEPS, since strangers write patterns.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import cache
from math import isfinite
from typing import Any, Final, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken, v_args

from router.links.dear import MOST_STEPS, TooDear

Lookup = Callable[[str], Any]
"""Name of a property -> its value, None where the message has none."""
Evaluate = Callable[[Lookup], Any]

MOST_CHARACTERS: Final = 8192
MOST_WORDS: Final = 1600
"""Names, values, signs and words: to parse one takes some 10 us, and all is parsed in one turn."""
LONGEST_COMPARED: Final = 1 << 11
"""Characters of a value: where a longer one takes too many steps, the message is at fault, and not the pattern."""
MOST_DEPTH: Final = 100  # evaluation is recursive

_GRAMMAR: Final = r"""
    ?start: either
    ?either: both (_OR both)*
    ?both: negated (_AND negated)*
    ?negated: _NOT negated -> negation
        | condition
    ?condition: total
        | total COMPARISON total -> compared
        | total _IS _NULL -> is_null
        | total _IS _NOT _NULL -> is_not_null
        | total _BETWEEN total _AND total -> between
        | total _NOT _BETWEEN total _AND total -> not_between
        | total _IN "(" STRING ("," STRING)* ")" -> one_of
        | total _NOT _IN "(" STRING ("," STRING)* ")" -> none_of
        | total _LIKE STRING [_ESCAPE STRING] -> like
        | total _NOT _LIKE STRING [_ESCAPE STRING] -> not_like
    ?total: product (SIGN product)*
    ?product: unary (FACTOR unary)*
    ?unary: SIGN unary -> signed
        | value
    ?value: NAME -> name
        | NUMBER -> number
        | STRING -> string
        | TRUE -> true
        | FALSE -> false
        | "(" either ")" -> nested
    _OR.2: /or(?![\w$.])/i
    _AND.2: /and(?![\w$.])/i
    _NOT.2: /not(?![\w$.])/i
    _IS.2: /is(?![\w$.])/i
    _NULL.2: /null(?![\w$.])/i
    _BETWEEN.2: /between(?![\w$.])/i
    _IN.2: /in(?![\w$.])/i
    _LIKE.2: /like(?![\w$.])/i
    _ESCAPE.2: /escape(?![\w$.])/i
    TRUE.2: /true(?![\w$.])/i
    FALSE.2: /false(?![\w$.])/i
    COMPARISON: "=" | "<>" | "<=" | ">=" | "<" | ">"
    SIGN: "+" | "-"
    FACTOR: "*" | "/"
    NAME: /(?:[^\W\d]|[$])[\w$.]*/ | /"[^"]+"/
    NUMBER: /0[xX][0-9a-fA-F]+[lL]?|(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?[lLdDfF]?/
    STRING: /'([^']|'')*'/
    %ignore /\s+/
"""
_SAID: Final = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a string",
    "COMPARISON": "a comparison",
    "SIGN": '"+" or "-"',
    "FACTOR": '"*" or "/"',
    "LPAR": '"("',
    "RPAR": '")"',
    "COMMA": '","',
    "$END": "the end",
}


_WORD: Final = re.compile(r"""'[^']*(?:'|$)|"[^"]*(?:"|$)|[\w.$]+|\S""")


class SelectorError(ValueError):
    """What was written is no selector: the text names line and column, counted from 1."""


def compile_selector(text: str) -> tuple[Evaluate, tuple[str, Any] | None, int]:
    """Compiles a selector. Returns with it a property and the value that it must have for the selector to select
    (`name = literal`, alone or with AND); None: there is no such one. And how many searches of MOST_STEPS it takes.

    Raises:
        SelectorError: It is no selector.
    """
    if len(text) > MOST_CHARACTERS:
        raise SelectorError(f"a selector has at most {MOST_CHARACTERS} characters, this one {len(text)}")
    words = len(_WORD.findall(text))
    if words > MOST_WORDS:
        raise SelectorError(f"a selector has at most {MOST_WORDS} words, this one {words}")
    try:
        node: _Node = _parser().parse(text)  # type: ignore[assignment]  # what `_Builder` makes
    except UnexpectedInput as error:
        raise _unexpected(error, text) from None
    return node.evaluate, node.needs, node.cost.searches


class _Cost(NamedTuple):
    """searches: LIKE with a pattern that is tried at each place of a value."""

    depth: int = 1
    searches: int = 0


class _Node(NamedTuple):
    """A part of a selector: a property has a `key`, a constant a `constant`."""

    evaluate: Evaluate
    cost: _Cost = _Cost()
    key: str | None = None
    constant: str | int | float | bool | None = None
    needs: tuple[str, Any] | None = None


def _deeper(*nodes: _Node, searches: int = 0) -> _Cost:
    depth = 1 + max(node.cost.depth for node in nodes)
    if depth > MOST_DEPTH:
        raise SelectorError(f"it is nested deeper than {MOST_DEPTH}")
    return _Cost(depth, searches + sum(node.cost.searches for node in nodes))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ordered(name: str, left: Any, right: Any) -> bool | None:
    """A comparison of two values. What cannot be compared is false, and unknown where a value is missing."""
    if left is None or right is None:
        return None
    if isinstance(left, str | bool):
        kind: type = str if isinstance(left, str) else bool
        if name not in ("=", "<>") or not isinstance(right, kind):
            return False
    elif not (_is_number(left) and _is_number(right)):
        return False
    return bool(_COMPARISONS[name](left, right))


_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compared_with(key: str, name: str, wanted: Any) -> Evaluate:
    """The usual comparison, of a property with a constant, in one function."""
    kind: Any = bool if isinstance(wanted, bool) else str if isinstance(wanted, str) else (int, float)
    other: Any = bool if kind == (int, float) else ()
    compare = _COMPARISONS[name] if kind == (int, float) or name in ("=", "<>") else lambda left, right: False

    def evaluate(lookup: Lookup) -> bool | None:
        value = lookup(key)
        if value is None:
            return None
        return isinstance(value, kind) and not isinstance(value, other) and bool(compare(value, wanted))

    return evaluate


def _calculated(sign: str, left: Any, right: Any) -> Any:
    """The result of arithmetic; unknown where a value is missing, is no number, or there is no result."""
    if not (_is_number(left) and _is_number(right)):
        return None
    try:
        if sign == "+":
            return left + right
        if sign == "-":
            return left - right
        if sign == "*":
            return left * right
        if isinstance(left, int) and isinstance(right, int):  # truncated, as Java's
            quotient = abs(left) // abs(right)
            return quotient if (left < 0) == (right < 0) else -quotient
        return left / right
    except (ZeroDivisionError, OverflowError):
        return None


def _negated(value: Any) -> bool | None:
    return not value if isinstance(value, bool) else None


@v_args(inline=True)
class _Builder(Transformer[Token, _Node]):
    """Called by the parser for each rule, from the inside out."""

    def either(self, *nodes: _Node) -> _Node:
        return _Node(_joined([node.evaluate for node in nodes], decisive=True), _deeper(*nodes))

    def both(self, *nodes: _Node) -> _Node:
        needs = next((node.needs for node in nodes if node.needs is not None), None)
        return _Node(_joined([node.evaluate for node in nodes], decisive=False), _deeper(*nodes), needs=needs)

    def negation(self, node: _Node) -> _Node:
        evaluate = node.evaluate
        return _Node(lambda lookup: _negated(evaluate(lookup)), _deeper(node))

    def nested(self, node: _Node) -> _Node:
        return node._replace(cost=_deeper(node))

    def compared(self, left: _Node, sign: Token, right: _Node) -> _Node:
        name, a, b = str(sign), left.evaluate, right.evaluate
        if left.key is not None and right.constant is not None:
            needs = (left.key, right.constant) if name == "=" else None
            return _Node(_compared_with(left.key, name, right.constant), needs=needs)
        return _Node(lambda lookup: _ordered(name, a(lookup), b(lookup)), _deeper(left, right))

    def is_null(self, node: _Node) -> _Node:
        evaluate = node.evaluate
        return _Node(lambda lookup: evaluate(lookup) is None, _deeper(node))

    def is_not_null(self, node: _Node) -> _Node:
        return self.negation(self.is_null(node))

    def between(self, node: _Node, low: _Node, high: _Node) -> _Node:
        at_least = self.compared(node, Token("COMPARISON", ">="), low)
        at_most = self.compared(node, Token("COMPARISON", "<="), high)
        return self.both(at_least, at_most)

    def not_between(self, node: _Node, low: _Node, high: _Node) -> _Node:
        return self.negation(self.between(node, low, high))

    def one_of(self, node: _Node, *strings: Token) -> _Node:
        of, wanted = node.evaluate, frozenset(map(_unquoted, strings))

        def evaluate(lookup: Lookup) -> bool | None:
            value = of(lookup)
            return None if value is None else isinstance(value, str) and value in wanted

        return _Node(evaluate, _deeper(node))

    def none_of(self, node: _Node, *strings: Token) -> _Node:
        return self.negation(self.one_of(node, *strings))

    def like(self, node: _Node, pattern: Token, escape: Token | None = None) -> _Node:
        of = node.evaluate
        mark = None if escape is None else _unquoted(escape)
        if mark is not None and len(mark) != 1:
            raise SelectorError(f"{_place(escape)}the escape must be one character, not {escape!s:.60}")
        matches, searches = _like(_unquoted(pattern), mark)

        def evaluate(lookup: Lookup) -> bool | None:
            value = of(lookup)
            return None if value is None else isinstance(value, str) and matches(value)

        return _Node(evaluate, _deeper(node, searches=searches))

    def not_like(self, node: _Node, pattern: Token, escape: Token | None = None) -> _Node:
        return self.negation(self.like(node, pattern, escape))

    def total(self, first: _Node, *rest: Any) -> _Node:
        steps = [(str(sign), node.evaluate) for sign, node in zip(rest[::2], rest[1::2], strict=True)]
        start = first.evaluate

        def evaluate(lookup: Lookup) -> Any:
            value = start(lookup)
            for sign, each in steps:
                value = _calculated(sign, value, each(lookup))
            return value

        return _Node(evaluate, _deeper(first, *rest[1::2]))

    product = total

    def signed(self, sign: Token, node: _Node) -> _Node:
        evaluate, factor = node.evaluate, -1 if sign == "-" else 1
        return _Node(lambda lookup: _calculated("*", factor, evaluate(lookup)), _deeper(node))

    def name(self, name: Token) -> _Node:
        key = _named(name)
        return _Node(lambda lookup: lookup(key), key=key)

    def number(self, number: Token) -> _Node:
        return _constant(_number(str(number)))

    def string(self, string: Token) -> _Node:
        return _constant(_unquoted(string))

    def true(self, _: Token) -> _Node:
        return _constant(True)

    def false(self, _: Token) -> _Node:
        return _constant(False)


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", propagate_positions=False, maybe_placeholders=True, transformer=_Builder())


def _constant(value: str | int | float | bool) -> _Node:
    return _Node(lambda lookup: value, constant=value)


def _joined(parts: Sequence[Evaluate], *, decisive: bool) -> Evaluate:
    """OR (decisive: True) or AND (decisive: False): a decisive part decides; else an unknown one makes it unknown."""
    other = not decisive

    def evaluate(lookup: Lookup) -> bool | None:
        result: bool | None = other
        for part in parts:
            value = part(lookup)
            if value is decisive:
                return not other
            if value is not other:
                result = None
        return result

    return evaluate


def _like(pattern: str, escape: str | None) -> tuple[Callable[[str], bool], bool]:
    """The pieces between `%` are searched one behind the other; `_` is any character. Returns with it whether one that
    has `_` is searched. All of these take as many steps as the longest does, as each begins where the one before it was
    found."""
    pieces, at = [""], 0
    texts: list[str | None] = [""]  # None: it has `_`
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == escape:
            if at == len(pattern):
                raise SelectorError("a pattern ends with its escape character")
            character = pattern[at]
            at += 1
        elif character == "%":
            pieces.append("")
            texts.append("")
            continue
        elif character == "_":
            pieces[-1] += "."
            texts[-1] = None
            continue
        pieces[-1] += re.escape(character)
        if (text := texts[-1]) is not None:
            texts[-1] = text + character
    first, *middle = [re.compile(piece, re.DOTALL) for piece in pieces]
    if not middle:
        return (lambda value: first.fullmatch(value) is not None), False
    last = re.compile(f"(?:{pieces[-1]})\\Z", re.DOTALL)
    shortest = sum(1 for _ in re.finditer(r"\\.|.", pieces[-1], re.DOTALL))  # characters that the last piece takes

    def matches(value: str) -> bool:
        found = first.match(value)
        if found is None:
            return False
        end = found.end()
        for piece, text in zip(middle[:-1], texts[1:-1], strict=True):
            if text is not None:  # in linear time, and the expression would not be
                end = value.find(text, end) + len(text)
                if end < len(text):
                    return False
                continue
            size = len(piece.pattern)
            if len(value) * size > MOST_STEPS:
                what = f"a value of {len(value)} characters with a piece of {size} of LIKE {pattern!r:.60}"
                raise TooDear(f"{what}: at most {MOST_STEPS} for both, multiplied", len(value) <= LONGEST_COMPARED)
            found = piece.search(value, end)
            if found is None:
                return False
            end = found.end()
        return len(value) - shortest >= end and last.match(value, len(value) - shortest) is not None

    return matches, None in texts[1:-1]


def _named(name: Token) -> str:
    return str(name).strip('"')


def _unquoted(string: Token) -> str:
    return string[1:-1].replace("''", "'")


def _number(text: str) -> int | float:
    if text[:2] in ("0x", "0X"):
        return int(text.rstrip("lL"), 16)
    if text[-1] in "lL":
        digits = text[:-1]
        if digits.isdigit():
            return int(digits)
        value = float(digits)
        if not isfinite(value):
            raise SelectorError(f"{text:.60} is no integer that there is")
        return int(value)
    bare = text.rstrip("dDfF")
    return int(bare) if bare == text and text.isdigit() else float(bare)


def _place(token: Token | None) -> str:
    return "" if token is None else f"line {token.line}, column {token.column}: "


def _unexpected(error: UnexpectedInput, text: str) -> SelectorError:
    place = f"line {error.line}, column {error.column}: "
    if isinstance(error, UnexpectedCharacters):
        found = text[error.pos_in_stream or 0]
        return SelectorError(place + ("a quote that is not closed" if found in "\"'" else f"unexpected {found!r}"))
    assert isinstance(error, UnexpectedToken)
    said = sorted({_SAID.get(name, name.strip("_").upper()) for name in error.expected or {"$END"}})
    expected = ", ".join(said[:-1]) + " or " + said[-1] if len(said) > 1 else said[0]
    if error.token.type == "$END":
        lines = text.split("\n")
        return SelectorError(f"line {len(lines)}, column {len(lines[-1]) + 1}: expected {expected}, found the end")
    return SelectorError(f"{place}expected {expected}, found {str(error.token)!r:.60}")
