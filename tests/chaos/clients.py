"""The clients of one kill test: `chaos.live.clients` as processes, watched through their histories, judged at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from chaos.judge.history import Writer
from chaos.judge.judge import judge
from chaos.judge.verdict import Judgement
from tests.live import LiveNetwork, wait_until
from tests.running import Program, module

TIMEOUT_S = 30.0  # of subscriptions


class Clients:
    """`clients.publisher("p1", "a")` starts one whose first router is a; all routers are in its URL list.

    count: of each publisher's messages; None: until it is `enough`.
    """

    def __init__(
        self,
        network: LiveNetwork,
        directory: Path,
        *,
        client: str,
        count: int | None,
        rate: float,
        publishers: tuple[str, ...] = ("p1", "p2"),
        subscribers: tuple[str, ...] = ("s1", "s2", "s3"),
    ) -> None:
        self.network, self.directory = network, directory
        self.client, self.count, self.rate = client, count, rate
        self.names = publishers, subscribers
        self.publishers: dict[str, Program] = {}
        self.subscribers: dict[str, Program] = {}
        self.history = Writer(directory / "run.jsonl")

    def __enter__(self) -> Self:
        kinds = zip(("publishers", "subscribers"), self.names, strict=True)
        declared = {kind: [{"name": name, "timeout_s": TIMEOUT_S} for name in names] for kind, names in kinds}
        self.history.write("run", **declared)
        return self

    def __exit__(self, *exc: object) -> None:
        for program in [*self.publishers.values(), *self.subscribers.values()]:
            program.__exit__()
        self.history.close()

    def history_of(self, name: str) -> Path:
        return self.directory / f"{name}.jsonl"

    def start(self, what: str, name: str, at: str, client: str | None = None) -> Program:
        names = list(self.network.names)
        order = names[names.index(at) :] + names[: names.index(at)]
        options = {
            "client": client or self.client, "urls": self.network.urls(*order), "name": name, "timeout": TIMEOUT_S,
            "history": str(self.history_of(name)), "journal": str(self.directory / f"{name}.journal"),
            "rate": self.rate, "count": self.count,
        }  # fmt: skip
        program = module("chaos.live.clients", what, json.dumps(options))
        (self.publishers if what == "publish" else self.subscribers)[name] = program
        return program

    def publisher(self, name: str, at: str, client: str | None = None) -> Program:
        return self.start("publish", name, at, client)

    def subscriber(self, name: str, at: str, client: str | None = None) -> Program:
        return self.start("subscribe", name, at, client)

    def wait_ready(self, *programs: Program) -> None:
        for program in programs:
            assert program.line() == "READY"

    def kill(self, name: str) -> None:
        """SIGKILL of a client; start it again under its name to go on with its journal."""
        self.history.write("fault", kind="kill", target=f"client {name}", until=None)
        program = self.publishers.get(name) or self.subscribers[name]
        program.process.kill()
        program.__exit__()

    def kill_routers(self, *names: str) -> None:
        for name in names:
            self.history.write("fault", kind="kill", target=f"router {name}", until=None)
        self.network.kill(*names)

    def received(self, name: str) -> int:
        path = self.history_of(name)
        return path.read_bytes().count(b'{"op":"receive"') if path.exists() else 0

    def wait_received(self, total: int) -> None:
        """Until every subscriber has been handed that many."""
        wait_until(lambda: min(map(self.received, self.subscribers)) >= total, f"{total} deliveries each")

    def wait_all_received(self, total: int) -> None:
        """Until the subscribers together have been handed that many."""
        wait_until(lambda: sum(map(self.received, self.subscribers)) >= total, f"{total} deliveries in all")

    def enough(self) -> None:
        """Publishers without a count end."""
        for program in self.publishers.values():
            program.process.terminate()

    @property
    def all_sent(self) -> int:
        return self.count * len(self.publishers)

    def finish(self, timeout_s: float = 120.0) -> Judgement:
        """The verdict on a topic."""
        self.stop(timeout_s)
        return judge(self.directory)

    def stop(self, timeout_s: float = 120.0) -> None:
        """Every publisher is DONE, every record gone at every router; then the subscribers stop."""
        for name, program in self.publishers.items():
            try:
                assert program.line(timeout_s) == "DONE"
            except AssertionError as failure:
                raise AssertionError(f"{name}: {failure}\n{self.sayings()}\n{self.network.statuses()}") from None
            program.rest()
        try:
            wait_until(lambda: not self.leftovers(), "records and deliveries in doubt back to zero")
        except AssertionError as failure:
            raise AssertionError(f"{failure}: {self.leftovers()}\n{self.network.statuses()}") from None
        for program in self.subscribers.values():
            program.process.terminate()
        for program in self.subscribers.values():
            program.rest()
        self.history.write("end", drained=True, left=[])

    def leftovers(self) -> dict[str, Any]:
        return {router.name: left for router in self.network if router.running and (left := router.leftovers())}

    def sayings(self) -> str:
        return "\n".join(
            f"--- {name}\n{program.errors}" for name, program in {**self.publishers, **self.subscribers}.items()
        )
