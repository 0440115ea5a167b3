"""Fixtures: routers as real processes (tests/live.py), one alone and three in line; rhea from npm."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import needs
from tests.live import PATIENT, LiveNetwork
from tests.live_fixture import live_network, pytest_runtest_makereport
from tests.running import ROOT

__all__ = ["live_network", "pytest_runtest_makereport"]

_INSTALLED = Path(__file__).parent  # by `make test`: tests/interop/node_modules


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The modules here import proton, also rhea's: it makes the bodies that rhea has to show."""
    if needs.has_proton():
        return None
    return _WithoutProton.from_parent(parent, path=module_path)


class _WithoutProton(pytest.Module):
    def collect(self) -> list[pytest.Item]:
        pytest.skip(needs.PROTON, allow_module_level=True)


@dataclass(frozen=True, slots=True)
class Way:
    """Where a test publishes and where it subscribes."""

    network: LiveNetwork
    publish: str  # host:port
    subscribe: str


def _line(directory: Path, *names: str) -> Iterator[LiveNetwork]:
    links = [(names[i], names[i + 1]) for i in range(len(names) - 1)]
    with LiveNetwork(directory, names, links, settings=PATIENT) as network:
        yield network.start()


@pytest.fixture(scope="session")
def one_router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    yield from _line(tmp_path_factory.mktemp("one"), "a")


@pytest.fixture(scope="session")
def three_routers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    yield from _line(tmp_path_factory.mktemp("three"), "a", "b", "c")


@pytest.fixture(params=["three_routers", pytest.param("one_router", marks=pytest.mark.long)])
def way(request: pytest.FixtureRequest) -> Way:
    """From the first router to the last: through three in line, and, in `make chaos`, through one."""
    network: LiveNetwork = request.getfixturevalue(request.param)
    return Way(network, network[network.names[0]].address, network[network.names[-1]].address)


@pytest.fixture(scope="session")
def java_client(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs examples/java-exactly-once, compiled."""
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed (Debian: apt-get install default-jdk-headless)")
    classes = tmp_path_factory.mktemp("java")
    sources = sorted((ROOT / "examples" / "java-exactly-once").glob("*.java"))
    subprocess.run(["javac", "-Xlint:all", "-Werror", "-d", classes, *sources], check=True, timeout=600)
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", str(classes), "Main"]


@pytest.fixture(scope="session")
def rhea() -> Path:
    """The directory whose node_modules holds rhea: installed by `make test`, else once, with npm, outside the tree."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (Debian: apt-get install nodejs npm)")
    if (_INSTALLED / "node_modules" / "rhea" / "package.json").exists():
        return _INSTALLED
    lock = _INSTALLED / "package-lock.json"
    digest = hashlib.blake2b(lock.read_bytes(), digest_size=6).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME", tempfile.gettempdir())) / f"onceway-rhea-{digest}"
    if not cache.exists():
        staging = Path(tempfile.mkdtemp(prefix="onceway-rhea-"))
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_INSTALLED / name, staging)
        npm = ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"]
        made = subprocess.run(npm, cwd=staging, capture_output=True, text=True, timeout=180, check=False)
        if made.returncode != 0:
            shutil.rmtree(staging)
            pytest.skip(f"npm could not install rhea: {made.stderr.strip()[-300:]}")
        try:
            staging.rename(cache)
        except OSError:  # another worker was quicker
            shutil.rmtree(staging)
    return cache
