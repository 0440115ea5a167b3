"""`onceway bus serve`: what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.live.ports import free_port
from edges.bus.edge import Edge
from edges.bus.options import BusOptions
from edges.store import Batch, StoreError, open_store
from onceway.base import waits
from tests.cli.conftest import called, onceway
from tests.edges.bus.world import CERTIFICATE, ROOT_KEY, BusProcess
from tests.live import wait_until
from tests.running import module

CERTIFIED = ("--tls-cert", str(CERTIFICATE))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "either --tls-cert, or --plain-http"),
        ((*CERTIFIED, "--plain-http"), "either --tls-cert, or --plain-http"),
        (("--plain-http", "--http-listen", "8080"), "it needs --tls-cert"),
        (("--tls-cert", "/nowhere.pem"), "--tls-cert: /nowhere.pem cannot be read: No such file"),
        ((*CERTIFIED, "--callback-ca", "/nowhere.pem"), "--callback-ca: /nowhere.pem cannot be read: No such file"),
        ((*CERTIFIED, "--min-free", "1"), "at most half of --max-storage"),
        ((*CERTIFIED, "--min-free", "6", "--max-storage", "10"), "at most half of --max-storage"),
        ((*CERTIFIED, "--listen", "a:b:c"), "'--listen': "),
        (("--plain-http", "--tls-key", "/nowhere.pem"), "--tls-key: of --tls-cert"),
        ((*CERTIFIED, "--name", ""), "--name, --address: not empty"),
        (("--tls-cert", "/etc/passwd"), "--tls-cert: /etc/passwd holds no CERTIFICATE in PEM form"),
        ((*CERTIFIED, "--store", "https://a:443"), "--data or --store"),
        (CERTIFIED, "the root key is in $ONCEWAY_BUS_ROOT_KEY or --root-key-file"),
        ((*CERTIFIED, "--root-key-file", "/nowhere"), "--root-key-file: /nowhere: No such file"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    key = "" if "root key" in said else "key"
    done = called("bus", "serve", "--data", tmp_path / "data", *arguments, env={"ONCEWAY_BUS_ROOT_KEY": key})
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "data").exists()


def test_data_that_another_edge_uses_is_refused(bus: BusProcess, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text("the key\n")
    where = ("--data", bus.directory / "data-a", "--listen", free_port())
    done = onceway("bus", "serve", *where, *CERTIFIED, "--root-key-file", key)
    assert done.returncode == 1
    assert f"process {bus.pid} has the store open" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--store", "a:8443"), "--store: a URL"),
        (("--store", "https://a:8443", "--share"), "for --data"),
        (("--store", "https://a:8443", "--max-storage", "10"), "for --data"),
    ],
)
def test_a_store_of_another_process_has_its_limits_there(arguments: tuple[str, ...], said: str) -> None:
    done = called("bus", "serve", *CERTIFIED, *arguments, env={"ONCEWAY_BUS_ROOT_KEY": "key"})
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())


def test_a_port_that_is_taken_is_named(bus: BusProcess, tmp_path: Path) -> None:
    where = ("--data", tmp_path, "--listen", bus.port)
    done = onceway("bus", "serve", *where, "--plain-http", env={"ONCEWAY_BUS_ROOT_KEY": "key"})
    assert done.returncode == 2
    said = f"[a] cannot listen at 127.0.0.1:{bus.port}: Address already in use; give another --listen or --http-listen"
    assert said in done.stderr


def test_an_edge_says_that_it_waits_for_its_store_and_can_be_stopped(tmp_path: Path) -> None:
    where = ("--store", f"https://localhost:{free_port()}", "--callback-ca", CERTIFICATE, "--plain-http")
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text("key")
    with module("onceway", "bus", "serve", *where, "--root-key-file", key) as edge:
        wait_until(lambda: "waits for the store: " in edge.errors, "it says that it waits")
        edge.process.terminate()
        assert edge.rest() == []


def test_an_edge_whose_store_is_away_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waits, "BUS_STOP", replace(waits.BUS_STOP, bound=0.01))

    async def start_and_stop() -> None:
        edge = Edge(BusOptions(str(tmp_path / "store"), "127.0.0.1:1", share=True))
        await edge.start()
        store, edge.store = edge.store, Away()  # type: ignore[assignment]
        await asyncio.wait_for(edge.stop(), 30)
        await store.close()

    asyncio.run(start_and_stop())
    assert "stopped while the store does not answer: far away" in caplog.text


class Away:
    """A store that does not answer."""

    place = "far away"

    def commit(self, batch: Batch) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        pass


async def test_a_store_of_another_edge_is_refused(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    batch = Batch()
    batch.put("bus-journal/container", b"onceway-bus:bus:a")
    await store.commit(batch)
    await store.close()
    edge = Edge(BusOptions(str(tmp_path / "store"), "127.0.0.1:1", name="b"))
    with pytest.raises(StoreError, match="belongs to onceway-bus:bus:a, and this is onceway-bus:bus:b"):
        await edge.start()
    await edge.stop()


@pytest.mark.parametrize(
    ("key", "said"), [(None, "that process does not share a store"), ("another", "the key is refused")]
)
def test_an_edge_that_may_not_use_the_store_of_another_ends_with_the_reason(
    bus: BusProcess, key: str | None, said: str
) -> None:
    where = ("--store", f"https://localhost:{bus.port}", "--callback-ca", str(CERTIFICATE), "--listen", free_port())
    done = onceway("bus", "serve", *where, *CERTIFIED, env={"ONCEWAY_BUS_ROOT_KEY": key or ROOT_KEY})
    assert done.returncode == 1
    assert said in done.stderr
