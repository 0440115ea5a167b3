"""`onceway publish` and `onceway subscribe` through one router."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import BOUND_S, COMMAND, onceway
from tests.live import LiveNetwork, wait_until
from tests.running import Program


def subscriber(router: LiveNetwork, address: str, *options: str) -> Program:
    program = Program([*COMMAND, "subscribe", address, "--url", router.urls(), *options])
    wait_until(lambda: f"{address}: attached at a" in program.errors, "the subscriber attached")
    return program


def test_lines_go_in_and_the_same_lines_come_out(router: LiveNetwork) -> None:
    with subscriber(router, "lines", "--count", "5") as taking:
        lines = "one\nzwei – ü\n\nlast without an end".encode() + b"\n\xff\xfe"
        done = onceway("publish", "lines", "--url", router.urls(), stdin=lines)
        assert done.returncode == 0
        assert done.stdout.startswith("published 5, accepted 5, rejected 0, undecided 0 in ")
        assert taking.rest() == ["one", "zwei – ü", "", "last without an end", "\\xff\\xfe"]
        assert "received 5, gaps 0" in taking.errors


def test_a_count_of_messages_is_published_and_counted(router: LiveNetwork) -> None:
    with subscriber(router, "counted", "--count", "3000", "--quiet") as taking:
        done = onceway("publish", "counted", "--url", router.urls(), "--count", 3000, "--size", "1KiB")
        assert done.returncode == 0
        assert done.stdout.startswith("published 3,000, accepted 3,000, rejected 0, undecided 0 in ")
        (tally,) = taking.rest()
        assert tally.startswith("received 3,000, gaps 0 in ")


def test_a_rate_is_kept(router: LiveNetwork) -> None:
    with subscriber(router, "paced", "--count", "50", "--quiet") as taking:
        done = onceway("publish", "paced", "--url", router.urls(), "--count", 50, "--rate", 100)
        assert done.returncode == 0
        seconds = float(done.stdout.partition(" in ")[2].split()[0])
        assert seconds >= 0.45
        taking.rest()


def test_ctrl_c_ends_a_subscriber_with_its_tally(router: LiveNetwork) -> None:
    with subscriber(router, "stopped", "--quiet") as taking:
        taking.process.send_signal(2)
        (tally,) = taking.rest()
        assert tally.startswith("received 0, gaps 0 in ")


def test_ctrl_c_ends_a_publisher_that_nobody_listens_to_with_1(router: LiveNetwork) -> None:
    with Program(
        [*COMMAND, "publish", "nobody", "--url", router.urls(), "--count", "10", "--name", "lonely"]
    ) as giving:

        def waits() -> bool:
            # PROTOCOL 6.10: no subscription, no credit; status says why
            done = onceway("status", router.topology_path)
            return "nobody: publisher lonely/lonely gets no credit: " in done.stdout

        wait_until(waits, "the publisher without credit in status", every_s=0.2)
        giving.process.terminate()
        assert giving.process.wait(BOUND_S) == 1


def test_with_a_journal_the_next_run_goes_on_where_the_last_ended(router: LiveNetwork, tmp_path: Path) -> None:
    journal = str(tmp_path / "billing.journal")
    with subscriber(router, "kept", "--name", "billing", "--journal", journal, "--count", "2") as taking:
        assert onceway("publish", "kept", "--url", router.urls(), stdin=b"1\n2\n").returncode == 0
        assert taking.rest() == ["1", "2"]
    again = ["--url", router.urls(), "--name", "billing", "--journal", journal, "--count", "3"]
    # it is away now: accepted by nobody, so the publisher waits until it comes back
    with (
        Program([*COMMAND, "publish", "kept", "--url", router.urls(), "--count", "3", "--size", "1"]) as giving,
        Program([*COMMAND, "subscribe", "kept", *again]) as taking,
    ):
        assert taking.rest() == ["0 ", "1 ", "2 "]
        assert giving.rest()[0].startswith("published 3, accepted 3")
        assert "kept: resumed at a" in taking.errors


def test_nothing_for_a_while_is_a_failure_when_asked_for(router: LiveNetwork) -> None:
    done = onceway("subscribe", "silent", "--url", router.urls(), "--timeout", "0.2", "--count", 1)
    assert done.returncode == 1
    assert "nothing came for 0.2 s" in done.stderr


@pytest.mark.parametrize("command", ["publish", "subscribe"])
def test_a_url_that_cannot_be_read_is_bad_input(command: str) -> None:
    done = onceway(command, "orders", "--url", "http://127.0.0.1:5671", stdin=b"")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the scheme must be amqp" in done.stderr


@pytest.mark.parametrize("command", ["publish", "subscribe"])
def test_no_router_to_connect_to_is_a_failure(command: str) -> None:
    done = onceway(command, "orders", "--url", "amqp://127.0.0.1:1", "--connect-timeout", "3", stdin=b"")
    assert (done.returncode, done.stdout) == (1, "")
    assert "127.0.0.1:1" in done.stderr


def test_a_size_that_cannot_be_read_is_bad_input() -> None:
    done = onceway("publish", "orders", "--count", 1, "--size", "1KB")
    assert done.returncode == 2
    assert "did you mean 1KiB?" in done.stderr
