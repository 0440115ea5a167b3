"""Changes bytes, sees which lines of the engine that reaches, keeps what reached new ones; makes a find smaller.

Knows frames just enough to change the inside of one and leave its size right: bytes that fail at the frame's head
teach little. Coverage comes from sys.settrace, lines and what line came before, in amqp10, router, interrouter, and
where tokens and users are checked, PyJWT among it. Next: running.py for what is run.
"""

from __future__ import annotations

import random
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import jwt

from chaos.fuzz import running
from chaos.fuzz.targets import Broken, frames

ROOT: Final = Path(__file__).resolve().parent.parent.parent
WATCHED: Final = (
    *(
        str(ROOT / place)
        for place in ("amqp10", "router", "interrouter", "onceway/access/tokens.py", "onceway/access/users.py")
    ),
    str(Path(jwt.__file__).parent),
)
HANG_S: Final = 5.0
LONGEST: Final = 4096
INTERESTING: Final = (0, 1, 2, 0x40, 0x41, 0x43, 0x45, 0x52, 0x53, 0x70, 0x7F, 0x80, 0xA0, 0xB0, 0xC0, 0xD0, 0xE0, 0xFF)
WORDS: Final = (b"null", b"[]", b"{}", b'""', b"1e400", b"-1", b"9" * 400, b"none", b",", b"=")  # of JSON and SCRAM

Edge = tuple[CodeType, int, int]


class Hang(Broken):
    """It took far too long."""


def _hang(signum: int, frame: FrameType | None) -> None:
    raise Hang(f"no end after {HANG_S} s")


@contextmanager
def bounded() -> Iterator[None]:
    """Hang after a while, where the platform can tell."""
    before = signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def failure(target: str, data: bytes) -> BaseException | None:
    """What running this input raises: anything at all is a find."""
    try:
        with bounded():
            running.run(target, data)
    except Exception as error:  # noqa: BLE001  that is the question
        return error
    return None


def covered(target: str, data: bytes) -> set[Edge]:
    """Lines reached, with the line before, in one plain run; `failure` must have found nothing."""
    edges: set[Edge] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if not code.co_filename.startswith(WATCHED):
            return None
        before = 0

        def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            nonlocal before
            if event == "line":
                edges.add((code, before, frame.f_lineno))
                before = frame.f_lineno
            return line

        return line

    sys.settrace(enter)
    try:
        running.reach(target, data)
    finally:
        sys.settrace(None)
    return edges


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One to four changes; `other` is what may be spliced in."""
    parts = frames(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        choice = rng.random()
        if choice < 0.55 and parts:
            place = rng.randrange(len(parts))
            parts[place] = _inside(parts[place], rng)
        elif choice < 0.65 and parts:
            del parts[rng.randrange(len(parts))]
        elif choice < 0.78 and parts:
            place = rng.randrange(len(parts))
            parts[place:place] = [parts[place]] * rng.choice((1, 2, 8, 20))
        elif choice < 0.85 and len(parts) > 1:
            one, two = rng.randrange(len(parts)), rng.randrange(len(parts))
            parts[one], parts[two] = parts[two], parts[one]
        else:
            others = frames(other)
            if others:
                start = rng.randrange(len(others))
                place = rng.randrange(len(parts) + 1)
                parts[place:place] = others[start : start + rng.randint(1, 4)]
    return b"".join(parts)[:LONGEST]


def _inside(part: bytes, rng: random.Random) -> bytes:
    """A change in one frame; its size put right most of the time."""
    changed = bytearray(part)
    framed = len(part) > 8 and int.from_bytes(part[:4], "big") == len(part)
    sized = framed and rng.random() < 0.95
    first = 4 if sized else 0
    if len(changed) <= first:
        return bytes(changed)
    if not framed and rng.random() < 0.5:  # text: a word of it
        words = re.split(rb"([][{},:.=\0])", part)
        words[rng.randrange(0, len(words), 2)] = rng.choice((*WORDS, rng.choice(words)))
        return b"".join(words)
    place = rng.randrange(first, len(changed))
    choice = rng.random()
    if choice < 0.35:
        changed[place] = rng.choice(INTERESTING)
    elif choice < 0.5:
        changed[place] ^= 1 << rng.randrange(8)
    elif choice < 0.65:
        changed[place] = (changed[place] + rng.choice((-1, 1, 2, -2))) & 0xFF
    elif choice < 0.8:
        changed[place:place] = rng.choice(
            (bytes((rng.choice(INTERESTING),)), rng.randbytes(rng.randint(1, 8)), changed[place : place + 8])
        )
    elif choice < 0.92:
        del changed[place : place + rng.randint(1, 8)]
    else:
        changed[place : place + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0"))
    if sized and len(changed) >= 8:
        changed[:4] = len(changed).to_bytes(4, "big")
    return bytes(changed)


def smaller(target: str, data: bytes, tries: int = 400) -> bytes:
    """The input with frames, then bytes, left out for as long as it fails with the same kind of error."""
    kind = type(failure(target, data))

    def fails(candidate: bytes) -> bool:
        nonlocal tries
        tries -= 1
        return tries >= 0 and type(failure(target, candidate)) is kind

    parts = frames(data)
    place = len(parts) - 1
    while place >= 0:
        candidate = parts[:place] + parts[place + 1 :]
        if fails(b"".join(candidate)):
            parts = candidate
        place -= 1
    data = b"".join(parts)
    step = max(len(data) // 2, 1)
    while step:
        start = 0
        while start < len(data):
            shorter = data[:start] + data[start + step :]
            if fails(shorter):
                data = shorter
            else:
                start += step
        step //= 2
    return data
