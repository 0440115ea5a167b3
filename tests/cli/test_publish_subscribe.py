"""`onceway publish` and `onceway subscribe` through one router."""

from __future__ import annotations

import io
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from onceway.cli.options import write_out
from tests.cli.conftest import BOUND_S, COMMAND, called, onceway
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


def test_an_output_that_lacks_a_character_shows_it_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    octets = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(octets, encoding="latin-1"))
    write_out("caf\xe9 \u20ac\n")
    assert octets.getvalue() == b"caf\xe9 \\u20ac\n"


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


def test_ctrl_c_says_that_a_line_was_not_published(router: LiveNetwork) -> None:
    command = [*COMMAND, "publish", "nobody", "--url", router.urls(), "--name", "reader"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as p:
        p.stdin.write("one\n")
        p.stdin.flush()
        for line in p.stderr:
            if "waits: nobody subscribes" in line:
                break
        p.send_signal(2)
        shown, said = p.communicate(timeout=BOUND_S)
        assert (p.returncode, shown[:11]) == (1, "published 0")
        assert "[reader] what was read last is not published: there was no credit" in said


def test_ctrl_c_ends_a_publisher_that_nobody_listens_to_with_1(router: LiveNetwork) -> None:
    with Program(
        [*COMMAND, "publish", "nobody", "--url", router.urls(), "--count", "10", "--name", "lonely"]
    ) as giving:

        def waits() -> bool:
            # protocol 6.10: no subscription, no credit; status says why
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


def test_a_publisher_that_nobody_listens_to_gives_up_when_asked_to(router: LiveNetwork, tmp_path: Path) -> None:
    options = ["--name", "lonely", "--journal", tmp_path / "p.journal", "--url", router.urls()]
    done = onceway("publish", "silent", *options, "--timeout", "0.3", "--count", 3)
    assert done.returncode == 1
    assert done.stdout.startswith("published 0, accepted 0, rejected 0, undecided 0 in ")
    assert "[lonely] no credit for 0.3 s" in done.stderr
    assert onceway("publish", "silent", "--url", router.urls(), "--timeout", "0.3", stdin=b"one\n").returncode == 1


def test_a_publisher_without_an_outcome_gives_up_and_the_next_run_sends_it_again(
    router: LiveNetwork, tmp_path: Path
) -> None:
    taker = ["--url", router.urls(), "--name", "late", "--journal", str(tmp_path / "s.journal")]
    assert onceway("subscribe", "slow", *taker, "--count", "1", "--timeout", "0.1").returncode == 1
    giver = ["--url", router.urls(), "--name", "giver", "--journal", tmp_path / "p.journal"]
    done = onceway("publish", "slow", *giver, "--timeout", "6", stdin=b"one\n")
    assert done.returncode == 1
    assert (
        "[giver] slow: waits: not every subscription has accepted 1 message yet; `onceway status` names" in done.stderr
    )
    assert "[giver] no outcome for 6 s" in done.stderr
    assert done.stdout.startswith("published 1, accepted 0, rejected 0, undecided 1 in ")
    assert (
        "1 have no outcome: the connection was closed before they had an outcome; 1 are in the journal" in done.stderr
    )
    with Program([*COMMAND, "subscribe", "slow", *taker, "--count", "1"]) as taking:
        assert onceway("publish", "slow", *giver, stdin=b"").stdout.startswith("published 1, accepted 1, ")
        assert taking.rest() == ["one"]


def full(*arguments: object, stdin: bytes = b"") -> tuple[int, str]:
    """Runs a command whose output goes to a disk without room."""
    with Path("/dev/full").open("wb") as output:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            input=stdin,
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=BOUND_S,
            check=False,
        )
    return done.returncode, done.stderr.decode()


