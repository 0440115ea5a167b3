"""`onceway chaos`: runs schedules, judges what clients saw; `python -m chaos` where Onceway is not installed.

A run prints a line for each event on stderr and the verdict on stdout, the command to run it again last.  Exit code 0:
ok, 1: violated, 2: bad input, or no history, 3: unknown, also where Ctrl-C or a full disk was the end.
"""

from __future__ import annotations

import json
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

from chaos import commit
from chaos.judge.history import HistoryError
from onceway.demo.secure import MODES
from onceway.errors import UsageError

if TYPE_CHECKING:
    from chaos.live.schedule import Schedule

VERDICTS: Final = {0: "ok", 1: "violated", 3: "unknown"}
UNKNOWN: Final = 3


class Interrupted(Exception):
    """Ctrl-C ended a run, which has been judged as it is: `code`."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Commands(click.Group):
    """Ctrl-C finds nothing to be violated; a history that is none is bad input."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Interrupted as interrupted:
            sys.exit(interrupted.code)
        except HistoryError as error:
            click.echo(error, err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            click.echo("cut short", err=True)
            sys.exit(UNKNOWN)


_security = click.option(
    "--security",
    type=click.Choice(MODES),
    default="plain",
    show_default=True,
    help="tls: listeners and trunks have TLS; mutual: clients show certificates and log in, and there are policies.",
)


@click.group("chaos", cls=_Commands)
def command() -> None:
    """run live networks under faults, and judge what their clients saw"""


@command.command("list")
def list_() -> None:
    """The library of schedules, and what each shows."""
    from chaos.live.schedule_files import library, load_schedule

    for path in library():
        schedule = load_schedule(path)
        click.echo(f"{schedule.name:28}{schedule.length_s:6.0f} s  {schedule.shows}")


@command.command("check")
@click.argument("schedules", nargs=-1, required=True)
def check(schedules: tuple[str, ...]) -> None:
    """Read schedules and name every problem."""
    from chaos.live.schedule_files import find, load_schedule
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
@click.option("--client", metavar="CLIENT", help="Every client is of this kind, which has a journal.")
@_security
def run(schedule: str, out: Path | None, seed: int | None, client: str | None, security: str) -> None:
    """Run SCHEDULE, a file or a name of the library, and judge it."""
    sys.exit(run_and_judge(schedule, out, _new_seed() if seed is None else seed, client, security))


@command.command("all")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="A folder in here for each.")
@click.option("--seed", type=int, help="The same for each.")
@click.option("--strict", is_flag=True, help="A schedule that this machine cannot run is a failure: exit code 3.")
@_security
def all_(out: Path | None, seed: int | None, strict: bool, security: str) -> None:
    """Run every schedule of the library that is not long, one after the other."""
    from chaos.live.schedule_files import library, load_schedule

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
            codes[path.stem] = run_and_judge(path.stem, where, _new_seed() if seed is None else seed, security=security)
        except Interrupted as interrupted:
            codes[path.stem] = interrupted.code
            break
    for name, code in codes.items():
        click.echo(f"{name:28}{VERDICTS.get(code, f'exit code {code}')}")
    for name, reason in skipped.items():
        click.echo(f"{name:28}skipped: {reason}")
    verdicts = [*codes.values(), *([UNKNOWN] if skipped and strict else [])]
    sys.exit(1 if 1 in verdicts else max(verdicts, default=UNKNOWN))


@command.command("judge")
@click.argument("directory")
@click.option("--json", "as_json", is_flag=True, help="The whole judgement, for programs.")
def judge_(directory: str, as_json: bool) -> None:
    """Judge the history of a run."""
    from chaos.judge.judge import judge
    from chaos.judge.verdict import EXIT_CODES

    judgement = judge(directory)
    click.echo(json.dumps(judgement.as_dict(), indent=2) if as_json else judgement)
    sys.exit(EXIT_CODES[judgement.verdict])


@command.command("audit")
@click.argument("directories", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="The whole judgement; of several histories, by directory.")
def audit(directories: tuple[str, ...], as_json: bool) -> None:
    """Judge histories in a PySpark job."""
    from chaos.judge.audit import audit_and_say
    from onceway.spark.session import NoSpark, session

    try:
        spark = session("onceway chaos audit")
    except NoSpark as error:
        raise UsageError(str(error)) from None
    try:
        sys.exit(audit_and_say(spark, directories, as_json=as_json))
    finally:
        spark.stop()


@command.command("recovery")
@click.argument("directory")
def recovery(directory: str) -> None:
    """How long the clients of a run were without their network."""
    from chaos.judge.history import read
    from chaos.judge.recovery import recoveries, summary

    click.echo("\n".join(summary(recoveries(read(directory))) or ["no client's router was killed"]))


