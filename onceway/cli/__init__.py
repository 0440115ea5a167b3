"""The command line: `onceway COMMAND`.  Each command is a module here, loaded only when it is called for.

stderr gets a line per state change, stdout the result.  Exit 0 is success, 1 a failure found, 2 bad input, which is
named with its place and its remedy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import click

COMMANDS: Final = {
    "up": "run every router of a topology file, supervised",
    "router": "run one router in the foreground",
    "check": "read a topology file and name every problem",
    "status": "what the routers say of themselves",
    "publish": "publish lines, or a count of messages",
    "subscribe": "receive messages and print them, or count them",
    "demo": "three routers, one killed in mid-stream, and the ledger",
}


class _Commands(click.Group):
    """Loads a command's module only when that command is called: `onceway router` must start quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"onceway.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from onceway.topology.document import suggest

            remedy = suggest(args[0], list(COMMANDS), "commands are")
            raise click.UsageError(f'no command "{args[0]}"; {remedy}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onceway", message="onceway %(version)s")
def cli() -> None:
    """A network of AMQP 1.0 routers whose topics deliver exactly once."""


def main() -> None:
    """The installed command.  Problems of the user's making end in exit code 2, without a traceback."""
    from onceway.errors import UsageError
    from onceway.topology.document import ConfigError

    try:
        cli(prog_name="onceway")
    except (ConfigError, UsageError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(2)
