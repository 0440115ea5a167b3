"""What cites docs/protocol, and what it cites: sections, pictures; and what shows its rules.

A section that holds no rule says so by the comment `<!-- no rules -->` below its heading.
"""

from __future__ import annotations

import importlib.util
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from chaos.simulation.defects.mutations import TAKEN
from scripts.rules import (
    CITATION,
    LIST,
    PAGES,
    ROOT,
    RULE,
    definitions,
    joined,
    listed,
    not_shown,
    rules,
    shown,
)

SOURCES = ("amqp10", "router", "interrouter", "onceway", "chaos", "tests", "bench")
RULED = ("router", "interrouter", "onceway/client")  # one of these does what a rule says

OTHERS = re.compile(rf"\b(?:protocol|AMQP|contract|RFC|Python|Spark|version)[ -]{LIST}|https?://\S+", re.IGNORECASE)
FORMER = re.compile(r"\bPROTOCOL\b|\bcontract G\d")
UNIT = r"(?! ?(?:us|ms|s|seconds|KiB|MiB|GiB|%|times|of)\b)"
BARE = re.compile(rf"(?<![\w.$-])(\d+\.\d+)(?![\w.]*\d|%){UNIT}")
CHAPTER = re.compile(r'(?:(?<=[ \n])\(|^# |^""")(\d+)(?:\)|: )')
ANYWHERE = re.compile(CHAPTER.pattern.replace("^", "").replace(r"(?<=[ \n])", ""))  # in code, too
STARTS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)  # of a statement
HEADING = re.compile(r"^(#{2,3}) (\d+(?:\.\d+)?) .*\n(?:\n<!-- (no rules) -->)?", re.MULTILINE)


@cache
def page() -> str:
    """All pages of the protocol, one behind the other."""
    return "\n".join(page.read_text() for page in PAGES)


def numbers() -> set[str]:
    """Of all chapters, sections and rules."""
    found = {number for _, number, _ in HEADING.findall(page())} | set(RULE.findall(page()))
    return found | {number.split(".")[0] for number in found}


def sections_with_rules() -> set[str]:
    """Those without sections of their own, but for what says that it has no rules."""
    found = {number: prose for _, number, prose in HEADING.findall(page())}
    parents = {number.split(".")[0] for number in found if "." in number}
    return {number for number, prose in found.items() if number not in parents and not prose}


def sources(*places: str) -> Iterator[Path]:
    for place in places:
        yield from (path for path in sorted((ROOT / place).rglob("*.py")) if path != Path(__file__))


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def cited(path: Path) -> Iterator[str]:
    for text in CITATION.findall(joined(path.read_text())):
        yield from listed(text)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The comments and docstrings of a module, with their lines."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        docstring = token.type == tokenize.STRING and before in STARTS
        if docstring or token.type == tokenize.COMMENT:
            yield token.start[0], token.string
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING):
            before = token.type


def test_each_number_is_there_once() -> None:
    found = [number for _, number, _ in HEADING.findall(page())] + RULE.findall(page())
    assert [number for number in sorted(set(found)) if found.count(number) > 1] == []


def test_rules_stand_below_the_heading_of_their_section() -> None:
    for path in PAGES:
        for part in re.split(r"^(?=## )", path.read_text(), flags=re.MULTILINE)[1:]:
            heading = HEADING.match(part)
            for rule in RULE.findall(part):
                assert heading is not None, f"{path.name}: {rule}"
                assert rule.startswith(f"{heading[2]}."), f"{path.name}: {rule}"


def test_no_rule_is_longer_than_sixty_words() -> None:
    """Nor any point of its list, or row of its table; but for the fields of messages."""
    long: list[str] = []
    for number, text in re.findall(
        r"^\*\*(\d+(?:\.\d+)+)\*\* (.*?)(?=^\*\*\d|^#|\Z)", page(), re.MULTILINE | re.DOTALL
    ):
        parts = re.split(r"\n\n|\n(?=- |\| )", text)
        long += [f"{number}: {part}" for part in parts if len(re.findall(r"\S*\w\S*", part)) > 60]
    assert [rule for rule in long if not rule.startswith("3.4.1: | 0 | HELLO ")] == []


def test_the_index_names_the_page_of_every_section() -> None:
    index = (ROOT / "docs" / "protocol" / "README.md").read_text()
    rows = re.findall(r"^\| (?:\[[^\]]*\]\((.*?)\)|this page) \| (.*) \|$", index, re.MULTILINE)
    named = {number: path or "README.md" for path, rules in rows for number in listed(rules)}
    for path in PAGES:
        for _, number, _ in HEADING.findall(path.read_text()):
            assert named.get(number, named.get(number.partition(".")[0])) == path.name, number


def test_numbers_of_rules_go_up_by_one_within_their_section() -> None:
    before: tuple[int, ...] = ()
    for number in RULE.findall(page()):
        this = tuple(map(int, number.split(".")))
        assert this in ((*before[:-1], before[-1] + 1) if before else (), (*this[:-1], 1)), number
        before = this


def test_what_is_cited_is_there() -> None:
    known = numbers()
    places = (*sources(*SOURCES), *pages())
    wrong = {str(path.relative_to(ROOT)): sorted(set(cited(path)) - known) for path in places}
    assert {place: unknown for place, unknown in wrong.items() if unknown} == {}


def test_every_section_with_a_rule_is_cited_where_it_is_done() -> None:
    found = {".".join(number.split(".")[:2]) for path in sources(*RULED) for number in cited(path)}
    found |= {number.split(".")[0] for number in found}
    assert sorted(sections_with_rules() - found) == []


def test_citations_have_one_form() -> None:
    sections = sections_with_rules()
    wrong: list[str] = []
    for path in (*sources(*SOURCES), *pages()):
        place = path.relative_to(ROOT)
        for line, text in enumerate(path.read_text().splitlines(), 1):
            if FORMER.search(text):
                wrong.append(f"{place}:{line}: {text.strip()}")
        if path.suffix != ".py" or "amqp10" in place.parts:  # a number there is a section of AMQP
            continue
        whole = path.read_text()
        if sections.isdisjoint((*BARE.findall(whole), *ANYWHERE.findall(whole))):
            continue
        for line, text in prose(path):
            text = OTHERS.sub("", joined(text))
            bare = [number for number in (*BARE.findall(text), *CHAPTER.findall(text)) if number in sections]
            wrong += [f"{place}:{line}: {number} of what?" for number in bare]
    assert wrong == []


def test_definitions_are_rules_that_nothing_shows() -> None:
    assert sorted(set(definitions()) - set(rules())) == []
    assert [rule for rule in definitions() if shown()[rule]] == []


def test_rules_that_nothing_shows_become_fewer() -> None:
    """Who adds a rule adds what fails without it; who names more lowers this."""
    assert len(not_shown()) <= 56


def test_every_rule_that_a_defect_takes_away_is_named_by_its_schedule() -> None:
    named = {name for names in shown().values() for name in names}
    assert sorted(TAKEN.keys() - named) == []


def test_pictures_are_as_their_texts_say() -> None:
    folder = ROOT / "docs" / "diagrams"
    spec = importlib.util.spec_from_file_location("make", folder / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    texts = sorted(folder.glob("*.txt"))
    assert len(texts) == 11
    for text in texts:
        assert text.with_suffix(".svg").read_text() == make.Picture(text.read_text()).svg(), text.name
        assert f"diagrams/{text.stem}.svg" in page()
    for stem, table in make.HANDSHAKES.items():
        assert (folder / f"{stem}.svg").read_text() == make.handshake(*table), stem
        assert f"diagrams/{stem}.svg" in page()
