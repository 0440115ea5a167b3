"""The history of one run: who sent, was told, was handed and accepted what, and when; one JSON object a line.

A history is a directory of `*.jsonl` files, one per process.  `t` is in seconds of CLOCK_MONOTONIC, the same clock for
every process of the machine, and never runs backwards inside a file.  `FIELDS` below is the whole format; fields it
does not name are ignored.  docs/chaos.md says when each line is written, which is what the verdict rests on:

    start     a client's process begins, again after a kill: what the one before had in hand is let go
    send      before the message is handed to the client library
    ready     after the answer to the subscriber's attach: the first one, and the first after being told of a gap
    receive   when a delivery comes to the application as a new one; before `accept`
    accept    when the accept is the client's for good
    close     before the client is asked to close

Knows the lines, not what they mean: next is judge.py.
"""

from __future__ import annotations

import heapq
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from router.names import GUARANTEES

NUMBER = (int, float)
_MOST = 1e300
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "run": {"publishers": list, "subscribers": list},
    "start": {},
    "send": {"p": str, "n": int},
    "outcome": {"p": str, "n": int, "outcome": str},
    "ready": {"s": str},
    "receive": {"s": str, "p": str, "n": int},
    "accept": {"s": str, "p": str, "n": int},
    "told": {"why": str},
    "attached": {"router": str},
    "close": {},
    "fault": {"kind": str, "target": str},
    "router": {"name": str, "state": str},
    "note": {"text": str},
    "end": {"drained": bool},
}
"""op -> the fields that it must have, beside `op` and `t`."""
ONE_CLIENT = frozenset({"start", "told", "attached", "close"})
"""These are about a publisher, `p`, or a subscriber, `s`."""
OUTCOMES = ("accepted", "rejected", "undecided")
GLOB = "*.jsonl"


class HistoryError(Exception):
    """The history cannot be read; the text begins with file:line."""


class Event(NamedTuple):
    t: float
    file: str
    line: int
    op: str
    fields: Mapping[str, Any]

    @property
    def client(self) -> tuple[str, str]:
        """("p" or "s", name) of start, told, attached and close."""
        return ("p", self.fields["p"]) if isinstance(self.fields.get("p"), str) else ("s", self.fields["s"])


class Writer:
    """Appends events to one file, each with a single write, so that they outlive a kill -9 of the process.

    A line that an earlier process left torn is cut off.  `t` may be given; it is never before the line before.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = Path(path)
        self._clock = clock
        self._last = 0.0
        self._cut_torn_line()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    def write(self, op: str, *, t: float | None = None, **fields: Any) -> None:
        self._append(self._line(op, t, fields))

    # A message's lines by hand: several thousand a second come from processes that have other things to do.
    def send(self, p: str, n: int) -> None:
        self._append(f'{{"op":"send","p":{json.dumps(p)},"n":{n},"t":{self._now():.6f}}}\n')

    def outcome(self, p: str, n: int, outcome: str) -> None:
        self._append(f'{{"op":"outcome","p":{json.dumps(p)},"n":{n},"outcome":"{outcome}","t":{self._now():.6f}}}\n')

    def receive(self, s: str, *deliveries: tuple[str, int]) -> None:
        """Deliveries that come to the application together are several lines in one write."""
        self._deliveries("receive", s, deliveries)

    def accept(self, s: str, *deliveries: tuple[str, int]) -> None:
        self._deliveries("accept", s, deliveries)

    def _deliveries(self, op: str, s: str, deliveries: tuple[tuple[str, int], ...]) -> None:
        head, t = f'{{"op":"{op}","s":{json.dumps(s)},"p":', self._now()
        self._append("".join(f'{head}{json.dumps(p)},"n":{n},"t":{t:.6f}}}\n' for p, n in deliveries))

    def _line(self, op: str, t: float | None, fields: dict[str, Any]) -> str:
        if op not in FIELDS:
            raise ValueError(f"no such event: {op}")
        return json.dumps({"op": op, **fields, "t": round(self._now(t), 6)}, separators=(",", ":")) + "\n"

    def _now(self, t: float | None = None) -> float:
        self._last = max(self._last, self._clock() if t is None else t)
        return self._last

    def _append(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(self._fd, data) :]

    def _cut_torn_line(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            end = file.seek(0, os.SEEK_END)
            whole = end
            while whole:
                start = max(0, whole - 4096)
                file.seek(start)
                newline = file.read(whole - start).rfind(b"\n")
                if newline >= 0:
                    whole = start + newline + 1
                    break
                whole = start
            if whole < end:
                file.truncate(whole)


def files(directory: str | Path) -> list[Path]:
    directory = Path(directory)
    if not directory.is_dir():
        raise HistoryError(f"{directory}: no such directory")
    found = sorted(directory.glob(GLOB))
    if not found:
        raise HistoryError(f"{directory}: no {GLOB} in it, so no history")
    return found


def read_file(path: Path) -> Iterator[Event]:
    """In the file's order.  A last line that is not whole was torn by a kill: left out."""
    last = float("-inf")
    with path.open("rb") as file:
        number, line = 0, file.readline()
        while line:
            number, following = number + 1, file.readline()
            try:
                event = parse(line, path.name, number)
            except HistoryError:
                if following:
                    raise
                return
            if event.t < last:
                raise HistoryError(f"{path.name}:{number}: t runs backwards, from {last:.6f} to {event.t:.6f}")
            last = event.t
            yield event
            line = following


