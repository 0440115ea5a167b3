"""The distribution holds what it should, and the repository says of itself what is true."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
IN_THE_WHEEL = ("amqp10", "mqtt", "router", "interrouter", "onceway", "pyspark_onceway", "edges", "chaos")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_of_the_product_is_listed_for_the_wheel() -> None:
    found = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for top in IN_THE_WHEEL
        for init in (ROOT / top).rglob("__init__.py")
        if "fixtures" not in init.parts
    }
    listed = set(project()["tool"]["setuptools"]["packages"])
    assert listed == found | {"onceway.topologies", "onceway.monitoring"}


def test_every_package_tells_type_checkers_that_it_is_typed() -> None:
    data = project()["tool"]["setuptools"]["package-data"]
    for package in IN_THE_WHEEL:
        if (ROOT / package).exists():
            assert "py.typed" in data[package]
            assert (ROOT / package / "py.typed").read_text() == ""


def test_import_linter_and_mypy_know_the_packages() -> None:
    tools = project()["tool"]
    for package in ("amqp10", "mqtt", "router", "interrouter", "onceway", "pyspark_onceway"):
        assert package in tools["importlinter"]["root_packages"]
        assert package in tools["mypy"]["files"]


def test_every_dependency_has_its_reason_written_down() -> None:
    reasons = (ROOT / "docs" / "decisions" / "dependencies.md").read_text()
    for requirement in project()["project"]["dependencies"]:
        name = re.split(r"[><=;\s]", requirement)[0]
        assert f"**{name}**" in reasons, f"docs/decisions/dependencies.md does not say why {name}"


def locked() -> dict[str, str]:
    """What requirements.lock names: version by normalised name."""
    lines = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


# Extras that routers and edges run with. The others are for applications, for Spark, which has an installation of its
# own, and for building.
RUNNING = sorted(
    set(project()["project"]["optional-dependencies"])
    - {"check", "cloudevents", "docs", "otel", "proton", "spark", "spark-connect", "spark-s3", "test"}
)


def test_the_lock_holds_what_routers_and_edges_run_with() -> None:
    optional = project()["project"]["optional-dependencies"]
    versions = locked()
    for text in [*project()["project"]["dependencies"], *(text for extra in RUNNING for text in optional[extra])]:
        requirement = Requirement(text)
        version = versions.get(canonicalize_name(requirement.name), "0")
        assert version in requirement.specifier, f"{text} is not in requirements.lock: make lock"


def test_every_version_of_the_lock_has_its_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = [entry for entry in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE) if "==" in entry]
    assert len(entries) == len(locked()) > 10
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry.splitlines()[0]


def test_the_lock_holds_what_its_packages_need() -> None:
    """As far as they are installed here in the version of the lock."""
    versions, checked = locked(), 0
    wanted = {"pyjwt": {"crypto"}, "psycopg": {"binary"}}  # extras, as pyproject.toml names them
    for name, version in versions.items():
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if installed.version != version:
            continue
        checked += 1
        for requirement in map(Requirement, installed.requires or ()):
            extras = ("", *wanted.get(name, ()))
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
                found = versions.get(canonicalize_name(requirement.name), "0")
                assert found in requirement.specifier, f"{name} needs {requirement}, the lock has {found}: make lock"
    assert checked > 5


class Vulnerabilities(BaseHTTPRequestHandler):
    """Answers as osv.dev does; `known` are the names of packages that have a hole."""

    known: ClassVar[set[str]] = set()
    asked: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        name = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["package"]["name"]
        self.asked.add(name)
        hole = {"id": "PYSEC-1", "summary": "a hole", "affected": []}
        body = json.dumps({"vulns": [hole]} if name in self.known else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def audited(url: str) -> tuple[int, str]:
    environment = {**os.environ, "OSV_URL": url}
    done = subprocess.run(
        ["scripts/audit.sh", "--if-reachable"],
        check=False,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_lock_is_audited_where_somebody_answers() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Vulnerabilities) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1/query"
        Vulnerabilities.known.add("aiohttp")
        code, said = audited(url)
        assert (code, "PYSEC-1" in said) == (1, True), said
        Vulnerabilities.known.clear()
        code, said = audited(url)
        assert (code, "No known vulnerabilities found" in said) == (0, True), said
        assert {canonicalize_name(name) for name in Vulnerabilities.asked} == {*locked()} - {"tzdata"}  # of Windows
        assert audited(url) == (0, ""), "once a day"
        server.shutdown()
    code, said = audited(url + "/gone")
    assert code == 0
    assert "nobody was asked for known vulnerabilities: " + url + "/gone" in said
    assert "held to the versions and hashes of requirements.lock" in said


def test_make_lock_takes_those_extras() -> None:
    assert sorted(re.findall(r"--extra ([a-z]+)", (ROOT / "Makefile").read_text())) == RUNNING


def documents() -> list[Path]:
    return sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md"), *ROOT.glob("examples/**/README.md")]
    )


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_the_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.relative_to(ROOT)} links to {target}"
