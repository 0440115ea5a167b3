"""The programs of examples/bus do what their docstrings say."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.edges.bus.conftest import BusNetworks
from tests.edges.bus.world import ROOT_KEY, BusProcess
from tests.live import ROOT
from tests.running import Program

EXAMPLES = ROOT / "examples" / "bus"


def plain(network: BusNetworks) -> BusProcess:
    """A bus without TLS."""
    return network(arguments=("--http-callbacks",), tls=False).bus


def test_events_that_one_example_pushes_are_printed_by_the_other(bus_network: BusNetworks) -> None:
    url = f"http://127.0.0.1:{plain(bus_network).port}"
    environment = {**os.environ, "ONCEWAY_BUS_ROOT_KEY": ROOT_KEY}
    pushing = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "push.py"), url], env=environment, cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert pushing.stdout.readline() == "the topic is there, press return to push\n"
        with Program([sys.executable, str(EXAMPLES / "receive.py"), url], environment) as receiving:
            assert receiving.line() == "subscribed"
            assert pushing.communicate("\n", timeout=60)[0] == "pushed 3 events\n"
            assert receiving.rest() == [
                f"create https://shop.example/orders/{number} {{'total': {10 * number}}}" for number in range(3)
            ]
    finally:
        pushing.kill()
        pushing.wait(60)


def test_every_example_is_listed() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    for program in EXAMPLES.glob("*.py"):
        assert f"| [bus/{program.name}](bus/{program.name}) |" in listed
