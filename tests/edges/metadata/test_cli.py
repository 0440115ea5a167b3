"""`onceway metadata`: what it prints and how it ends, with an edge as a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from chaos.live.ports import free_port
from tests.cli.conftest import called, onceway
from tests.live import LiveNetwork, wait_until
from tests.running import module


def test_what_is_published_at_one_edge_is_watched_at_another(tmp_path: Path) -> None:
    network = LiveNetwork(tmp_path / "network")
    servers = {name: f"127.0.0.1:{free_port()}" for name in ("one", "two")}
    try:
        network.start()
        serve = ("metadata", "serve", "--url", network.urls())
        with (
            module("onceway", *serve, "--name", "one", "--listen", servers["one"]) as one,
            module("onceway", *serve, "--name", "two", "--listen", servers["two"]) as two,
        ):
            for edge in (one, two):
                wait_until(lambda edge=edge: "metadata_listening" in edge.errors, "an edge listens")
            watch = ("metadata", "watch", "has Room", "--count", "2", "--server", servers["two"])
            with module("onceway", *watch) as watching:
                assert watching.line() == '{"new": [], "gone": []}'
                uuid = str(uuid4())
                publish = ("metadata", "publish", uuid, "--set", "Room=410", "--server", servers["one"])
                done = onceway(*publish, stdin=b'21.5\n{"on": true}\n')
                assert (done.returncode, done.stderr) == (0, "")
                assert [json.loads(line) for line in watching.rest()] == [
                    {"new": [uuid], "gone": []},
                    {"uuid": uuid, "metadata": {"Room": "410"}, "value": 21.5},
                    {"uuid": uuid, "metadata": {}, "value": {"on": True}},
                ]
            wrong = onceway("metadata", "watch", "has Room and", "--server", servers["two"])
            assert (wrong.returncode, wrong.stdout) == (2, "")
            assert wrong.stderr.startswith("predicate: line 1, column 13: expected")
            taken = onceway(*serve, "--name", "three", "--listen", servers["one"])
            assert taken.returncode == 2
            assert f"--listen {servers['one']}: " in taken.stderr
            two.process.terminate()
            two.rest()
    finally:
        network.close()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("watch", "has a", "--server", "127.0.0.1:1"), 1, "no metadata edge at 127.0.0.1:1"),
        (("publish", "5"), 2, "'5' is not a valid UUID"),
        (("publish", str(uuid4()), "--set", "Room"), 2, "'Room' is not KEY=VALUE"),
        (("publish", str(uuid4()), "--value", "{"), 2, "'{' is not JSON"),
        (("serve", "--name", "e", "--listen", "x:y"), 2, "--listen"),
        (("serve", "--name", "e", "--url", "amqp://127.0.0.1:1", "--connect-timeout", "0.2"), 1, "no router reached"),
    ],
)
def test_bad_input_says_what_is_wrong(words: tuple[str, ...], code: int, said: str) -> None:
    done = called("metadata", *words)
    assert done.returncode == code
    assert said in done.stderr
