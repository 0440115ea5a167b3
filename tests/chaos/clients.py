"""The clients of one kill test: started as processes, watched through their ledgers, judged at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from tests.chaos.ledger import Verdict, judge
from tests.live import LiveNetwork, wait_until
from tests.running import Program, module


class Clients:
    """`clients.publisher("p1", "a")` starts one whose first router is a; all routers are in its URL list."""

    def __init__(self, network: LiveNetwork, directory: Path, *, client: str, count: int, rate: float) -> None:
        self.network, self.directory = network, directory
        self.client, self.count, self.rate = client, count, rate
        self.publishers: dict[str, Program] = {}
        self.subscribers: dict[str, Program] = {}
        self.killed: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for program in [*self.publishers.values(), *self.subscribers.values()]:
            program.__exit__()

    def ledger(self, name: str) -> Path:
        return self.directory / f"{name}.ledger"

    def start(self, what: str, name: str, at: str) -> Program:
        names = list(self.network.names)
        order = names[names.index(at) :] + names[: names.index(at)]
        # fmt: off
        program = module(
            "tests.chaos.workload", what, "--client", self.client, "--urls", self.network.urls(*order),
            "--name", name, "--ledger", self.ledger(name), "--journal", self.directory / f"{name}.journal",
            "--count", self.count, "--rate", self.rate)
        # fmt: on
        (self.publishers if what == "publish" else self.subscribers)[name] = program
        return program

    def publisher(self, name: str, at: str) -> Program:
        return self.start("publish", name, at)

    def subscriber(self, name: str, at: str) -> Program:
        return self.start("subscribe", name, at)

    def wait_ready(self, *programs: Program) -> None:
        for program in programs:
            assert program.line(60) == "READY"

    def kill(self, name: str) -> None:
        """SIGKILL of a client; start it again under its name to go on with its journal."""
        program = self.publishers.get(name) or self.subscribers[name]
        program.process.kill()
        program.__exit__()
        self.killed.append(name)

    def handed(self, name: str) -> int:
        path = self.ledger(name)
        return path.read_bytes().count(b"handed ") if path.exists() else 0

    def wait_handed(self, total: int) -> None:
        """Until every subscriber has been handed that many."""
        wait_until(lambda: min(map(self.handed, self.subscribers)) >= total, f"{total} deliveries each", 60)

    @property
    def all_sent(self) -> int:
        return self.count * len(self.publishers)

    def finish(self, timeout_s: float = 120.0) -> Verdict:
        """Every publisher is DONE, every record gone at every router; then the subscribers stop, and the verdict."""
        for name, program in self.publishers.items():
            try:
                assert program.line(timeout_s) == "DONE"
            except AssertionError as failure:
                raise AssertionError(f"{name}: {failure}\n{self.verdict()}\n{self.sayings()}") from None
            program.rest()
        try:
            wait_until(lambda: not self.leftovers(), "records and deliveries in doubt back to zero", 20)
        except AssertionError as failure:
            raise AssertionError(f"{failure}: {self.leftovers()}\n{self.verdict()}") from None
        for program in self.subscribers.values():
            program.process.terminate()
        for program in self.subscribers.values():
            program.rest()
        return self.verdict()

    def leftovers(self) -> dict[str, Any]:
        return {router.name: left for router in self.network if router.running and (left := router.leftovers())}

    def sayings(self) -> str:
        return "\n".join(
            f"--- {name}\n{program.errors}" for name, program in {**self.publishers, **self.subscribers}.items()
        )

    def verdict(self) -> Verdict:
        return judge(map(self.ledger, self.publishers), map(self.ledger, self.subscribers), killed=self.killed)
