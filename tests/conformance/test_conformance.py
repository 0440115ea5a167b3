"""`onceway conformance`: our own client passes every check, and each check catches a client that breaks its rule."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from onceway.conformance.checks import TABLE
from onceway.conformance.run import run
from tests import needs
from tests.cli.conftest import called
from tests.conformance.faulty import FAULTS
from tests.interop.conftest import java_client, rhea

__all__ = ["java_client", "rhea"]

ROOT = Path(__file__).resolve().parents[2]
OURS = [sys.executable, str(ROOT / "examples" / "conformance" / "library_client.py")]
PATIENT_S = 60.0  # on a machine that does much else
SOON_S = 8.0  # for what a fault keeps from coming

CAUGHT = {
    "ModeFirst": {"publisher-attach": "rcv-settle-mode 0", "subscriber-attach": "rcv-settle-mode 0"},
    "OneEpoch": {"publisher-epoch": "above the last one"},
    "OwnClock": {"publisher-stolen": "epoch", "subscriber-stolen": "epoch"},
    "OneLife": {"publisher-expired": "incarnation", "subscriber-broken": "born"},
    "Mute": {"publisher-echo": "a flow of the link did not come"},
    "Deaf": {"subscriber-echo": "a flow of the link did not come"},
    "KeepsCredit": {"publisher-drain": "a flow that uses the credit up did not come"},
    "TooMany": {"publisher-credit": "amqp:link:transfer-limit-exceeded"},
    "OneTag": {"publisher-transfer": "a tag was used twice"},
    "SettlesEarly": {"publisher-settles": "settled before it has an outcome"},
    "NeverSettles": {"publisher-rejected": "the settlement of m1 did not come"},
    "TellsAccepted": {"publisher-rejected": "the line `rejected m1` did not come"},
    "SendsTwice": {"publisher-settles": "m1 was sent 2 times"},
    "ForgetsMap": {
        "publisher-map": "the map leaves out m1, m3",
        "publisher-detached": "the map leaves out m1",
        "publisher-journal": "the map leaves out m1, m2",
        "subscriber-detached": "unsettled is null",
        "subscriber-map": "unsettled is null",
    },
    "HalfMap": {"publisher-map": "the map leaves out m3", "subscriber-map": "the map leaves out m1"},
    "KeepsMap": {"subscriber-unlisted": "the map has", "subscriber-resumed-settled": "the map has"},
    "NullMap": {"subscriber-settled": "unsettled is null"},
    "WholeMap": {"publisher-map-in-parts": "one part"},
    "RenamesTags": {"publisher-resend": "has the tag"},
    "Resumes": {"publisher-resend": "resume = true"},
    "NoJournal": {
        "publisher-journal": "container-id",
        "publisher-journal-outcome": "m2 has the tag of m1",
        "subscriber-journal": "container-id",
    },
    "NeverMind": {
        "publisher-expired": "the line `undecided m1` did not come",
        "publisher-refused": "the line `gave-up` did not come",
        "subscriber-broken": "the line `missed` did not come",
        "subscriber-refused": "the line `gave-up` did not come",
    },
    "TakesLess": {
        "publisher-guarantee": "the line `gave-up` did not come",
        "subscriber-guarantee": "the line `gave-up` did not come",
    },
    "Closes": {"publisher-leaves": "closed = true", "subscriber-leaves": "closed = true"},
    "AcceptsSettled": {"subscriber-verdict": "settled = true"},
    "AcceptsTwice": {"subscriber-verdict": "2 dispositions"},
    "AcceptsAtOnce": {"subscriber-verdict": "before the application has decided"},
    "AcceptsAll": {"subscriber-outcomes": "rejected"},
    "SaysOnce": {"subscriber-resumed": "its word, accepted"},
    "ReleasesNothing": {"subscriber-unknown": "its word, released"},
    "HandsAgain": {"subscriber-repeat": "`received m1` 3 times"},
    "TakesHalves": {"subscriber-aborted": "`received m1`"},
    "TakesAnswerForWhole": {"subscriber-incomplete": "its detach and next attach did not come"},
}
"""By fault: the checks that catch it, and what they say."""


def lines_of(command: Sequence[str], names: Sequence[str], patience_s: float) -> list[str]:
    lines: list[str] = []
    good = run(command, names, patience_s, lines.append)
    assert good is not any(line.startswith("failed") for line in lines)
    return lines


def caught() -> Iterator[tuple[str, str, str]]:
    for fault, checks in CAUGHT.items():
        for check, seen in checks.items():
            yield fault, check, seen


ROLES = "publisher", "subscriber"


def of(role: str, *without: str) -> list[str]:
    """The checks of a role that need none of these claims."""
    return [name for name, check in TABLE.items() if role in check.needs and not {*without} & {*check.needs}]


def expect_all(command: Sequence[str], names: Sequence[str], claimed: Sequence[str]) -> None:
    lines = lines_of(command, names, PATIENT_S)
    passed = [line.removeprefix("ok ") for line in lines[:-1] if line.startswith("ok ")]
    assert passed == [*claimed], "\n".join(lines)
    assert lines[-1] == f"ok {len(claimed)}, failed 0, skipped {len(names) - len(claimed)}"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ROLES)
def test_our_own_client_passes(role: str) -> None:
    expect_all(OURS, of(role), of(role))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ROLES)
def test_the_rhea_example_passes(rhea: Path, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_PATH", str(rhea / "node_modules"))
    client = ROOT / "examples" / "rhea-exactly-once" / "conformance.js"
    expect_all(["node", str(client)], of(role), of(role))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ROLES)
def test_the_java_example_passes(java_client: list[str], role: str) -> None:
    expect_all(java_client, of(role), of(role))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not needs.has_proton(), reason=needs.PROTON)
@pytest.mark.parametrize("role", ROLES)
def test_proton_passes_what_needs_no_map(role: str) -> None:
    client = ROOT / "examples" / "conformance" / "proton_client.py"
    expect_all([sys.executable, str(client)], of(role), of(role, "maps", "journal"))


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "check", "seen"), list(caught()))
def test_a_fault_is_caught_by_the_check_of_its_rule(fault: str, check: str, seen: str) -> None:
    line, tally = lines_of([sys.executable, "-m", "tests.conformance.faulty", fault], [check], SOON_S)
    assert line.startswith(f"failed {check}: "), line
    assert seen in line
    assert f" ({TABLE[check].rule})" in line
    assert tally == "ok 0, failed 1, skipped 0"


def test_each_check_catches_a_fault_and_each_fault_is_caught() -> None:
    assert {check for _, check, _ in caught()} == TABLE.keys()
    assert CAUGHT.keys() == FAULTS.keys()


def test_rules_that_checks_name_are_there() -> None:
    wire = re.findall(r"^#+ (.*)$", (ROOT / "docs" / "wire.md").read_text(), re.MULTILINE)
    protocol = "".join(page.read_text() for page in (ROOT / "docs" / "protocol").glob("*.md"))
    for check in TABLE.values():
        kind, _, place = check.rule.partition(" ")
        assert (
            (kind == "wire:" and place in wire)
            or (kind == "protocol" and f"**{place}** " in protocol)
            or check.rule in ("AMQP 2.6.7", "AMQP 2.6.14")
        ), check
        assert check.text.endswith("."), check


def test_what_a_client_does_not_claim_is_skipped(tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text("print('client subscriber', flush=True)")
    lines = lines_of([sys.executable, str(client)], ["publisher-attach", "subscriber-map"], SOON_S)
    assert lines == [
        "skipped publisher-attach: the client does not claim publisher",
        "skipped subscriber-map: the client does not claim maps",
        "ok 0, failed 0, skipped 2",
    ]


def test_exit_codes_and_lines_of_the_command(tmp_path: Path) -> None:
    done = called("conformance", "--only", "subscriber-attach", "--", *OURS)
    assert (done.returncode, done.stdout) == (0, "ok subscriber-attach\nok 1, failed 0, skipped 0\n")
    client = tmp_path / "client.py"
    client.write_text("print('client subscriber', flush=True)")
    done = called("conformance", "--only", "subscriber-attach", "--", sys.executable, client)
    seen = "an attach did not come; the client has ended; right: the client attaches, and after a loss attaches again"
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        1,
        f"failed subscriber-attach: {seen} (protocol 15.2)",
    )
    for words, told in (
        (("--", tmp_path / "none"), "No such file or directory"),
        (("--only", "publisher-atach", "--", *OURS), 'no check "publisher-atach"; did you mean "publisher-attach"?'),
        ((), "no client: onceway conformance -- COMMAND ARGUMENT..."),
        (("--", "sh", "-c", "echo hello >&2"), "`client CLAIM...`; its stderr ends with: hello"),
        (("--", "echo", "client everything"), "the client claims `everything`"),
    ):
        done = called("conformance", *words)
        assert done.returncode == 2, done
        assert told in done.stderr, done
    listed = called("conformance", "--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [*TABLE]
