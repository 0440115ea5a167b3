"""`onceway queue`: what it prints and how it ends, with a member that serves beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edges.queue.codec import Kept, made, plain
from edges.queue.messages import AcceptedAt, Ballot, Element, ElementId, Phase1B, Serial, Value
from onceway.errors import UsageError
from tests.cli.conftest import called, onceway
from tests.live import LiveNetwork
from tests.running import module


def test_an_element_goes_in_and_comes_out_once(tmp_path: Path) -> None:
    network = LiveNetwork(tmp_path / "network")
    group = ("jobs", "--members", "x,y,z", "--data", str(tmp_path), "--url", network.urls())
    try:
        network.start()
        serve = ("onceway", "queue", "serve", *group, "--name")
        with module(*serve, "x"), module(*serve, "z"):
            assert onceway("queue", "enqueue", *group, "--name", "y", "one element").returncode == 0
            assert onceway("queue", "length", *group, "--name", "y").stdout == "1\n"
            assert onceway("queue", "members", *group, "--name", "y").stdout == "x\ny\nz\n"
            taken = onceway("queue", "dequeue", *group, "--name", "y")
            assert (taken.returncode, taken.stdout) == (0, "one element\n")
            taken = onceway("queue", "dequeue", *group, "--name", "y")
            assert (taken.returncode, taken.stdout) == (1, "")
            (elsewhere := tmp_path / "elsewhere").mkdir()
            late = onceway("queue", "serve", *group, "--name", "y", "--data", str(elsewhere))  # ends by itself
            assert late.returncode == 1
            assert f"in {elsewhere}/jobs.y.queue, and do not hear it: give it the directory that" in late.stderr
    finally:
        network.close()


def test_a_name_that_is_no_member_is_bad_input(tmp_path: Path) -> None:
    refused = called("queue", "length", "jobs", "--members", "x,y", "--name", "z", "--data", str(tmp_path))
    assert refused.returncode == 2
    assert "z is not among --members x,y" in refused.stderr


def test_a_directory_that_is_missing_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere/jobs\.x\.queue: .*; is the directory there"):
        Kept(tmp_path / "nowhere" / "jobs.x.queue")
    first = Kept(tmp_path / "jobs.x.queue")
    with pytest.raises(UsageError, match="another process is this member"):
        Kept(tmp_path / "jobs.x.queue")
    first.close()


def test_what_members_say_is_the_same_after_the_wire() -> None:
    element = Element(ElementId("a", 1, 2), b"body")
    accepted = AcceptedAt(3, Ballot(2, "b"), Value("c", Serial(1, 1), element))
    said = Phase1B("c", Ballot(2, "b"), Ballot(2, "b"), (accepted,), 3, None)
    assert made(plain(said)) == said
    assert made(plain(element)) == element