@command.command("report")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The file; report.html in the directory, unless given.")
def report(directory: Path, out: Path | None) -> None:
    """Write the report of a run, and judge it."""
    from chaos.judge.judge import judge
    from chaos.judge.verdict import EXIT_CODES
    from chaos.live.report import write_report

    judgement = judge(directory)
    try:
        click.echo(write_report(directory, out, judgement))
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}; give another --out") from None
    sys.exit(EXIT_CODES[judgement.verdict])


def _new_seed() -> int:
    return int.from_bytes(os.urandom(4), "big")


def reason_to_skip(schedule: Schedule) -> str | None:
    """Why this machine cannot run it."""
    from chaos.live.netns import is_inside, reason_against

    return reason_against() if schedule.needs_namespaces and not is_inside() else None


def missing_client(schedule: Schedule) -> str | None:
    """Which of its clients' libraries is not installed."""
    from chaos.live.processes import check_clients

    try:
        check_clients(schedule.clients)
    except UsageError as error:
        return str(error)
    return None


def run_and_judge(
    schedule: str, out: Path | None, seed: int, client: str | None = None, security: str = "plain"
) -> int:
    """The exit code.  Raises Interrupted."""
    from chaos.judge.history import GLOB, read
    from chaos.judge.judge import judge
    from chaos.judge.recovery import longest_waits, recoveries, summary
    from chaos.judge.verdict import EXIT_CODES, Verdict
    from chaos.live.netns import NoNamespaces, is_inside
    from chaos.live.processes import check_clients
    from chaos.live.schedule_files import find, load_schedule

    if find_spec("toxiproxy") is None:
        raise UsageError("toxiproxy-python is not installed: pip install 'onceway[check]'")
    from chaos.live.run import NotStarted, Run, say  # wants it

    path = find(schedule)
    loaded = load_schedule(path)
    if client is not None:
        loaded = loaded.with_clients(client)
    options = ["--seed", str(seed), *([] if client is None else ["--client", client])]
    options += [] if security == "plain" else ["--security", security]
    if (reason := reason_to_skip(loaded)) is not None:
        say(f"schedule {loaded.name} is skipped: {reason}")
        return UNKNOWN
    if loaded.needs_namespaces and not is_inside():
        return run_inside(["run", schedule, *options, *([] if out is None else ["--out", str(out)])])
    check_clients(loaded.clients)
    directory = _make(loaded.name, out)
    if any(directory.glob(GLOB)):
        raise UsageError(f"{directory} holds the history of another run; give another --out, or empty it")
    say(f"schedule {loaded.name}, seed {seed}, commit {commit()}, {time.strftime('%F %T')}, in {directory}")
    say(f"shows: {loaded.shows}")
    try:
        (directory / "schedule.yaml").write_bytes(path.read_bytes())
        run = Run(loaded, directory, seed, say, security)
        run.run()
        judgement = judge(directory)
        recovered = summary(recoveries(read(directory)))
        waits = longest_waits(read(directory))
    except (NotStarted, NoNamespaces) as error:
        say(f"the run did not come to its faults: {error}")
        return UNKNOWN
    except (HistoryError, OSError) as error:  # no room for it, Toxiproxy has gone
        say(f"the run came to no verdict: {error}")
        return UNKNOWN
    click.echo(judgement)
    for line in recovered:
        click.echo(line)
    late = False
    for publisher in loaded.publishers:
        waited = waits.get(publisher.name, 0.0)
        bound_s = publisher.within_s
        if bound_s is not None:
            late = late or waited > bound_s
            click.echo(
                f"{publisher.name} waited {waited:.3f} s at most for an outcome, "
                f"{'more' if waited > bound_s else 'less'} than the schedule's {bound_s:g} s"
            )
    # In a process of its own: the verdict stands whatever becomes of its picture.
    command_line = [sys.executable, "-m", "chaos", "report", str(directory)]
    done = subprocess.run(command_line, stdout=subprocess.DEVNULL, check=False)
    path = directory / "report.html"
    if done.returncode in VERDICTS and path.exists():
        click.echo(f"report: {path}")
    click.echo(f"rerun: onceway chaos run {shlex.quote(schedule)} {' '.join(options)}")
    code = EXIT_CODES[judgement.verdict] or (EXIT_CODES[Verdict.VIOLATED] if late else 0)
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
    from chaos.live.netns import command_inside

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


def main() -> None:
    from onceway.topology import ConfigError

    try:
        command(prog_name="python -m chaos")
    except (ConfigError, UsageError) as error:
        click.echo(error, err=True)
        sys.exit(2)
