"""The requests that docs/event-bus.md prints, with curl, in one shell."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.edges.bus.conftest import BusNetworks
from tests.edges.bus.world import CERTIFICATE, ROOT_KEY
from tests.live import ROOT

MARK = "@@"  # ends what a command printed


def printed() -> list[tuple[str, str]]:
    """(command, what it prints) of the section."""
    section = (ROOT / "docs" / "event-bus.md").read_text().partition("## Use it\n")[2].partition("```console\n$ bus")[2]
    block = "$ bus" + section.partition("```")[0]
    pairs = [step.partition("\n") for step in block.removeprefix("$ ").split("\n$ ")]
    return [(command, answer.rstrip("\n")) for command, _, answer in pairs]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_gets_the_answers_that_the_documentation_prints(bus_network: BusNetworks, tmp_path: Path) -> None:
    bus = bus_network().bus
    steps = printed()
    script = "".join(f"{command}\nprintf '{MARK}\\n'\n" for command, _ in steps)
    (tmp_path / ".curlrc").write_text(f'cacert = "{CERTIFICATE}"\n')
    done = subprocess.run(
        ["sh", "-e", "-c", script.replace("bus.example", f"localhost:{bus.port}")],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ONCEWAY_BUS_ROOT_KEY": ROOT_KEY},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    answers = [answer.removesuffix("\n") for answer in done.stdout.split(f"{MARK}\n")]
    assert done.returncode == 0, done.stderr
    for (command, expected), answer in zip(steps, answers[:-1], strict=True):
        pattern = ".+".join(map(re.escape, expected.split("…")))
        assert re.fullmatch(pattern, answer), f"$ {command}\n{answer}\nprinted:\n{expected}"
    assert len(steps) > 25
