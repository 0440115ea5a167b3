"""`onceway chaos run SCHEDULE.yaml` and `onceway chaos list`; `python -m chaos` where Onceway is not installed.

A run prints a line for each event on stderr and the verdict on stdout, the command to run it again last.  Exit code 0:
ok, 1: violated, 2: bad input, 3: unknown, also where Ctrl-C or a full disk was the end.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from onceway.errors import UsageError

if TYPE_CHECKING:
    from chaos.schedule import Schedule

VERDICTS: Final = {0: "ok", 1: "violated", 3: "unknown"}
UNKNOWN: Final = 3


class Interrupted(Exception):
    """Ctrl-C ended a run, which has been judged as it is: `code`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Commands(click.Group):
    """Whatever Ctrl-C interrupts, nothing was found to be violated by it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Interrupted as interrupted:
            sys.exit(interrupted.code)
        except KeyboardInterrupt:
            click.echo("cut short", err=True)
            sys.exit(UNKNOWN)


@click.group("chaos", cls=_Commands)
def command() -> None:
    """run live networks under faults, and judge what their clients saw"""


@command.command("list")
def list_() -> None:
    """The library of schedules, and what each shows."""
    from chaos.schedule_files import library, load_schedule

    for path in library():
        schedule = load_schedule(path)
        click.echo(f"{schedule.name:28}{schedule.length_s:6.0f} s  {schedule.shows}")


@command.command("check")
@click.argument("schedules", nargs=-1, required=True)
def check(schedules: tuple[str, ...]) -> None:
    """Read schedules and name every problem."""
    from chaos.schedule_files import find, load_schedule
    from onceway.topology import ConfigError

    bad = False
    for given in schedules:
        try:
            schedule = load_schedule(find(given))
        except ConfigError as error:
            click.echo(error, err=True)
            bad = True
            continue
        click.echo(
            f"{given}: {len(schedule.clients)} clients, {len(schedule.faults)} faults, {schedule.length_s:.0f} s"
        )
    if bad:
        sys.exit(2)


@command.command("run")
@click.argument("schedule")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where history, logs and report go.")
@click.option("--seed", type=int, help="Of what the schedule leaves to chance.")
def run(schedule: str, out: Path | None, seed: int | None) -> None:
    """Run SCHEDULE, a file or a name of the library, and judge it."""
    sys.exit(run_and_judge(schedule, out, _new_seed() if seed is None else seed))


@command.command("all")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="A folder in here for each.")
@click.option("--seed", type=int, help="The same for each.")
@click.option("--strict", is_flag=True, help="A schedule that this machine cannot run is a failure: exit code 3.")
def all_(out: Path | None, seed: int | None, strict: bool) -> None:
    """Run every schedule of the library that is not long, one after the other."""
    from chaos.schedule_files import library, load_schedule

    codes: dict[str, int] = {}
    skipped: dict[str, str] = {}
    for path in library():
        schedule = load_schedule(path)
        if schedule.long:
            continue
        if (reason := reason_to_skip(schedule) or missing_client(schedule)) is not None:
            skipped[path.stem] = reason
            continue
        where = None if out is None else out / path.stem
        try:
            codes[path.stem] = run_and_judge(path.stem, where, _new_seed() if seed is None else seed)
        except Interrupted as interrupted:
            codes[path.stem] = interrupted.code
            break
    for name, code in codes.items():
        click.echo(f"{name:28}{VERDICTS.get(code, f'exit code {code}')}")
    for name, reason in skipped.items():
        click.echo(f"{name:28}skipped: {reason}")
    verdicts = [*codes.values(), *([UNKNOWN] if skipped and strict else [])]
    sys.exit(1 if 1 in verdicts else max(verdicts, default=UNKNOWN))


def _new_seed() -> int:
    return int.from_bytes(os.urandom(4), "big")


def reason_to_skip(schedule: Schedule) -> str | None:
    """Why this machine cannot run it."""
    from chaos.netns import is_inside, reason_against

    return reason_against() if schedule.needs_namespaces and not is_inside() else None


def missing_client(schedule: Schedule) -> str | None:
    """Which of its clients' libraries is not installed."""
    from chaos.processes import check_clients

    try:
        check_clients(schedule.clients)
    except UsageError as error:
        return str(error)
    return None


