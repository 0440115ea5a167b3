"""Log lines: their formats, levels and filters, limits, and files that are full, moved or closed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceway import connect
from onceway.base import logs
from onceway.base.logs import (
    ClientFilter,
    Handler,
    LogFile,
    Message,
    Options,
    for_journal,
    json_line,
    logger,
    text_line,
)
from tests.cli.conftest import BOUND_S, COMMAND, called, onceway
from tests.cli.test_up import status
from tests.live import LiveNetwork, wait_until
from tests.running import Program

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
LOG = logger("test", router="a")


class Lines(list[str]):
    """Where lines go; `error` is raised in their place."""

    error: OSError | None = None

    def __call__(self, line: str) -> None:
        if self.error is not None:
            raise self.error
        self.append(line)


@pytest.fixture
def handlers() -> Iterator[list[Handler]]:
    made: list[Handler] = []
    yield made
    for handler in made:
        handler.close()


@pytest.fixture
def lines(handlers: list[Handler]) -> Lines:
    lines = Lines()
    handlers.append(logs.configure(Options(), lines))
    return lines


def configured(handlers: list[Handler], options: Options) -> Lines:
    lines = Lines()
    handlers.append(logs.configure(options, lines))
    return lines


def test_a_line_of_text_has_time_level_router_text_event_and_fields(lines: Lines) -> None:
    LOG.info("session_up", "session with router {peer} up", peer="b", incarnation="17", reason='a "b" c')
    (line,) = lines
    time, rest = line.split(" ", 1)
    assert re.fullmatch(TIME, time)
    assert rest == ('info    [a] session with router b up  event=session_up incarnation=17 reason="a \\"b\\" c"')
    assert logs.is_line(line)


def test_a_line_of_json_is_one_object(handlers: list[Handler]) -> None:
    lines = configured(handlers, Options(json=True))
    LOG.warning("drain_begins", "{count} of {what}", count=2, what="é\n", ratio=0.5, nobody=None, text="kept apart")
    (line,) = lines
    document = json.loads(line)
    assert re.fullmatch(TIME, document.pop("time"))
    assert document == {
        "level": "warning",
        "router": "a",
        "event": "drain_begins",
        "text": "2 of é\\n",
        "count": 2,
        "what": "é\n",
        "ratio": 0.5,
        "nobody": None,
    }
    assert logs.is_line(line)


def test_what_strangers_send_cannot_look_like_a_line_of_ours(lines: Lines) -> None:
    evil = "x\n2026-01-01T00:00:00.000Z info [a] ready\x1b[2J" + "y" * 10_000
    LOG.info("client_refused", "client refused: {reason}", reason=evil, container=evil)
    (line,) = lines
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) <= logs.MOST_BYTES


def test_a_traceback_follows_the_line_and_is_a_field_in_json(handlers: list[Handler]) -> None:
    for as_json in (False, True):
        lines = configured(handlers, Options(json=as_json))
        LOG.error("router_failed", "{what}", what="broken", exc=ValueError("because"))
        (line,) = lines
        trace = json.loads(line)["traceback"] if as_json else line.split("\n", 1)[1]
        assert trace == "ValueError: because"


def test_levels_and_client_filters_choose_lines(handlers: list[Handler]) -> None:
    filters = (ClientFilter.parse("container=sensor-*:debug"), ClientFilter.parse("address=noisy:error"))
    lines = configured(handlers, Options(level="warning", clients=filters))
    LOG.debug("link_attached", "{container}", container="sensor-7", address="noisy")
    LOG.debug("link_attached", "{container}", container="other", address="a")
    LOG.info("drain_begins", "stopping")
    LOG.warning("link_refused", "{container}", container="other", address="noisy")
    LOG.warning("link_refused", "{container}", container="other", address="a")
    assert [line.split()[1:4] for line in lines] == [["debug", "[a]", "sensor-7"], ["warning", "[a]", "other"]]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("container", "is not FIELD=PATTERN:LEVEL"),
        ("container=x", "is not FIELD=PATTERN:LEVEL"),
        ("container=:debug", "is not FIELD=PATTERN:LEVEL"),
        ("host=x:debug", 'no field "host"'),
        ("client=127.0.0.1:5:loud", 'no level "loud"'),
    ],
)
def test_a_client_filter_that_cannot_be_read_is_bad_input(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        ClientFilter.parse(text)


def test_a_client_filter_of_the_command_line_is_read_so() -> None:
    done = called("up", "none.yaml", "--log-client", "host=x:debug")
    assert done.returncode == 2
    assert 'no field "host"' in done.stderr


def test_lines_that_strangers_cause_are_limited_and_counted() -> None:
    lines, now = Lines(), [0.0]
    handler = Handler(Options(), lines, None, lambda: now[0])
    own = logging.Logger("own")
    own.addHandler(handler)
    log = logs.Log(own, {})
    for _ in range(logs.BURST + 30):
        log.info("client_connected", "client connected")
        log.info("router_ready", "ready")
    assert sum("event=client_connected" in line for line in lines) == logs.BURST
    assert sum("router_ready" in line for line in lines) == logs.BURST + 30
    handler.tell_suppressed()
    assert "30 more lines of client_connected were not written" in lines[-1]
    now[0] = 2.0
    lines.clear()
    for _ in range(100):
        log.info("client_connected", "client connected")
    assert len(lines) == 2 * logs.RATE


def test_chosen_clients_are_not_limited(handlers: list[Handler]) -> None:
    lines = configured(handlers, Options(clients=(ClientFilter.parse("container=x:info"),)))
    for _ in range(3 * logs.BURST):
        LOG.info("client_connected", "client connected", container="x")
    assert len(lines) == 3 * logs.BURST


def test_lines_of_other_libraries_come_in_the_same_format(lines: Lines) -> None:
    logging.getLogger("aiohttp.server").error("Error %s", "here\nand there")
    logging.getLogger("aiohttp.server").info("not this")
    (line,) = lines
    assert line.endswith("error   Error here\\nand there  event=library logger=aiohttp.server")


def test_a_moved_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "router.log"
    write = LogFile(path)
    write("one")
    path.rename(tmp_path / "router.log.1")
    write("two")
    path.unlink()
    write("three")
    assert (tmp_path / "router.log.1").read_text() == "one\n"
    assert path.read_text() == "three\n"
    write.close()


def test_a_log_that_cannot_be_written_is_told_once_and_its_lines_are_counted(
    handlers: list[Handler], tmp_path: Path
) -> None:
    stderr, lines = Lines(), Lines()
    handlers.append(logs.configure(Options(file=tmp_path / "x.log"), stderr))
    handlers[0].write = lines
    lines.error = OSError(errno.ENOSPC, "No space left on device")
    for _ in range(3):
        LOG.info("router_ready", "ready")
    (told,) = stderr
    assert "[Errno 28] No space left on device; the router continues" in told
    lines.error = None
    LOG.info("router_ready", "ready")
    assert "3 log lines before this one could not be written" in lines[0]
    assert len(lines) == 2


def test_a_reader_that_does_not_keep_up_costs_lines_and_blocks_nobody() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(BlockingIOError):
            for number in range(10_000):
                logs._write(writer, f"{number} {'x' * 1000}")
        os.set_blocking(reader, False)
        assert os.read(reader, 1 << 20).startswith(b"0 x")
        logs._write(writer, "again")
        assert os.read(reader, 1 << 20) == b"again\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_a_log_file_that_cannot_be_opened_is_bad_input(tmp_path: Path) -> None:
    path = LiveNetwork(tmp_path, ["a"]).topology_path
    for command in (["up", path], ["router", path, "a"]):
        done = onceway(*command, "--log-file", tmp_path / "none" / "a.log")
        assert done.returncode == 2
        assert done.stderr == (
            f"--log-file {tmp_path}/none/a.log: No such file or directory; choose a file that can be written\n"
        )


def test_up_writes_its_routers_lines_and_its_own_to_one_file_and_opens_it_again_on_sighup(tmp_path: Path) -> None:
    path = LiveNetwork(tmp_path, ["a", "b"], [("a", "b")]).topology_path
    log, moved = tmp_path / "up.log", tmp_path / "up.log.1"
    with Program([*COMMAND, "up", str(path), "--log-format", "json", "--log-file", str(log)]) as up:
        assert up.line() == "network live ready: 2 routers, 1 link"
        log.rename(moved)
        os.kill(up.process.pid, signal.SIGHUP)
        wait_until(log.exists, "the log to be opened again")
        up.process.terminate()
        up.rest()
        assert up.errors == ""
    before = [json.loads(line) for line in moved.read_text().splitlines()]
    after = [json.loads(line) for line in log.read_text().splitlines()]
    names = {(line.get("router"), line["event"]) for line in before}
    assert {(router, "session_up") for router in "ab"} < names  # theirs
    assert {(router, "router_started") for router in "ab"} < names  # its own
    assert {line["event"] for line in after} >= {"network_stopping", "router_stopped", "drain_begins"}


def test_routers_run_with_stderr_closed_or_full(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        running = []
        for redirect in (">&- 2>&- <&-", "2>/dev/full", "--log-file /dev/full"):
            network = LiveNetwork(tmp_path / str(len(running)), ["a"])
            command = [
                "router",
                str(network.topology_path),
                "a",
                "--fresh",
                "--state-dir",
                str(network.directory / "s"),
            ]
            program = ["sh", "-c", f"exec {' '.join([*COMMAND, *command])} {redirect}"]
            running.append((redirect, network["a"], stack.enter_context(Program(program))))
        network = LiveNetwork(tmp_path / "all", ["a"])
        command = ["up", str(network.topology_path), "--fresh", "--state-dir", str(network.directory / "s")]
        program = ["sh", "-c", f"exec {' '.join([*COMMAND, *command])} >/dev/full 2>/dev/full"]
        running.append(("up", network["a"], stack.enter_context(Program(program))))
        for redirect, router, program in running:
            wait_until(router.ready, f"a ready with {redirect}")
            program.process.terminate()
        for _, _, program in running:
            assert program.process.wait(BOUND_S) == 0


def test_a_router_tells_clients_links_neighbours_and_sessions_apart(tmp_path: Path) -> None:
    network = LiveNetwork(tmp_path, ["a", "b"], [("a", "b")])
    up = [*COMMAND, "up", str(network.topology_path), "--log-format", "json", "--log-client", "container=told:debug"]
    with Program(up) as routers:
        routers.line()
        router = network.routers["a"]
        with socket.create_connection(("127.0.0.1", router.amqp_port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while stranger.recv(1024):
                pass

        async def subscribe_once(name: str) -> None:
            async with connect(router.url, container=name) as connection:
                await connection.subscriber("t")

        for name in ("told", "other"):
            asyncio.run(subscribe_once(name))
        os.kill(status(network.topology_path, "b")["pid"], signal.SIGKILL)
        wait_until(lambda: routers.errors.count('"neighbour_connected"') == 4, "b to be back")
        routers.process.terminate()
        routers.rest()
    lines = [json.loads(line) for line in routers.errors.splitlines()]
    events = {(line.get("router"), line["event"], line.get("container", "")) for line in lines}
    assert {("a", "client_refused", ""), ("a", "client_connected", "told"), ("a", "client_connected", "other")} < events
    assert {name for _, name, container in events if container == "told"} >= {"link_attached", "link_detached"}
    assert not {name for _, name, container in events if container == "other"} & {"link_attached", "link_detached"}
    assert {("a", name, "") for name in ("neighbour_lost", "session_down", "session_up", "established")} < events
    (refused,) = [line for line in lines if line["event"] == "client_refused"]
    assert refused["client"].startswith("127.0.0.1:")
    assert refused["condition"].startswith("amqp:")


def test_the_journal_is_told_the_level_of_each_line() -> None:
    text = text_line(logging.WARNING, Message("x", "y", {}), 0.0, "trace\nback")
    assert for_journal(text) == f"<4>{text}".replace("\n", "\n<4>")
    assert for_journal(json_line(logging.ERROR, Message("x", "y", {}), 0.0)).startswith('<3>{"time": ')
    assert for_journal("a line of something else") == "<6>a line of something else"


def test_only_the_stream_that_systemd_reads_gets_priorities() -> None:
    program = (
        "from onceway.base.logs import configure, logger, Options; configure(Options()); logger('x').error('e', 't')"
    )
    identity = "import os; s = os.fstat(2); os.environ['JOURNAL_STREAM'] = f'{s.st_dev}:{s.st_ino}'; "

    def said(code: str) -> str:
        environment = {**os.environ, "JOURNAL_STREAM": "1:1"}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr

    assert said(identity + program).startswith("<3>")
    assert said(program).startswith("20")
    check = "import sys; sys.argv[1:] = ['check', 'nowhere.yaml']\nfrom onceway.cli import main\ntry: main()\nexcept SystemExit: 0"
    assert said(identity + check).startswith("<3>nowhere.yaml: cannot be read")
    assert said(check).startswith("nowhere.yaml: cannot be read")
