"""The dashboard and the alert rules: their metrics exist, their queries parse, and each alert fires when it should."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from onceway.base.metrics import Metric
from onceway.operate.metrics import TABLE
from scripts.tables import METRICS
from tests.needs import PROMTOOL

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
ALERTS: list[dict[str, Any]] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
KNOWN: dict[str, Metric[Any]] = {metric.name: metric for table in METRICS.values() for metric in table}
OTHERS = {
    "up",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}
NAME = re.compile(r"\b((?:onceway|process)_[a-z_]+|up)\b(?=[\[{ )=,]|$)")
OF_SCRAPES = {"job", "instance", "le"}  # labels that Prometheus adds, and those of buckets

promtool = shutil.which("promtool", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
needs_promtool = pytest.mark.skipif(promtool is None, reason=PROMTOOL)


def queries() -> list[str]:
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    variables = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    return panels + variables + [rule["expr"] for rule in ALERTS]


@pytest.mark.parametrize("query", queries())
def test_every_metric_and_label_of_the_dashboard_and_the_rules_exists(query: str) -> None:
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in NAME.findall(query)} - {"process_", "onceway_"}
    assert names
    assert names <= KNOWN.keys() | OTHERS
    labels = {label for name in names & KNOWN.keys() for label in KNOWN[name].labels} | OF_SCRAPES
    for words in re.findall(r"\b(?:by|without|on|ignoring) ?\(([^)]*)\)|\{([^}]*)\}", query):
        assert set(re.findall(r"(\w+)(?==|!=|,|$)", re.sub(r'"[^"]*"', "", ",".join(filter(None, words))))) <= labels


def test_every_metric_that_stands_for_trouble_is_on_the_dashboard() -> None:
    shown = " ".join(queries())
    missing = {metric.name for metric in TABLE if metric.name not in shown}
    assert missing <= {
        "onceway_uptime_seconds",
        "onceway_recovering_seconds",
        "onceway_user_connections",
        "onceway_entries",
        "onceway_path_cost",
        "onceway_idle_timeouts_total",
    }


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_every_alert_is_explained_in_the_documents_and_tested() -> None:
    page = (ROOT / "docs/operating/monitor.md").read_text()
    tested = (MONITORING / "alerts_test.yaml").read_text()
    for rule in ALERTS:
        assert f"`{rule['alert']}`" in page
        assert f"alertname: {rule['alert']}" in tested


@needs_promtool
def test_promtool_finds_that_each_alert_fires_when_it_should() -> None:
    assert promtool is not None
    for arguments in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        done = subprocess.run([promtool, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_parses_every_query_of_the_dashboard(tmp_path: Path) -> None:
    assert promtool is not None
    rules = [
        {"record": f"query:{i}", "expr": query.replace("$__rate_interval", "5m")}
        for i, query in enumerate(query for query in queries() if "label_values" not in query)
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
