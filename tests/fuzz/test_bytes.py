"""The corpus holds, and the byte fuzzer finds what there is to find.

`python -m chaos.fuzz` looks further; what it found is a plain test beside its kin (tests/amqp10, tests/router).
"""

from __future__ import annotations

import random

import pytest

from amqp10 import connection
from amqp10.events import Event
from amqp10.performatives import Detach
from amqp10.session import Session
from chaos.fuzz import mutator
from chaos.fuzz.__main__ import load, main
from chaos.fuzz.mutator import covered, failure, mutated, smaller
from chaos.fuzz.peers import Peered
from chaos.fuzz.running import TARGETS
from chaos.fuzz.targets import frames
from router.core.messages import Join, JoinKind
from router.peers.wire import encode

CORPUS = load()
INPUTS = [(target, name) for target in TARGETS for name in CORPUS[target]]


@pytest.mark.parametrize(("target", "name"), INPUTS, ids=[f"{target}-{name}" for target, name in INPUTS])
def test_the_corpus_holds(target: str, name: str) -> None:
    assert failure(target, CORPUS[target][name]) is None


@pytest.mark.parametrize("target", TARGETS)
def test_mutations_of_the_corpus_hold(target: str) -> None:
    rng = random.Random(4)
    inputs = [*CORPUS[target].values()]
    for _ in range(60):
        data = mutated(rng.choice(inputs), rng.choice(inputs), rng)
        error = failure(target, data)
        assert error is None, f"{error!r}; rerun: python -m chaos.fuzz --target {target} --hex {data.hex()}"


def test_what_a_peer_has_granted_for_days_is_remembered_for_days() -> None:
    peered = Peered()
    peered.attach()
    peered.peer_up()
    name = ("client of b", "in")
    peered.hears(encode(Join("t", name, None, (999_999_999, "b"), JoinKind.EITHER, True, 200_000.0, False, 1.0)))
    assert peered.longest_timeout_s() == 200_000.0
    began = peered.now
    peered.leave()  # which finds that nothing is left
    assert peered.now - began > 200_000.0


def test_coverage_grows_with_what_an_input_reaches() -> None:
    (conversation,) = (data for name, data in CORPUS["server"].items() if name == "middle")
    assert len(covered("server", conversation[:200])) < len(covered("server", conversation))


def test_coverage_sees_where_tokens_are_checked() -> None:
    assert len(covered("token", CORPUS["token"]["signed-by-another"])) < len(
        covered("token", CORPUS["token"]["claims"])
    )


def test_an_exception_of_ours_is_found_made_small_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = Session._received_detach

    def broken(session: Session, detach: Detach, events: list[Event]) -> None:
        if detach.closed:
            raise KeyError("planted")
        taken(session, detach, events)

    monkeypatch.setitem(connection._HANDLERS_OF_SESSIONS, Detach, broken)
    (conversation,) = (data for name, data in CORPUS["server"].items() if name == "middle")
    assert isinstance(failure("server", conversation), KeyError)
    assert len(frames(smaller("server", conversation))) == 1
    assert main(["--target", "server", "--seconds", "1", "--seed", "1"]) == 1
    out = capsys.readouterr().out
    assert "input: b'" in out
    assert "rerun: python -m chaos.fuzz --target server --hex 00" in out


def test_an_input_that_never_ends_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*arguments: object) -> None:
        while True:
            pass

    monkeypatch.setattr(mutator, "HANG_S", 0.05)
    monkeypatch.setitem(connection._HANDLERS_OF_SESSIONS, Detach, endless)
    (conversation,) = (data for name, data in CORPUS["server"].items() if name == "middle")
    assert isinstance(failure("server", conversation), mutator.Hang)
