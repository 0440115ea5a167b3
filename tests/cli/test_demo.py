"""`onceway demo`, and its judge."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from onceway.demo.lake_audit import Audit, Publisher, Sums
from onceway.demo.ledger import Line, PublisherNotes, SubscriberNotes, judge
from onceway.spark.session import missing
from tests.cli.conftest import onceway

PUBLISHERS = [PublisherNotes("p", published=3, accepted=3), PublisherNotes("q", published=2, accepted=2)]
ALL = [("p", 0), ("q", 0), ("p", 1), ("q", 1), ("p", 2)]


def line(handed: list[tuple[str, int]]) -> Line:
    return judge(PUBLISHERS, [SubscriberNotes("s", handed)]).lines[0]


def test_the_ledger_is_clean_when_all_came_once_in_each_publishers_order() -> None:
    ledger = judge(PUBLISHERS, [SubscriberNotes("s", ALL), SubscriberNotes("t", sorted(ALL))])
    assert (ledger.published, ledger.accepted, ledger.clean) == (5, 5, True)
    assert ledger.lines[0] == Line("s", delivered=5, lost=0, duplicate=0, out_of_order=0, unknown=0)


@pytest.mark.parametrize(
    ("handed", "expected"),
    [
        (ALL[:-1], Line("s", 4, lost=1, duplicate=0, out_of_order=0, unknown=0)),
        ([*ALL, ("p", 0)], Line("s", 5, lost=0, duplicate=1, out_of_order=0, unknown=0)),
        (ALL[2:] + ALL[:2], Line("s", 5, lost=0, duplicate=0, out_of_order=2, unknown=0)),
        ([*ALL, ("p", 3), ("r", 0)], Line("s", 5, lost=0, duplicate=0, out_of_order=0, unknown=2)),
        ([], Line("s", 0, lost=5, duplicate=0, out_of_order=0, unknown=0)),
    ],
)
def test_the_ledger_names_what_went_wrong(handed: list[tuple[str, int]], expected: Line) -> None:
    assert line(handed) == expected
    assert not expected.clean


def test_what_was_published_and_not_accepted_spoils_the_ledger() -> None:
    assert not judge([PublisherNotes("p", published=1, accepted=0)], [SubscriberNotes("s", [("p", 0)])]).clean


WEB = Publisher("web", messages=3, lost=0, duplicate=0, out_of_order=0)
SUMS = Sums(orders=3, late=1, cents=30)
LAKE = Audit((WEB,), messages=3, repeated=0, missing=0, lake=SUMS, totals=SUMS)


@pytest.mark.parametrize(
    ("lake", "delivered", "lost", "duplicate", "clean"),
    [
        (LAKE, 3, 0, 0, True),
        (replace(LAKE, publishers=(replace(WEB, messages=2, lost=1),), messages=2), 2, 1, 0, False),
        (replace(LAKE, publishers=(replace(WEB, messages=4, duplicate=1),), messages=4), 3, 0, 1, False),
        (replace(LAKE, publishers=(), messages=0), 0, 3, 0, False),
        (replace(LAKE, messages=4), 3, 0, 0, False),
        (replace(LAKE, totals=replace(SUMS, late=0)), 3, 0, 0, False),
        (replace(LAKE, lake=replace(SUMS, cents=29), totals=replace(SUMS, cents=29)), 3, 0, 0, False),
    ],
)
def test_the_lake_is_judged_by_what_was_published(
    lake: Audit, delivered: int, lost: int, duplicate: int, clean: bool
) -> None:
    ledger = judge([PublisherNotes("web", published=3, accepted=3, late=1, cents=30)], [], lake)
    line = ledger.lines[0]
    assert (line.delivered, line.lost, line.duplicate, ledger.clean) == (delivered, lost, duplicate, clean)


def test_the_demo_kills_routers_and_ends_with_a_clean_ledger_with_tls_users_and_policies(tmp_path: Path) -> None:
    kills = ["--kill", "a", "--kill", "c"]
    done = onceway("demo", "--secure", "--count", 4000, "--rate", 4000, *kills, "--keep", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    assert "TLS both ways everywhere, clients log in, policies" in done.stderr
    assert "network triangle ready: 3 routers, 3 links" in done.stderr
    for kill in ("a", "c"):
        assert f"kill -9 router {kill} (pid " in done.stderr
        assert f"router {kill} is back after " in done.stderr
    assert "published 4,000, accepted 4,000" in done.stdout
    for name in ("billing", "shipping", "audit"):
        cells = next(row for row in done.stdout.splitlines() if name in row).replace("│", " ").split()
        assert cells == [name, "4,000", "0", "0", "0"]
    log = (tmp_path / "demo" / "routers.log").read_text()
    for secret in (tmp_path / "demo" / "pki").glob("*.password"):
        assert secret.read_text().strip() not in log
        assert secret.stat().st_mode & 0o077 == 0

    again = onceway("demo", "--keep", tmp_path / "demo")
    assert again.returncode == 2
    assert "a journal of an earlier demo" in again.stderr


@pytest.mark.slow
def test_the_demo_ends_with_a_lake_that_holds_each_message_once(tmp_path: Path) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    done = onceway("demo", "--count", 4000, "--rate", 4000, "--keep", tmp_path / "demo", bound_s=280)
    assert done.returncode == 0, done.stderr
    assert "4,000 messages are in the lake" in done.stderr
    rows = [row.replace("│", " ").split() for row in done.stdout.splitlines()]
    assert ["lake", "(Spark)", "4,000", "0", "0", "0"] in rows
    sums = {row[0]: row[1:] for row in rows if len(row) == 4}
    assert sums["published"][:2] == ["4,000", "80"]
    assert sums["published"] == sums["lake"] == sums["totals"]


def test_without_spark_and_where_a_port_is_taken_the_demo_says_what_is_missing_and_does_the_rest(
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'pyspark' else find(name, *a)\n"
    )
    try:
        taken = socket.create_server(("127.0.0.1", 5672))
    except OSError:  # somebody else has it, which does as well
        taken = socket.socket()
    with taken:
        done = onceway("demo", "--count", 500, "--rate", 2000, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "without Spark's part: pyspark is not installed: pip install 'onceway[spark]'" in " ".join(
        done.stderr.split()
    )
    assert "kill -9 router c (pid " in done.stderr
    assert "router c is back after " in done.stderr
    assert "published 500, accepted 500" in done.stdout
    assert "lake" not in done.stdout


def test_a_router_that_is_not_there_cannot_be_killed() -> None:
    done = onceway("demo", "--no-spark", "--kill", "z")
    assert done.returncode == 2
    assert "no router z to kill; there are a, b, c" in done.stderr
