"""A pipe with its routers and stores as processes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import yaml

from chaos.live.ports import free_port
from tests.live import PATIENT, ROOT, LiveNetwork, dying_with_us, wait_until


class PipeNetwork(LiveNetwork):
    """`pipes`: the names of each pipe's stores, the primary first. Each store has a directory of its own."""

    def __init__(
        self,
        directory: Path,
        names: tuple[str, ...],
        pipes: Mapping[str, tuple[str, ...]],
        retention: Mapping[str, str] | None = None,
        store_metrics: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        **options: object,
    ) -> None:
        stores = dict.fromkeys(store for names in pipes.values() for store in names)
        self.ports = {store: free_port() for store in stores}
        self.pipes = pipes
        self.data = {store: str(directory / f"data-{store}") for store in stores}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []
        addresses = [
            {"match": pipe, "type": "pipe", "stores": {store: self.ports[store] for store in stores}}
            for pipe, stores in pipes.items()
        ]
        of_all = {"retention": retention, "store_metrics": store_metrics}
        addresses = [{**each, **{key: value for key, value in of_all.items() if value}} for each in addresses]
        links = [(one, other) for one, other in itertools.pairwise(names)]
        super().__init__(directory, names, links, addresses, {**PATIENT, **(settings or {})}, **options)  # type: ignore[arg-type]

    def store_url(self, *stores: str) -> str:
        return ",".join(f"amqp://127.0.0.1:{self.ports[store]}" for store in stores or self.ports)

    def start_store(self, name: str) -> None:
        log = (self.directory / f"store-{name}.log").open("ab")
        self._logs.append(log)
        command = [sys.executable, "-m", "onceway", "pipe", "serve", str(self.topology_path), "--store", name]
        self.processes[name] = subprocess.Popen(
            dying_with_us([*command, "--data", self.data[name]]),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        said = self.directory / f"store-{name}.log"
        starts = sum(store == name for store in self._started)
        self._started.append(name)
        wait_until(lambda: said.read_text().count("listening: ") > starts, f"store {name} listens\n{said.read_text()}")

    @property
    def _started(self) -> list[str]:
        started: list[str] = self.__dict__.setdefault("started_stores", [])
        return started

    def add_store(self, pipe: str, store: str) -> None:
        """To the file; who has read it is to be started again."""
        self.ports[store] = free_port()
        self.data[store] = str(self.directory / f"data-{store}")
        topology = self.topology()
        for address in topology["addresses"]:
            if address["match"] == pipe:
                address["stores"][store] = self.ports[store]
        self.topology_path.write_text(yaml.safe_dump(topology, sort_keys=False))

    def start_all(self) -> PipeNetwork:
        self.start()
        for store in self.ports:
            self.start_store(store)
        return self

    def store_pid(self, name: str) -> int:
        return self.processes[name].pid

    def kill_store(self, name: str) -> None:
        process = self.processes.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)

    def close(self) -> None:
        for name in list(self.processes):
            self.kill_store(name)
        for log in self._logs:
            log.close()
        super().close()

    def logs(self, lines: int = 40) -> str:
        said = [
            f"--- store {store}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            for store in self.ports
            if (path := self.directory / f"store-{store}.log").exists()
        ]
        return "\n".join([super().logs(lines), *said])