def test_an_output_that_is_full_ends_it_with_a_line_and_what_was_not_printed_comes_again(
    router: LiveNetwork, tmp_path: Path
) -> None:
    taker = ["--url", router.urls(), "--name", "keeper", "--journal", str(tmp_path / "s.journal")]
    assert onceway("subscribe", "full", *taker, "--count", "1", "--timeout", "0.1").returncode == 1
    with Program([*COMMAND, "publish", "full", "--url", router.urls(), "--count", "1", "--size", "1"]) as giving:
        status, said = full("subscribe", "full", *taker)
        assert status == 1
        assert "[keeper] the last 1 messages are not accepted: they come again" in said
        assert "standard output cannot be written: No space left on device" in said
        assert "Traceback" not in said
        assert onceway("subscribe", "full", *taker, "--count", "1").stdout == "0 \n"
        assert giving.process.wait(BOUND_S) == 0
    status, said = full("publish", "full", "--url", router.urls(), "--count", "0")
    assert (status, "Traceback" in said) == (1, False)
    assert "standard output cannot be written" in said


def test_accepted_before_it_is_printed_it_does_not_come_again(router: LiveNetwork, tmp_path: Path) -> None:
    taker = ["--url", router.urls(), "--name", "loser", "--journal", str(tmp_path / "s.journal")]
    assert onceway("subscribe", "once", *taker, "--count", "1", "--timeout", "0.1").returncode == 1
    with Program([*COMMAND, "publish", "once", "--url", router.urls(), "--count", "1", "--size", "1"]) as giving:
        status, said = full("subscribe", "once", *taker, "--accept", "before-printing")
        assert status == 1
        assert "[loser] the last 1 messages are accepted, and may not be printed" in said
        assert giving.process.wait(BOUND_S) == 0
    assert onceway("subscribe", "once", *taker, "--timeout", "0.5").stdout == ""


def test_a_journal_on_a_full_disk_is_said_in_a_line_each_time(router: LiveNetwork, tmp_path: Path) -> None:
    journal = tmp_path / "p.journal"
    giver = ["publish", "lines", "--url", router.urls(), "--name", "full", "--journal", str(journal)]
    with subscriber(router, "lines", "--quiet"):
        assert onceway(*giver, stdin=b"one\n").returncode == 0
        limit = journal.stat().st_size  # bytes: no file may become larger

        def bounded() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        for _ in range(3):
            done = subprocess.run(
                [*COMMAND, *giver],
                input=b"x" * limit,
                capture_output=True,
                preexec_fn=bounded,
                timeout=BOUND_S,
                check=False,
            )
            assert done.returncode == 1
            assert "Traceback" not in done.stderr.decode()
            assert f"{journal}: the journal failed (disk I/O error)" in done.stderr.decode()
        again = onceway(*giver, stdin=b"two\n")
        assert again.returncode == 0
        assert again.stdout.startswith("published 1, accepted 1,")


def test_nothing_for_a_while_is_a_failure_when_asked_for(router: LiveNetwork) -> None:
    done = called("subscribe", "silent", "--url", router.urls(), "--timeout", "0.2", "--count", 1)
    assert done.returncode == 1
    assert "no message arrived for 0.2 s" in done.stderr


@pytest.mark.parametrize("command", ["publish", "subscribe"])
def test_a_url_that_cannot_be_read_is_bad_input(command: str) -> None:
    done = called(command, "orders", "--url", "http://127.0.0.1:5672")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the scheme must be amqp" in done.stderr


@pytest.mark.parametrize("command", ["publish", "subscribe"])
def test_no_router_to_connect_to_is_a_failure(command: str) -> None:
    done = called(command, "orders", "--url", "amqp://127.0.0.1:1", "--connect-timeout", "3")
    assert (done.returncode, done.stdout) == (1, "")
    assert "127.0.0.1:1" in done.stderr


def test_a_size_that_cannot_be_read_is_bad_input() -> None:
    done = called("publish", "orders", "--count", 1, "--size", "1KB")
    assert done.returncode == 2
    assert "did you mean 1KiB?" in done.stderr
