"""The Dockerfile makes what the rendered Compose file and the objects of Kubernetes expect. `make image` builds it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from onceway.render import USER
from onceway.render.plan import STATE
from onceway.state import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, after its FROM."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE))
    found: list[list[tuple[str, str]]] = []
    for line in filter(None, text.splitlines()):
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            found.append([])
        elif found:
            found[-1].append((instruction, rest))
    return found


def last(instruction: str) -> str:
    (found,) = (rest for name, rest in stages()[-1] if name == instruction)
    return found


def test_the_last_stage_gets_what_the_first_has_installed_and_no_tool() -> None:
    assert len(stages()) == 2
    runs = " ".join(rest for name, rest in stages()[-1] if name == "RUN")
    assert not re.search(r"\b(pip|apt|apt-get|gcc|make|curl)\b", runs)
    assert last("COPY").startswith("--from=build ")


def test_the_image_is_that_of_the_rendered_files() -> None:
    assert last("USER") == f"{USER}:{USER}"
    assert f"--uid {USER} --gid {USER}" in last("RUN")
    assert last("VOLUME") == STATE
    assert f"{ENVIRONMENT}={STATE} " in last("ENV")
    assert last("ENTRYPOINT") == '["onceway"]'


def test_the_image_holds_the_versions_of_the_lock_and_no_others() -> None:
    runs = " && ".join(rest for name, rest in stages()[0] if name == "RUN")
    installs = [step for step in runs.split(" && ") if "pip install" in step]
    assert ["--require-hashes -r /src/requirements.lock" in installs[0], "--no-deps" in installs[1]] == [True, True]
    assert len(installs) == 2


def test_the_image_says_how_it_is_asked_and_stopped() -> None:
    assert last("STOPSIGNAL") == "SIGTERM"
    assert last("HEALTHCHECK").endswith('CMD ["sh", "-c", "exec onceway status \\"$ONCEWAY_STATUS\\""]')
    assert "ONCEWAY_STATUS=http://127.0.0.1:8671" in last("ENV")


def test_what_a_wheel_is_made_from_and_its_lock_go_into_the_build_and_nothing_else() -> None:
    first, *rules, last = (ROOT / ".dockerignore").read_text().splitlines()[1:]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {name.partition(".")[0] for name in project["tool"]["setuptools"]["packages"]}
    folders |= {folder.partition("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()}
    files = {"pyproject.toml", "setup.py", "requirements.lock", "README.md", "LICENSE"}
    assert (first, last) == ("*", "**/__pycache__")
    assert {rule.removeprefix("!") for rule in rules} == folders | files
    assert project["project"]["readme"] in files
