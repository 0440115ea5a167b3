"""Files that people edit and disks damage: a topology is a network or problems with their places, a journal is whole
or said to be damaged. Nothing else is raised, and nothing takes long."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceway import topology
from onceway.client.sqlite_journal import SqliteJournal
from onceway.errors import JournalError
from onceway.topology import ConfigError, Problem, Topology
from tests.fuzz.conftest import PROFILE

ROOT = Path(__file__).resolve().parents[2]
FULL = """\
network: triangle
defaults: {host: 127.0.0.1}
settings: {heartbeat: 500ms, dead_after: 3s, memory_limit: 512MiB, max_message_size: 1MiB, window_messages: 10}
limits: {connections: 2000, links: 200, idle_timeout: 5m}
users:
  anonymous: {limits: {connections: 100, max_message_size: 1MiB}}
addresses:
  - match: orders
    type: topic
    guarantee: exactly-once
    subscription_timeout: 60s
    publisher_timeout: 3m
    no_subscribers: hold
    max_redeliveries: 5
    subscriptions: [billing, {container: spark, name: lake}]
    other_subscriptions: refuse
  - {match: "a*", no_subscribers: release}
routers:
  a: {amqp: 5672, interrouter: 7671, admin: 8671, limits: {half_open: 5}}
  b: {amqp: "[::1]:5673", interrouter: 7672, admin: 8672, host: "::1"}
  c: {amqp: 5674, interrouter: 7673, admin: 8673}
links:
  - a - b
  - b - c
  - {between: [a, c], cost: 2, via: "127.0.0.1:9000"}
"""
TEXTS = [FULL, *(path.read_text() for path in sorted((ROOT / "topologies").glob("*.yaml")))]
PIECES = st.sampled_from(
    ["&x ", "*x", "<<: *x", "!!python/object:os.system ", "? ", "- ", ": ", "{", "}", "[", "]", "|\n", "'", '"', "#", "\t",
     "%YAML 9.9\n", "---\n", "...\n", "null", "~", "yes", "1e400", "-1", "0", "99999999999999999999", "0x10", "1_0", "५",
     "١s", "\x00", "\ud800", "\U0001f600", "\u2028", "é", "5s", "5", "MiB", "127.0.0.1:", "[::1]:1", ":1", "a - ", " - b",
     "{between: [a, a]}", "a: {}", "\n", "  "]
)  # fmt: skip
KINDS = ("delete", "insert", "swap", "double", "cut")
EDITS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 4_000), st.integers(0, 60), PIECES), max_size=6)


def edited(text: str, edits: list[tuple[str, int, int, str]]) -> str:
    for kind, place, length, piece in edits:
        place %= len(text) + 1
        if kind == "delete":
            text = text[:place] + text[place + length :]
        elif kind == "insert":
            text = text[:place] + piece + text[place:]
        elif kind == "swap":
            lines = text.splitlines(keepends=True) or [""]
            lines.append(lines.pop(place % len(lines)))
            text = "".join(lines)
        elif kind == "double":
            text = text[: place + length] + text[place:]
        else:
            text = text[:place] or text
    return text


def read_or_problems(text: str) -> Topology | list[Problem]:
    try:
        return topology.loads(text, "t.yaml")
    except ConfigError as error:
        return error.problems


def test_a_topology_is_read_or_its_problems_are_named() -> None:
    @PROFILE
    @given(st.sampled_from(TEXTS), EDITS)
    def named(text: str, edits: list[tuple[str, int, int, str]]) -> None:
        read = read_or_problems(edited(text, edits))
        assert read
        if not isinstance(read, Topology):
            for problem in read:
                assert str(problem).startswith("t.yaml"), problem
                assert problem.remedy, problem

    named()


def test_octets_that_are_no_text_are_a_problem_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    for octets in (b"\xff\xfe\x00", b"network: \xff", b"\x80", bytes(range(256)), "network: t".encode("utf-16")):
        path.write_bytes(octets)
        with pytest.raises(ConfigError) as caught:
            topology.load(path)
        assert all(problem.remedy for problem in caught.value.problems)


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)) + "links: *a59\n",
        "network: &n [*n]\n",
        "network: t\nlinks: &l [*l, *l]\n",
        "network: t\nrouters: &r {a: *r}\n",
        "[" * 5_000,
        "- " * 5_000,
        "{a: " * 5_000,
        "network: " + "n" * 1_000_000,
        "? " * 3_000 + "x",
        "routers: {" + ", ".join(f"r{n}: 5" for n in range(2_000)) + "}",
    ],
    ids=["doubling", "itself", "links", "routers", "brackets", "lists", "mappings", "long", "keys", "many"],
)
def test_a_topology_that_is_a_trap_costs_little(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError):
        topology.loads(text, "t.yaml")
    assert time.process_time() - began < 10.0


# --- journals --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Of a life with publications, some of which have their outcome, and accepted deliveries."""
    path = tmp_path_factory.mktemp("journal") / "whole"
    journal = SqliteJournal(path)
    journal.open("c", lambda: None)
    publisher = journal.publisher("orders", "p")
    publisher.attach(7, 7)
    publisher.publish(0, [b"%d" % n * 40 for n in range(200)])
    journal.sync()
    subscriber = journal.subscriber("orders", "s")
    subscriber.attach(8, 8)
    subscriber.attached(8)
    subscriber.accept([b"tag%d" % n for n in range(100)], b"\x00\x53\x24\x45")
    journal.sync()
    publisher = journal.publisher("orders", "p")
    publisher.forget(3, 20)
    publisher.forget(50, 50)
    journal.sync()
    journal.close()
    return path.read_bytes()


def damage(path: Path) -> str | None:
    """What is said of it when everything that is in it is read, if anything."""
    journal = SqliteJournal(path)
    try:
        journal.open(None, lambda: None)
        for number, payload in journal.publisher("orders", "p").record.undecided:
            assert payload == b"%d" % number * 40
        for tag, outcome in journal.subscriber("orders", "s").record.unsettled.items():
            assert tag.startswith(b"tag")
            assert outcome == b"\x00\x53\x24\x45"
        return None
    except JournalError as error:
        return str(error)
    finally:
        journal.close()


def test_a_damaged_journal_is_said_to_be_damaged_or_gives_what_was_written(journal: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged"

    @PROFILE
    @given(st.integers(0, 2**32), st.sampled_from(["bit", "byte", "zeros", "cut", "moved", "longer"]))
    def damaged(seed: int, how: str) -> None:
        rng = random.Random(seed)
        octets = bytearray(journal)
        place = rng.randrange(len(octets))
        if how == "bit":
            octets[place] ^= 1 << rng.randrange(8)
        elif how == "byte":
            octets[place] = rng.randrange(256)
        elif how == "zeros":
            octets[place : place + 512] = bytes(len(octets[place : place + 512]))
        elif how == "cut":
            del octets[place:]
        elif how == "moved":
            octets[place : place + 64] = octets[:64]
        else:
            octets += rng.randbytes(4096)
        for suffix in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(octets)
        said = damage(path)
        assert said is None or str(path) in said

    damaged()
