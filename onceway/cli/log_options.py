"""The options of `up` and `router` that say what is logged, how, and where to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from onceway.base.logs import LEVELS, ClientFilter, Options, configure
from onceway.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def log_options(function: F) -> F:
    """Adds the options; `read_options` makes one value of them."""
    for option in reversed(
        [
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
        ]
    ):
        function = option(function)
    return function


def read_options(values: dict[str, Any]) -> Options:
    """From the values of all of a command's options."""
    return Options(values["log_format"] == "json", values["log_level"], values["log_clients"], values["log_file"])


def start_logging(values: dict[str, Any]) -> None:
    """As the options of a command say."""
    options = read_options(values)
    try:
        configure(options)
    except OSError as error:
        raise cannot_open(options, error) from error


def cannot_open(options: Options, error: OSError) -> UsageError:
    return UsageError(f"--log-file {options.file}: {error.strerror}; choose a file that can be written")


def _clients(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[ClientFilter, ...]:
    try:
        return tuple(map(ClientFilter.parse, value))
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
