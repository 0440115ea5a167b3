"""The documentation builds into a site in which every link leads somewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("mkdocs", reason="needs onceway[docs]")


def test_the_site_builds_with_every_link_and_a_search_index(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    titles = {page["title"] for page in json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]}
    assert {"The topology file", "Glossary", "Command line", "Python API"} <= titles
    api = (tmp_path / "api" / "index.html").read_text()
    for name in ("onceway.connect", "onceway.Publisher", "onceway.Subscriber", "onceway.Delivery"):
        assert f'id="{name}"' in api, f"the API reference does not show {name}"
    assert "onceway publish" in (tmp_path / "commands" / "index.html").read_text()
