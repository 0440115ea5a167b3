"""What a router had in hand when it died is there at the next start."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceway.state import in_hand
from router.border import TELLING, Border
from router.suspects import digest_of
from tests.router.borders import Broken, Idle, Told

BAD = bytes(TELLING)


class Client:
    user: str | None = "ann"
    named: tuple[str | None, bytes] | None = None

    def end_on_error(self, text: str) -> None:
        raise AssertionError(text)

    def said(self) -> dict[str, Any]:
        return {"client": "1.2.3.4:5", "user": self.user, "container": "c" * 5_000}


def died(path: Path, handle: Callable[[Idle], None], given: bytes = BAD) -> in_hand.Left | None:
    """What a process leaves that ends while it handles this, or behind that."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        core = Idle()
        border = Border(core, Told())
        border.memory = in_hand.mapped(path)
        in_hand.note_faults(path)
        try:
            border.input(Client(), lambda given, now: handle(core), given, 0.0)
        except Broken:
            border.ended()
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    return in_hand.left(path, faulty=in_hand.fault(path) is not None)


def fail_within_the_core(core: Idle) -> None:
    core.entered = 1.0
    raise Broken


def test_an_error_within_the_core_leaves_who_sent_it_and_its_digest(tmp_path: Path) -> None:
    path = in_hand.path_of(tmp_path, "a")
    assert in_hand.left(path) is None
    left = died(path, fail_within_the_core)
    assert left == in_hand.Left("1.2.3.4:5", "ann", "c" * 100, digest_of(BAD), True)


def test_octets_that_everybody_sends_have_no_digest(tmp_path: Path) -> None:
    left = died(in_hand.path_of(tmp_path, "a"), fail_within_the_core, b"\x00\x00\x00\x08\x02\x00\x00\x00")
    assert left == in_hand.Left("1.2.3.4:5", "ann", "c" * 100, b"", True)


def test_a_router_that_is_killed_leaves_what_it_had_in_hand(tmp_path: Path) -> None:
    left = died(in_hand.path_of(tmp_path, "a"), lambda _: os.kill(os.getpid(), 9))
    assert left == in_hand.Left("1.2.3.4:5", "ann", "c" * 100, b"", False)


@pytest.mark.parametrize(
    ("number", "what"),
    [(signal.SIGSEGV, "Segmentation fault"), (signal.SIGABRT, "Aborted"), (signal.SIGBUS, "Bus error")],
)
def test_a_fatal_signal_ends_a_router_as_an_error_does_and_says_where(
    tmp_path: Path, number: signal.Signals, what: str
) -> None:
    path = in_hand.path_of(tmp_path, "a")

    def crash(core: Idle) -> None:
        os.kill(os.getpid(), number)

    assert died(path, crash) == in_hand.Left("1.2.3.4:5", "ann", "c" * 100, b"", True)
    found = in_hand.fault(path)
    assert found.what == what
    assert found.at[0].endswith(" crash")
    assert os.stat(path.with_suffix(in_hand.FAULT)).st_mode & 0o777 == 0o600
    assert died(path, lambda _: None) is None, "the next life begins with nothing"
    assert in_hand.fault(path) is None


def test_what_was_handled_is_not_in_hand(tmp_path: Path) -> None:
    assert died(in_hand.path_of(tmp_path, "a"), lambda _: None) is None


@pytest.mark.parametrize(
    "octets",
    [b"", b"\x02", b"\x02\x00\x05{}x{}" + bytes(5_000), b"\x02\x0f\xff" + b"[" * 5_000],
    ids=["empty", "short", "no document", "nested"],
)
def test_a_file_that_no_router_has_written_says_nothing(tmp_path: Path, octets: bytes) -> None:
    path = in_hand.path_of(tmp_path, "a")
    path.write_bytes(octets)
    assert in_hand.left(path) is None
