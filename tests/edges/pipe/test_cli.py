"""`onceway pipe`: what it prints, where, and how it ends."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.live.ports import free_port
from edges.pipe import push
from onceway.base.waits import PIPE_STORE
from tests.cli.conftest import called, onceway
from tests.edges.pipe.network import PipeNetwork
from tests.live import ROOT, wait_until
from tests.running import module
from tests.serving import until


def test_lines_go_in_and_come_out(network: PipeNetwork, pipe: str) -> None:
    assert onceway("pipe", "push", pipe, "two words", "--url", network.urls()).returncode == 0
    pushed = onceway("pipe", "push", pipe, "--url", network.urls(), stdin=b"one\ntwo  blanks\n\nlast")
    assert (pushed.returncode, pushed.stdout) == (0, "")
    pulled = onceway("pipe", "pull", pipe, "--url", network.urls())
    assert pulled.stdout == "two words\none\ntwo  blanks\n\nlast\n"
    assert pulled.returncode == 0
    (sent_on,) = (
        line for line in network.logs().splitlines() if f"'{pipe}' is a pipe: it is read at its stores" in line
    )
    assert " info " in sent_on  # each pull begins so: nobody need look at it
    assert onceway("pipe", "pull", pipe, "--store", network.store_url(), "--count", 1).stdout == "two words\n"
    assert onceway("pipe", "pull", pipe, "--url", network.urls(), "--from", 3).stdout == "\nlast\n"
    removed = onceway("pipe", "reset", pipe, "--url", network.urls())
    assert (removed.returncode, removed.stdout) == (0, "5\n")
    assert onceway("pipe", "pull", pipe, "--url", network.urls()).stdout == ""


def test_count_waits_for_what_is_not_there_yet(network: PipeNetwork, pipe: str) -> None:
    with module("onceway", "pipe", "pull", pipe, "--url", network.urls(), "--count", 2) as pulling:
        assert onceway("pipe", "push", pipe, "--url", network.urls(), stdin=b"a\nb\nc\n").returncode == 0
        assert pulling.rest() == ["a", "b"]


def test_a_terminal_has_a_prompt_and_the_line_reset(network: PipeNetwork, pipe: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "onceway", "pipe", "push", pipe, "--url", network.urls()]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as pushing:
        os.close(theirs)
        os.write(ours, b"first\nsecond\nRESET\nthird\n\x04")
        out, error = pushing.communicate(timeout=60)
    os.close(ours)
    assert out == b"> > > > > \n"
    assert error == b"[reset] 2 messages removed\n"
    assert onceway("pipe", "pull", pipe, "--url", network.urls()).stdout == "third\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pull"], "Usage: onceway pipe pull"),
        (["pull", "x", "--from", "yesterday"], "no position, no time"),
        (["pull", "x", "--from", "9" * 30], "positions count from 0"),
        (["pull", "x", "--count", "0"], "Usage: onceway pipe pull"),
        (["push"], "Usage: onceway pipe push"),
        (["shove", "x"], "Usage: onceway pipe"),
        (["reset"], "Usage: onceway pipe reset"),
        (["serve", "x"], "a pipe without a file needs --url"),
        (["serve", "x", "--url", "http://x"], "the scheme must be amqp"),
        (["serve", "x", "--url", "127.0.0.1:1", "--data", "http://x"], "in a directory or in postgresql://"),
        (["pull", "x", "--url", "ws://x"], "pipes are read at amqp:// and amqps://"),
        (["pull", "x", "--url", "http://x"], "the scheme must be amqp"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], said: str) -> None:
    done = called("pipe", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("what", "option", "kind"), [("pull", "--store", "store"), ("reset", "--url", "router")])
def test_nobody_there_is_said_soon_and_ends_with_1(what: str, option: str, kind: str) -> None:
    done = called("pipe", what, "x", option, "127.0.0.1:1", "--connect-timeout", "1.2")
    place = f"{kind} amqp://127.0.0.1:1 (Connection refused)"
    assert (done.returncode, done.stderr.splitlines()) == (
        1,
        [
            f"[{what}] x: waits for {place}",
            f"no store of pipe 'x' reached within 1.2 s: {place}; start it, or give another URL",
        ],
    )


def test_a_push_that_waits_for_a_router_says_so() -> None:
    done = called("pipe", "push", "x", "one", "--url", "127.0.0.1:1", "--connect-timeout", 1.5)
    told = "[push] x: waits for a router: amqp://127.0.0.1:1: Connection refused"
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, told)


def test_a_push_that_waits_for_a_store_says_so_once_and_that_it_goes_on(network: PipeNetwork, pipe: str) -> None:
    assert called("pipe", "push", pipe, "one", "--url", network.urls()).returncode == 0
    network.kill_store("s")
    place = network.store_url()
    told = [f"{pipe}: waits for store {place} (Connection refused)", f"{pipe}: goes on"]
    lines: list[str] = []

    async def push_until_told() -> None:
        pushing = asyncio.create_task(push(network.urls(), pipe, ["two", "three"], on_wait=lines.append))
        await until(lambda: lines, "the caller is told")
        assert not pushing.done()
        network.start_store("s")
        await pushing

    with (
        module("onceway", "pipe", "push", pipe, "four", "--url", network.urls()) as pushed,
        module("onceway", "pipe", "pull", pipe, "--count", 1, "--url", network.urls()) as pulled,
    ):
        for program in (pushed, pulled):
            wait_until(lambda program=program: "waits" in program.errors, "the program says that it waits")  # type: ignore[misc]
        asyncio.run(push_until_told())
        for program, name in ((pushed, "push"), (pulled, "pull")):
            program.rest()
            assert program.errors.splitlines() == [f"[{name}] {line}" for line in told]
    assert lines == told
    said = (network.directory / "store-s.log").read_text()
    assert f"{network.data['s']}/store: new, nothing was in it  event=pipe_store_opened" in said
    assert f"; {pipe}, 1 messages, next position 1  event=pipe_store_opened" in f"; {said.rpartition('/store: ')[2]}"


def test_a_store_that_hangs_is_named(network: PipeNetwork, pipe: str) -> None:
    assert called("pipe", "push", pipe, "one", "--url", network.urls()).returncode == 0
    os.kill(network.store_pid("s"), signal.SIGSTOP)
    began = time.monotonic()
    with module("onceway", "pipe", "push", pipe, "two", "--url", network.urls()) as pushed:
        wait_until(lambda: "waits for" in pushed.errors, "the program says so")
        assert time.monotonic() - began < PIPE_STORE.s
        os.kill(network.store_pid("s"), signal.SIGCONT)
        pushed.rest()
        said = f"[push] {pipe}: waits for store {network.store_url()} (no answer)"
        assert pushed.errors.splitlines() == [said, f"[push] {pipe}: goes on"]


def test_a_push_into_a_pipe_that_nobody_knows_asks_for_its_name(network: PipeNetwork) -> None:
    with module("onceway", "pipe", "push", "nosuch", "one", "--url", network.urls()) as pushed:
        wait_until(lambda: "waits for a store: no file names this pipe" in pushed.errors, "the program says so")


@pytest.mark.parametrize("what", ["pull", "reset"])
def test_a_pipe_that_is_not_there_ends_at_once_with_1(network: PipeNetwork, what: str) -> None:
    done = called("pipe", what, "nosuch", "--url", network.urls(), "--connect-timeout", 1000)
    said = f"no pipe 'nosuch' at {network.urls()}; is the name right? A pipe that no file has needs --store\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_a_store_that_the_file_does_not_have_is_named(network: PipeNetwork) -> None:
    done = called("pipe", "serve", network.topology_path, "--store", "z")
    assert (done.returncode, done.stderr) == (2, "--store: one of s\n")
    done = called("pipe", "promote", network.topology_path, "nothing", "s")
    assert done.returncode == 2
    assert 'no pipe "nothing"' in done.stderr


def test_a_url_with_tls_is_never_read_without(network: PipeNetwork, pipe: str) -> None:
    done = called("pipe", "pull", pipe, "--store", f"amqps://127.0.0.1:{network.ports['s']}", "--connect-timeout", 2)
    assert done.returncode == 1
    assert "TLS" in done.stderr


def test_a_time_before_all_times_is_the_beginning(network: PipeNetwork, pipe: str) -> None:
    assert called("pipe", "push", pipe, "one", "--url", network.urls()).returncode == 0
    assert called("pipe", "pull", pipe, "--from", "0001-01-01", "--store", network.store_url()).stdout == "one\n"


def test_a_store_that_is_given_as_a_router_is_read(network: PipeNetwork, pipe: str) -> None:
    assert called("pipe", "push", pipe, "one", "--url", network.urls()).returncode == 0
    assert called("pipe", "pull", pipe, "--url", network.store_url()).stdout == "one\n"


def test_a_pipe_needs_no_file(network: PipeNetwork, tmp_path: Path) -> None:
    """Also where there is a directory with its name, as here."""
    port = free_port()
    arguments = ("docs", "--url", network.urls(), "--data", tmp_path, "--listen", port)
    with module("onceway", "pipe", "serve", *arguments) as store:
        wait_until(lambda: "event=pipe_primary" in store.errors, "the store subscribes")
        assert onceway("pipe", "push", "docs", "hello", "--url", network.urls()).returncode == 0
        assert onceway("pipe", "pull", "docs", "--store", f"127.0.0.1:{port}").stdout == "hello\n"