def read(directory: str | Path) -> Iterator[Event]:
    """Every event of the run by time; at the same time by file, then by line.  Holds one event of each file."""
    # The key is (t, file, line): two events are never equal, so the rest of the tuple is never compared.
    return heapq.merge(*(read_file(path) for path in files(directory)))


def parse(line: bytes, name: str, number: int) -> Event:
    """One line, with or without its newline."""
    try:
        fields = json.loads(line)
        if b"\\u" in line or not line.isascii():
            json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise HistoryError(f"{name}:{number}: not JSON: half a character (a surrogate)") from None
    except json.JSONDecodeError as error:
        raise HistoryError(f"{name}:{number}: not JSON: {error.msg} (char {error.pos})") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, thousands of digits, thousands of brackets
        raise HistoryError(f"{name}:{number}: not JSON: {error}") from None
    if (wrong := complaint(fields)) is not None:
        raise HistoryError(f"{name}:{number}: {wrong}")
    return Event(fields["t"], name, number, fields["op"], fields)


def complaint(fields: Any) -> str | None:
    """What is wrong with a line, None where nothing is."""
    if not isinstance(fields, dict):
        return "not an object"
    op, t = fields.get("op"), fields.get("t")
    if not isinstance(op, str) or op not in FIELDS:
        return f"no such op: {op!r}; there are {', '.join(FIELDS)}"
    if not _is_number(t):
        return f"{op}: t is {t!r}, not seconds"
    for field, kind in FIELDS[op].items():
        if type(fields.get(field)) is not kind:
            return f"{op}: {field} is {fields.get(field)!r}"
    if "n" in FIELDS[op] and not 0 <= fields["n"] < 2**63:
        return f"{op}: n is {fields['n']}, not 0 to 2**63 - 1"
    if op in ONE_CLIENT and isinstance(fields.get("p"), str) == isinstance(fields.get("s"), str):
        return f"{op}: of a publisher (p) or a subscriber (s)"
    if op == "outcome" and fields["outcome"] not in OUTCOMES:
        return f"outcome: {fields['outcome']!r} is none of {', '.join(OUTCOMES)}"
    if op == "run":
        return _declarations_complaint(fields)
    return None


def _is_number(value: Any) -> bool:
    """One that a float can be."""
    return isinstance(value, NUMBER) and not isinstance(value, bool) and abs(value) < _MOST


def _declarations_complaint(fields: dict[str, Any]) -> str | None:
    for role in ("publishers", "subscribers"):
        names = set()
        for one in fields[role]:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                return f"run: {role} has an entry without a name"
            if one["name"] in names:
                return f"run: {role} has {one['name']} twice"
            names.add(one["name"])
            if one.get("guarantee", GUARANTEES[0]) not in GUARANTEES:
                return f"run: {one['name']}: guarantee {one['guarantee']!r} is none of {', '.join(GUARANTEES)}"
            wait = one.get("timeout_s", 0.0)
            if not _is_number(wait):
                return f"run: {one['name']}: timeout_s is {wait!r}"
    return None
