"""What a run waits for before it ends, with processes that only say how they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.live.processes import Network, Router
from chaos.live.run import Run
from chaos.live.schedule_files import loads

SCHEDULE = """\
shows: something
topology: single
workload:
  publishers: [{name: p, at: a}]
  subscribers: [{name: s, at: a}]
"""


class Process(SimpleNamespace):
    """A client that has been brought back and has not said READY yet."""

    def __init__(self, name: str, *, publishes: bool) -> None:
        super().__init__(name=name, publishes=publishes, is_endless=publishes, running=True, ready=False, done=False)
        self.terminated = 0

    def terminate(self) -> None:
        self.terminated += 1


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(loads(SCHEDULE, Path("s.yaml")), tmp_path, 1, lambda line: None)


@pytest.fixture
def router() -> Router:
    return Router("a", "127.0.0.1", 1, 2, 3)


def put(run: Run, client: Process) -> Process:
    run._clients[client.name] = client  # type: ignore[assignment]
    return client


def test_a_publisher_without_end_is_told_once_that_it_is_enough_when_it_hears(run: Run) -> None:
    client = put(run, Process("p", publishes=True))
    run._end_endless()
    assert client.terminated == 0
    client.ready = True
    for _ in range(2):
        run._end_endless()
    assert client.terminated == 1


def test_a_subscriber_that_was_brought_back_is_waited_for_although_it_has_nothing_to_do(
    run: Run, router: Router, tmp_path: Path
) -> None:
    run._network = Network(tmp_path, tmp_path / "topology.yaml", [router], lambda router, how: None)
    client = put(run, Process("s", publishes=False))
    assert run._open_ends() == ["subscriber s is not ready"]
    client.ready = True
    assert run._open_ends() == []


def test_a_router_that_came_to_be_ready_after_it_was_looked_at_is_looked_at_again(
    router: Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody says that it is ready."""
    said: list[str] = []
    network = Network(tmp_path, tmp_path / "topology.yaml", [router], lambda router, how: said.append(how))
    document: dict[str, Any] = {"state": "ready", "records": {"held": 0}}
    monkeypatch.setattr(Router, "status", lambda router: document)
    monkeypatch.setattr(Router, "get", lambda router, path: (200, b"ready\n"))
    router.process = SimpleNamespace(poll=lambda: None)  # type: ignore[assignment]
    router.state = "starting"
    assert network.leftovers() == ["router a is not ready"]
    network.look()
    assert said == ["ready"]
    assert network.leftovers() == []
