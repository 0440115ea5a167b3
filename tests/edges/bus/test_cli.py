"""`onceway bus serve`: what it refuses, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.live.ports import free_port
from tests.cli.conftest import onceway
from tests.edges.bus.world import CERTIFICATE, BusProcess

CERTIFIED = ("--tls-cert", str(CERTIFICATE))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "either --tls-cert, or --plain-http"),
        ((*CERTIFIED, "--plain-http"), "either --tls-cert, or --plain-http"),
        (("--plain-http", "--http-listen", "8080"), "it needs --tls-cert"),
        (("--tls-cert", "/nowhere.pem"), "--tls-cert: "),
        ((*CERTIFIED, "--callback-ca", "/nowhere.pem"), "--callback-ca: "),
        ((*CERTIFIED, "--min-free", "1"), "at most half of --max-storage"),
        ((*CERTIFIED, "--min-free", "6", "--max-storage", "10"), "at most half of --max-storage"),
        ((*CERTIFIED, "--listen", "a:b:c"), "--listen: "),
        (CERTIFIED, "the root key is in $ONCEWAY_BUS_ROOT_KEY or --root-key-file"),
        ((*CERTIFIED, "--root-key-file", "/nowhere"), "--root-key-file: "),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    key = "" if "root key" in said else "key"
    done = onceway("bus", "serve", "--data", tmp_path / "data", *arguments, env={"ONCEWAY_BUS_ROOT_KEY": key})
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "data").exists()


def test_data_that_another_edge_uses_is_refused(bus: BusProcess, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("the key\n")
    where = ("--data", bus.directory / "data-a", "--listen", free_port())
    done = onceway("bus", "serve", *where, *CERTIFIED, "--root-key-file", key)
    assert done.returncode == 1
    assert f"process {bus.pid} has the store open" in done.stderr
