"""The operator's pages happen as they are printed: three hosts, played by three addresses of the loopback interface with a
state directory each. Commands of systemd, docker and kubectl are held to what `onceway render` writes.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from chaos.live.ports import free_port
from onceway.base.hosts import is_own
from onceway.topology import loads
from tests.cli.conftest import COMMAND
from tests.docs.test_commands import check_onceway
from tests.live import wait_until
from tests.running import Program

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "operating"
HOSTS = "abc"


def printed(*pages: str) -> list[str]:
    """The commands in the blocks of these pages."""
    blocks = [
        block
        for page in pages
        for block in re.findall(r"^```console\n(.*?)^```", (PAGES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    ]
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def blocks_of_yaml(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", (PAGES / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)


def file_of_install() -> str:
    (text,) = [block for block in blocks_of_yaml("install") if block.startswith("network: shop\n")]
    return text


class Hosts:
    """The three hosts of the pages. A command is run as it is printed, but for paths, addresses and ports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = dict(zip(("5672", "7671", "8671"), (str(free_port()) for _ in range(3)), strict=True))
        text = file_of_install()
        # A network that waits for subscriptions from before does so for a moment.
        (directory / "shop.yaml").write_text(self.here(text.replace("timeout: 60s", "timeout: 500ms")))
        self.left = printed("install", "upgrade", "disaster")

    def here(self, text: str) -> str:
        text = re.sub(r"\b(5672|7671|8671)\b", lambda match: self.ports[match[1]], text).replace("10.0.0.", "127.0.0.")
        for place in ("/etc/onceway", "/etc/systemd/system"):
            text = text.replace(place, str(self.directory))
        return re.sub(r"(?<= )(billing\.journal|\.$)", lambda match: str(self.directory / match[1]), text)

    def printed(self, line: str) -> list[str]:
        """The words of a printed command; it counts as run."""
        assert line in self.left, f"no page prints {line!r}"
        self.left = [other for other in self.left if other != line]
        return shlex.split(self.here(line))

    def run(self, line: str) -> str:
        """Runs a printed command of `onceway`, which has to succeed, and returns what it prints."""
        _, *words = self.printed(line)
        done = subprocess.run([*COMMAND, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def up(self, host: str, *words: str) -> Program:
        """`onceway up` on a host."""
        environment = {**os.environ, "ONCEWAY_STATE_DIR": str(self.directory / f"state-{host}")}
        return Program([*COMMAND, "up", str(self.directory / "shop.yaml"), *words], environment)

    @contextmanager
    def all_up(self, first: Program) -> Iterator[None]:
        """All hosts with their routers, ready; `first` is host a. In the end they die."""
        with ExitStack() as stack:
            running = [stack.enter_context(first)]
            # A fresh start beside routers that are up is refused.
            wait_until(lambda: "listening: amqp" in first.errors, "the first host to listen")
            running += [stack.enter_context(self.up(host, "--only", host)) for host in HOSTS[1:]]
            for program in running:
                assert program.line() == "network shop ready: 1 router, 0 links"
            yield
            pids = [pid for program in running for pid in re.findall(r"started, pid (\d+)", program.errors)]
            for program in running:
                program.process.kill()
            for pid in pids:  # routers die with their supervisor
                wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"process {pid} to be gone")


def test_the_pages_happen_as_they_are_printed(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    file = "/etc/onceway/shop.yaml"

    # Installing
    assert hosts.run(f"onceway check {file}") == f"{tmp_path}/shop.yaml: network shop: 3 routers, 3 links\n"
    unit = hosts.run(f"onceway render systemd {file} --only a --output /etc/systemd/system").strip()
    assert unit == f"{tmp_path}/onceway-shop.service"
    assert "ExecStart=/opt/onceway/bin/onceway up /etc/onceway/shop.yaml --only a\n" in Path(unit).read_text()
    compose = yaml.safe_load(
        Path(hosts.run("onceway render compose topologies/triangle.yaml --output .").split()[0]).read_text()
    )
    image = "registry.example/onceway:0.1.0"
    objects = list(
        yaml.safe_load_all(
            Path(
                hosts.run(f"onceway render kubernetes {file} --image {image} --namespace shop --output .").strip()
            ).read_text()
        )
    )
    _, _, *words = hosts.printed(f"onceway up {file} --only a")
    with hosts.all_up(hosts.up("a", *words[1:])):
        hosts.run(f"onceway status {file}")
        urls = "amqp://10.0.0.1:5672,amqp://10.0.0.2:5672,amqp://10.0.0.3:5672"
        subscribe = hosts.printed(f"onceway subscribe orders --url {urls} --name billing --journal billing.journal")
        with Program([*COMMAND, *subscribe[1:]]) as billing:
            wait_until(lambda: "orders: attached" in billing.errors, "the subscriber attached")
            publish = hosts.printed(f"printf 'one\\ntwo\\n' | onceway publish orders --url {urls}")
            sent = Program(["sh", "-c", f"printf 'one\\ntwo\\n' | {shlex.join([*COMMAND, *publish[4:]])}"])
            with sent:
                assert sent.rest()[0].startswith("published 2, accepted 2, ")
            assert billing.lines(2) == ["one", "two"]
            billing.process.send_signal(signal.SIGINT)
            billing.rest()
        assert hosts.run("onceway status http://10.0.0.1:8671").count("ready") == 1

    # Upgrading: the same commands, with another installation
    hosts.left = [line for line in hosts.left if "onceway-0.2/bin/onceway check" not in line]

    # All routers are dead
    _, _, *words = hosts.printed(f"onceway up {file} --only a --fresh")
    first = hosts.up("a", *words[1:])
    with hosts.all_up(first):
        assert "starts fresh" in first.errors
    _, _, *words = hosts.printed(f"onceway up {file} --recover")
    with hosts.up("lost", *words[1:]) as whole:
        assert "network shop ready: 3 routers" in whole.line()
        whole.process.send_signal(signal.SIGTERM)
        whole.rest()

    check_elsewhere(hosts.left, compose["services"], objects)


def check_elsewhere(left: list[str], services: dict[str, object], objects: list[dict[str, object]]) -> None:
    """Commands that need root, docker or a cluster: each names what `onceway render` and `make wheel` make."""
    kinds = {f"{item['kind']}/{item['metadata']['name']}".lower() for item in objects}  # type: ignore[index]
    for line in left:
        program, *words = shlex.split(line)
        if program == "systemctl":
            assert words == ["daemon-reload"] or words[-1] == "onceway-shop", line
        elif program == "docker" and words[0] == "compose":
            assert words[1] in ("up", "exec"), line
            named = words[2] if words[1] == "exec" else words[-1]
            assert named in services or named.startswith("--"), line
        elif program == "docker":
            image = words.index(f"onceway:{version('onceway')}")
            check_onceway(words[image + 1 :])
        elif program == "kubectl":
            for word in words:
                assert not word.startswith("statefulset/") or word in kinds, line
        else:
            assert program in ("python3", "ln") or program.endswith("/bin/pip"), f"{line!r} is not run by this test"
        if " -- onceway " in line or " exec a onceway " in line:
            check_onceway(shlex.split(line.rpartition(" onceway ")[2]))


def test_an_upgrade_installs_as_the_first_installation_does_with_hashes() -> None:
    install, upgrade = ([re.sub(r"/onceway-[\d.]+(?=/)", "onceway", line) for line in printed(page)
                         if "pip install" in line] for page in ("install", "upgrade"))  # fmt: skip
    assert upgrade == install
    assert len(install) == 2
    assert "--require-hashes -r requirements.lock" in install[0]
    assert "--no-deps" in install[1]


def test_prometheus_may_ask_by_the_names_that_the_page_has() -> None:
    scraped, hosts = blocks_of_yaml("monitor")
    (job,) = yaml.safe_load(scraped)["scrape_configs"]
    targets = job["static_configs"][0]["targets"]
    for text, may in ((file_of_install(), False), (file_of_install() + hosts, True)):
        names = loads(text).hosts
        assert [is_own([target], names) for target in targets] == [may] * len(targets)


def test_what_the_pages_say_of_wheels_is_true() -> None:
    assert f"onceway-{version('onceway')}-py3-none-any.whl" in (PAGES / "install.md").read_text()


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_every_page_is_in_the_index(page: str) -> None:
    assert f"(operating/{page}.md)" in (ROOT / "docs" / "operating.md").read_text()
