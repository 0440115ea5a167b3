"""CONTRIBUTING.md's way to a new metric is one row: here it leads there, in a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.live import LiveNetwork

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("amqp10", "mqtt", "router", "interrouter", "onceway", "chaos", "edges", "scripts", "docs", "monitoring")
BEFORE = "ROUTER: Final[tuple[Metric[Scrape], ...]] = (\n"
ROW = '    Metric("onceway_process_number", "gauge", "Number of the process", _said("pid"), more="New"),\n'


def test_a_row_is_answered_by_a_router_and_stands_in_the_documents(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    table = tree / "onceway" / "operate" / "metrics.py"
    assert f"`{table.relative_to(tree)}`" in (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a metric")[2]
    assert BEFORE in table.read_text()
    table.write_text(table.read_text().replace(BEFORE, BEFORE + ROW))
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run([sys.executable, "scripts/tables.py"], cwd=tree, env=environment, check=True)
    page = (tree / "docs" / "operating" / "metrics.md").read_text()
    assert "\n| `onceway_process_number` | gauge |  | Number of the process. New |\n" in page
    with LiveNetwork(tmp_path, trees={"a": tree}) as network:
        router = network.start()["a"]
        said = router.get("/metrics")[1].decode()
        assert "\n# HELP onceway_process_number Number of the process\n# TYPE onceway_process_number gauge\n" in said
        assert f"\nonceway_process_number {float(router.status()['pid'])}\n" in said