def run_and_judge(schedule: str, out: Path | None, seed: int) -> int:
    """The exit code.  Raises Interrupted."""
    from chaos.history import GLOB, HistoryError, read
    from chaos.judge import judge
    from chaos.netns import NoNamespaces, is_inside
    from chaos.processes import check_clients
    from chaos.recovery import recoveries, summary
    from chaos.schedule_files import find, load_schedule
    from chaos.verdict import EXIT_CODES

    if find_spec("toxiproxy") is None:
        raise UsageError("toxiproxy-python is not installed: pip install 'onceway[check]'")
    from chaos.run import NotStarted, Run, commit, say  # wants it

    path = find(schedule)
    loaded = load_schedule(path)
    if (reason := reason_to_skip(loaded)) is not None:
        say(f"schedule {loaded.name} is skipped: {reason}")
        return UNKNOWN
    if loaded.needs_namespaces and not is_inside():
        return run_inside(["run", schedule, "--seed", str(seed), *([] if out is None else ["--out", str(out)])])
    check_clients(loaded.clients)
    directory = _make(loaded.name, out)
    if any(directory.glob(GLOB)):
        raise UsageError(f"{directory} holds the history of another run; give another --out, or empty it")
    say(f"schedule {loaded.name}, seed {seed}, commit {commit() or 'none'}, {time.strftime('%F %T')}, in {directory}")
    say(f"shows: {loaded.shows}")
    try:
        (directory / "schedule.yaml").write_bytes(path.read_bytes())
        run = Run(loaded, directory, seed, say)
        run.run()
        judgement = judge(directory)
        recovered = summary(recoveries(read(directory)))
    except (NotStarted, NoNamespaces) as error:
        say(f"the run did not come to its faults: {error}")
        return UNKNOWN
    except (HistoryError, OSError) as error:  # no room for it, Toxiproxy has gone
        say(f"the run came to no verdict: {error}")
        return UNKNOWN
    click.echo(judgement)
    for line in recovered:
        click.echo(line)
    report = write_report(directory)
    if report is not None:
        click.echo(f"report: {report}")
    click.echo(f"rerun: onceway chaos run {shlex.quote(schedule)} --seed {seed}")
    code = EXIT_CODES[judgement.verdict]
    if run.cut:
        raise Interrupted(code)
    return code


def _make(name: str, out: Path | None) -> Path:
    try:
        if out is None:
            return Path(tempfile.mkdtemp(prefix=f"onceway-chaos-{name}-"))
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}; give another --out") from error
    return out


def run_inside(arguments: list[str]) -> int:
    from chaos.netns import command_inside

    command, environment = command_inside([sys.executable, "-m", "chaos", *arguments])
    interrupted = False
    with subprocess.Popen(command, env=environment) as process:
        while process.returncode is None:
            try:
                process.wait()
            except KeyboardInterrupt:  # it hears Ctrl-C too, and ends by itself
                interrupted = True
    code = process.returncode if process.returncode >= 0 else UNKNOWN
    if interrupted:
        raise Interrupted(code)
    return code


def write_report(directory: Path) -> Path | None:
    """report.html, by the program that anybody can call for it again later."""
    done = subprocess.run(
        [sys.executable, "-m", "chaos.report", str(directory)], stdout=subprocess.DEVNULL, check=False
    )
    path = directory / "report.html"
    return path if done.returncode in VERDICTS and path.exists() else None


def main() -> None:
    from onceway.topology import ConfigError

    try:
        command(prog_name="python -m chaos")
    except (ConfigError, UsageError) as error:
        click.echo(error, err=True)
        sys.exit(2)
