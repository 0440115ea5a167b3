"""The command line: `onceway COMMAND`. Each command is a module here that is loaded only when it is used. Packages
above this one add commands as entry points of the group `onceway.commands`.

stderr gets a line per state change, stdout the result.  Exit 0 is success, 1 a failure found, 2 bad input, which is
named with its place and its remedy.
"""

from __future__ import annotations

import resource
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS: Final = {
    "up": "run every router of a topology file, supervised",
    "router": "run one router in the foreground",
    "check": "read a topology file and name every problem",
    "schema": "print the JSON Schema of topology files, for editors",
    "reload": "tell running routers of a changed topology file",
    "render": "write a unit of systemd, a Compose file, or objects of Kubernetes",
    "status": "show the state of each router, and what keeps deliveries from completing",
    "console": "show the network in a browser, live",
    "trace": "follow one delivery through all routers",
    "drain": "send the clients of a router to the others, so that it can be stopped",
    "admin": "drop a subscription, close links and connections",
    "user": "keep the file of users that routers let in",
    "policy": "ask what users may do",
    "ingest": "receive into the log of Spark's source, without Spark",
    "spark": "decide about what a query of Spark has lost",
    "publish": "publish lines, or a count of messages",
    "subscribe": "receive messages and print them, or count them",
    "conformance": "check a client of your own against a router that is played",
    "demo": "three routers, one killed in mid-stream, and the ledger",
}


class _Commands(click.Group):
    """Loads a command's module only when that command is called: `onceway router` must start quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *_added()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            added = _added().get(cmd_name)
            return added.load() if added is not None else None
        command = import_module(f"onceway.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and args[0] not in _added():
            from onceway.topology.document import suggest

            remedy = suggest(args[0], self.list_commands(ctx), "commands are")
            raise click.UsageError(f'no command "{args[0]}"; {remedy}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            added = {name: point.load().get_short_help_str(100) for name, point in _added().items()}
            formatter.write_dl([*COMMANDS.items(), *added.items()])


def _added() -> dict[str, EntryPoint]:
    """Commands of other packages, by name."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group="onceway.commands")}


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from onceway.base.program import program

        click.echo(program())
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version.")
def cli() -> None:
    """A network of AMQP 1.0 routers whose topics deliver exactly once."""


def main() -> None:
    """The installed command. The user's mistakes end in exit code 2, without a traceback."""
    from onceway.base.logs import as_read, keep_standard_streams
    from onceway.errors import UsageError
    from onceway.topology.document import ConfigError

    keep_standard_streams()
    # No core dumps: memory has passwords and keys. The hard limit stays for programs that are started from here.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        cli(prog_name="onceway")
    except (ConfigError, UsageError) as error:
        print(as_read(str(error), "error"), file=sys.stderr)  # noqa: T201
        sys.exit(2)
