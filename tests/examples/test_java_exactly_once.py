"""examples/java-exactly-once loses, repeats and reorders nothing while routers are killed."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.live import PATIENT, LiveNetwork, dying_with_us, wait_until

KILLS = 50 if "INTEROP" in os.environ else 6  # make interop has time for more
EVERY_S = 0.004  # a message
READY_S = 300.0  # on a machine that does much else
SEED = 46


class Client:
    """The example in one role, ordered about by lines as `onceway conformance` does it."""

    def __init__(self, command: Sequence[str], urls: str, state: Path, role: str) -> None:
        state.mkdir()
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            dying_with_us(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=(state / "stderr").open("w"), env={**os.environ, "ONCEWAY_URL": urls, "ONCEWAY_STATE": str(state)},
        )  # fmt: skip
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.order(f"{role} orders")

    def order(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, _, body = line.strip().partition(" ")
            self.lines.append(line.strip())
            if what == "received":
                self.order(f"accept {body}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_is_lost_repeated_or_reordered_when_routers_die(java_client: list[str], tmp_path: Path) -> None:
    rng = random.Random(SEED)
    links = [("a", "b"), ("b", "c"), ("a", "c")]
    with LiveNetwork(tmp_path / "network", ("a", "b", "c"), links, settings=PATIENT) as network:
        network.start(timeout_s=READY_S)

        def client(name: str, role: str, *routers: str) -> Client:
            return Client(java_client, network.urls(*routers), tmp_path / name, role)

        with client("s1", "subscriber", "b", "c", "a") as s1, client("s2", "subscriber", "c", "a", "b") as s2:
            wait_until(
                lambda: any(
                    len(address["subscriptions"]) == 2 for address in network["a"].status()["addresses"].values()
                ),
                "both subscriptions are known",
                READY_S,
            )  # a subscription gets what is published after it
            with client("p", "publisher", "a", "b", "c") as publisher:
                enough, sent = threading.Event(), itertools.count()

                def publish() -> None:
                    while not enough.wait(EVERY_S):
                        publisher.order(f"send {next(sent)}")

                load = threading.Thread(target=publish)
                load.start()
                try:
                    for _, name in zip(range(KILLS), itertools.cycle("abc"), strict=False):
                        enough.wait(rng.uniform(0.1, 0.5))
                        network.kill(name)
                        enough.wait(rng.uniform(0.0, 0.3))
                        network.start(
                            name, fresh=False, timeout_s=READY_S
                        )  # it has to be ready before the next one dies
                finally:
                    enough.set()
                    load.join()
                count = next(sent)
                wait_until(lambda: len(publisher.lines) > count, "each message has its outcome", READY_S)
                wait_until(lambda: not any(router.leftovers() for router in network), "everything is settled", READY_S)
        print(f"{KILLS} kills, {count} messages")
    for subscriber in (s1, s2):
        assert subscriber.lines[1:] == [f"received {n}" for n in range(count)]
    assert sorted(publisher.lines[1:]) == sorted(f"accepted {n}" for n in range(count))
