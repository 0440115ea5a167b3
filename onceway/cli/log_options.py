"""The options that say what a process that runs logs, how, and where to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from onceway.base.logs import LEVELS, ClientFilter, Options, configure
from onceway.cli.options import group
from onceway.errors import UsageError


@dataclass(frozen=True, slots=True)
class Logging:
    """What `log_options` say."""

    log_format: str
    log_level: str
    log_clients: tuple[ClientFilter, ...]
    log_file: Path | None

    @property
    def options(self) -> Options:
        return Options(self.log_format == "json", self.log_level, self.log_clients, self.log_file)

    def start(self) -> Options:
        """This process logs so from now on. UsageError if the file cannot be written."""
        try:
            configure(self.options)
        except OSError as error:
            raise self.cannot_open(error) from error
        return self.options

    def cannot_open(self, error: OSError) -> UsageError:
        return UsageError(f"--log-file {self.log_file}: {error.strerror}; choose a file that can be written")


def _clients(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[ClientFilter, ...]:
    try:
        return tuple(map(ClientFilter.parse, value))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


log_options: Final = group(
    "log",
    Logging,
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Text for people, or one JSON object a line.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(list(LEVELS)),
        default="info",
        show_default=True,
        help="Log events of this level and above.",
    ),
    click.option(
        "--log-client",
        "log_clients",
        multiple=True,
        metavar="FIELD=PATTERN:LEVEL",
        callback=_clients,
        help="Another level for events of some clients, such as container=sensor-*:debug. FIELD is container,"
        " user, client (host:port), link or address. The first option that matches counts.",
    ),
    click.option(
        "--log-file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="PATH",
        help="Append the log to this file, not to stderr. It is opened again on SIGHUP and when it was moved.",
    ),
)
