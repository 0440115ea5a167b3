"""CONTRIBUTING.md's way to a new setting is a row and a value: here it leads there, in a copy of the tree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.live import LiveNetwork

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("amqp10", "mqtt", "router", "interrouter", "onceway", "chaos", "edges", "scripts", "docs", "monitoring")
BOUND_S = 60.0
TABLE = ("onceway/topology/settings.py", '        Row("heartbeat", Duration(0.01, 60)')
ROW = """        Row("linger", Duration(0.1, 60), When.NEW_CONNECTIONS, "how long a client that says nothing may stay", "linger_s",
            since="1.0"),
"""
VALUES = ("router/config.py", "    heartbeat_s: float = 0.5\n")
VALUE = "    linger_s: float = 2.0\n"


def test_a_row_and_a_value_are_all_that_a_new_setting_takes(tmp_path: Path) -> None:
    tree, way = tmp_path / "tree", (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a setting")[2]
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for (path, before), added in ((TABLE, ROW), (VALUES, VALUE)):
        assert f"`{path}`" in way
        text = (tree / path).read_text()
        assert text.count(before) == 1
        (tree / path).write_text(text.replace(before, added + before))

    with LiveNetwork(tmp_path, settings={"linger": "5s"}, trees={"a": tree}) as network:
        environment = {**os.environ, "PYTHONPATH": str(tree), "ONCEWAY_STATE_DIR": str(tmp_path / "state")}
        file = network.topology_path

        def does(*words: str, code: int = 0) -> str:
            command = [sys.executable, *words]
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True, timeout=BOUND_S, check=False
            )
            assert done.returncode == code, done.stderr
            return done.stdout + done.stderr

        def asks_for(value: str) -> None:
            document: dict[str, Any] = {**network.topology(), "settings": {"linger": value}}
            file.write_text(yaml.safe_dump(document, sort_keys=False))

        def holds() -> str:
            return str(json.loads(network["a"].get("/configuration")[1])["settings.linger"])

        does("scripts/tables.py")
        row = "| `linger` | 2s | how long a client that says nothing may stay (since 1.0) | new connections |"
        assert f"\n{row}\n" in (tree / "docs" / "topology.md").read_text()
        schema = json.loads((tree / "docs" / "topology.schema.json").read_text())
        said = schema["properties"]["settings"]["properties"]["linger"]["description"]
        assert said == "how long a client that says nothing may stay (since 1.0)"
        assert json.loads(does("-m", "onceway", "schema")) == schema

        network.start()
        assert holds() == "5s"
        asks_for("2h")
        assert "settings.linger: 2h is more than 1m; write a value from 100ms to 1m" in does(
            "-m", "onceway", "check", str(file), code=2
        )
        asks_for("7s")
        line = "changed settings.linger 5s -> 7s: for new connections"
        assert line in does("-m", "onceway", "reload", "--dry-run", str(file))
        assert holds() == "5s"
        assert line in does("-m", "onceway", "reload", str(file))
        assert holds() == "7s"
