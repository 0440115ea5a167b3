"""examples/rhea-exactly-once loses, repeats and reorders nothing while routers and its own programs are killed."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import time
from pathlib import Path
from typing import IO, Self

import pytest

from tests.live import LiveNetwork, dying_with_us, wait_until
from tests.running import BOUND_S, ROOT

EXAMPLE = ROOT / "examples" / "rhea-exactly-once"
COUNT, RATE = 4000, 250  # 16 s, and what the kills cost
KILLS_WITHIN_S = 25.0
SEED = 20130


class Node:
    """A program of the example that is killed and started again with the same arguments."""

    def __init__(self, name: str, rhea: Path, directory: Path, script: str, *arguments: str) -> None:
        self.command = dying_with_us(["node", str(EXAMPLE / script), *arguments])
        self.environment = {**os.environ, "NODE_PATH": str(rhea / "node_modules")}
        self.directory, self.log_path = directory, directory / f"{name}.log"
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.log: IO[bytes] = self.log_path.open("ab")
        self.process = subprocess.Popen(
            self.command, cwd=self.directory, env=self.environment, stdout=self.log, stderr=self.log
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(BOUND_S)
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()


def numbers(path: Path) -> list[int]:
    """Of the messages whose effect is in a subscriber's output file, in its order."""
    text = path.read_text() if path.exists() else ""
    return [int(line.split()[1]) for line in text[: text.rfind("\n") + 1].splitlines()]


JOURNAL = """
const Journal = require(process.argv[1]);
const file = process.argv[2], found = [];
Journal.open(file, record => found.push(record), () => found).then(async journal => {
    await Journal.open(file, () => {}, () => []).catch(error => console.log(error.message.split(': ')[1]));
    journal.append(found.length);
    await journal.close();
    console.log(JSON.stringify(found));
}).catch(error => console.log(error.message.split(': ')[1]));
"""


def test_journal_drops_a_torn_line_and_refuses_damage_and_a_second_process(rhea: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal"

    def opened() -> list[str]:
        command = ["node", "-e", JOURNAL, str(EXAMPLE / "journal.js"), str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True).stdout.splitlines()

    in_use = "in use by another process"
    assert [opened() for _ in range(3)] == [[in_use, "[]"], [in_use, "[0]"], [in_use, "[0,1]"]]
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:5])
    assert opened() == [in_use, "[0,1,2]"]
    path.write_bytes(b"x" + whole[1:])
    assert opened() == ["damaged at byte 0"]


@pytest.mark.slow
def test_nothing_is_lost_repeated_or_reordered_when_everything_dies(rhea: Path, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    (tmp_path / "lines").write_text("".join(f"{n}\n" for n in range(COUNT)))
    kills = 0
    links = [("a", "b"), ("b", "c"), ("a", "c")]
    outputs = {name: tmp_path / f"{name}.txt" for name in ("s1", "s2")}
    with LiveNetwork(tmp_path / "network", ("a", "b", "c"), links) as network:
        network.start()

        def subscriber(name: str, urls: str) -> Node:
            return Node(name, rhea, tmp_path, "subscribe.js", "--urls", urls, "--name", name,
                        "--journal", f"{name}.journal", outputs[name].name)  # fmt: skip

        with subscriber("s1", network.urls("b", "c", "a")) as s1, subscriber("s2", network.urls("c", "a", "b")) as s2:
            for node in (s1, s2):  # a subscription gets what is published after it
                wait_until(lambda node=node: b"attached" in node.log_path.read_bytes(), f"{node.command} attached")
            with Node("p", rhea, tmp_path, "publish.js", "--urls", network.urls("a", "b", "c"),
                      "--rate", str(RATE), "--journal", "p.journal", "lines") as publisher:  # fmt: skip
                programs, routers = itertools.cycle((publisher, s1, s2)), itertools.cycle("abc")
                end = time.monotonic() + KILLS_WITHIN_S
                while publisher.process.poll() is None and time.monotonic() < end:
                    name, program = next(routers), next(programs)
                    time.sleep(rng.uniform(0.1, 0.5))
                    network.kill(name)
                    kills += 1
                    time.sleep(rng.uniform(0.0, 0.3))
                    if publisher.process.poll() is None:
                        program.kill()
                        kills += 1
                        time.sleep(rng.uniform(0.0, 0.2))
                        program.start()
                    network.start(name, fresh=False)  # it has to be ready before the next one dies
                assert publisher.process.wait(BOUND_S) == 0, publisher.log_path.read_text()[-2000:]
            for name, path in outputs.items():  # its last word was that all subscribers have accepted
                assert numbers(path) == list(range(COUNT)), name
        wait_until(lambda: not any(router.leftovers() for router in network), "everything is settled")
        logs = "".join(path.read_text() for path in sorted(tmp_path.glob("*.log")))
    assert kills >= 4
    assert "missed" not in logs
    assert "undecided 0" in logs
    assert "gave up" not in logs
