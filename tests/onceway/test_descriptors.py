"""Of few file descriptors some are left for neighbours, the admin listener and accepting."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

import pytest

import onceway
from onceway.base import descriptors
from onceway.base.descriptors import Descriptors
from tests.live import LiveNetwork, wait_until


class Noted:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, text: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    info = error = debug = warning


@pytest.mark.parametrize(
    ("used", "crowded", "full"), [(0, False, False), (79, False, False), (80, True, False), (90, True, True)]
)
def test_clients_have_four_fifths(used: int, crowded: bool, full: bool) -> None:
    room = Descriptors(Noted(), lambda: used, lambda: 100)
    assert (room.crowded(), room.full()) == (crowded, full)


def test_it_is_told_once_until_there_are_fewer() -> None:
    log, used = Noted(), 80
    room = Descriptors(log, lambda: used, lambda: 100)
    for used in (80, 95, 75, 85, 69, 80):  # noqa: B007  # the lambda reads it
        room.crowded()
    assert log.lines == [("descriptors_low", {"used": at, "most": 100}) for at in (80, 80)]


def test_a_limit_below_what_the_file_asks_for_is_told_at_the_start() -> None:
    log = Noted()
    room = Descriptors(log, lambda: 0, lambda: 100)
    room.check(80)
    assert not log.lines
    room.check(81)
    assert log.lines == [("descriptors_few", {"most": 100, "clients": 80, "connections": 81})]


def test_the_lowest_number_that_is_free_says_how_many_are_open() -> None:
    before = descriptors.open_now()
    with contextlib.ExitStack() as opened:
        for _ in range(20):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        assert descriptors.open_now() >= before + 20
    assert descriptors.open_now() == before


async def test_neighbours_and_the_admin_listener_are_served_when_clients_have_taken_what_they_may(
    tmp_path: Any,
) -> None:
    most = 100
    with LiveNetwork(tmp_path, ["a", "b"], links=[("a", "b")]) as network:
        network.start("a")
        a = network["a"]
        resource.prlimit(a.pid, resource.RLIMIT_NOFILE, (most, most))
        async with contextlib.AsyncExitStack() as clients:
            with pytest.raises(onceway.OncewayError, match="limit descriptors"):
                for _ in range(most):
                    await clients.enter_async_context(onceway.connect(a.url, connect_timeout_s=10.0))
            network.start("b")
            wait_until(lambda: a.status()["neighbours"]["b"]["up"], "the neighbour is back")
            assert a.get("/healthz")[0] == 200
        assert a.status()["limits"]["refused"]["descriptors"] >= 1
        assert "descriptors_low" in a.log_path.read_text()
