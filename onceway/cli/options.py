"""What `publish` and `subscribe` have in common: their options, how they show progress, how their errors end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

import click

from onceway.base.values import read_size
from router.names import GUARANTEES

if TYPE_CHECKING:
    import ssl

    from onceway import Connection, Credentials
    from onceway.base.logs import Log
    from onceway.serve.guard import Guard
    from onceway.topology import Topology

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_URL = "amqp://127.0.0.1:5672"


def size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Parses options such as `--size 64KiB`; a number without a unit is bytes."""
    try:
        return read_size(f"{value}B" if value.isdigit() else value)
    except ValueError as error:
        raise click.BadParameter("; ".join(map(str, error.args)), ctx, param) from error


def routers(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Of `--url`: a password there could be read by everyone on this host."""
    text = "a password, and others can read command lines; use --user and --password-file, or $ONCEWAY_URL"
    return _without_password(ctx, param, value, text)


def without_password(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Of any other URL."""
    text = "a password, and others can read command lines; take it from a file or the environment"
    return None if value is None else _without_password(ctx, param, value, text)


def _without_password(ctx: click.Context, param: click.Parameter, value: str, text: str) -> str:
    from click.core import ParameterSource

    from onceway.client.urls import has_password

    given = param.name is not None and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    if given and has_password(value):
        raise click.BadParameter(text, ctx, param)
    return value


def host_port(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Parses options such as `--listen 8443` or `--listen 0.0.0.0:8443`."""
    from onceway.base.values import read_host_port

    try:
        return None if value is None else read_host_port(value, "127.0.0.1")
    except ValueError as error:
        raise click.BadParameter(str(error.args[0]), ctx, param) from error


url_option: Final = click.option(
    "--url",
    "urls",
    default=lambda: os.environ.get("ONCEWAY_URL", DEFAULT_URL),
    show_default=f"$ONCEWAY_URL or {DEFAULT_URL}",
    callback=routers,
    help="Routers to connect to: amqp://host:port, amqps:// for TLS, ws:// or wss:// for a WebSocket, several "
    "separated by commas.",
)
state_dir_option: Final = click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help="Where control sockets and the time of the last run are kept; a directory for each network is made below it. "
    "Default: $ONCEWAY_STATE_DIR, /var/lib/onceway for root, ~/.local/state/onceway for others.",
)


def file_option(name: str, text: str) -> Any:
    """An option that a variable may give, too: $ONCEWAY_CA for --ca."""
    variable = f"ONCEWAY_{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, type=click.Path(dir_okay=False), envvar=variable, show_envvar=True, help=text)


user_option: Final = click.option("--user", envvar="ONCEWAY_USER", show_envvar=True, help="Who this is.")
password_option: Final = click.option(
    "--password-file",
    type=click.Path(dir_okay=False, allow_dash=True),
    envvar="ONCEWAY_PASSWORD_FILE",
    show_envvar=True,
    help="The user's password is in this file's first line. Default: $ONCEWAY_PASSWORD, or ask for it.",
)


TLS_FILES: Final = (
    file_option("--ca", "TLS: who may have signed the server's certificate. Default: the system's."),
    file_option("--certificate", "TLS: what this client shows. Default: none."),
    file_option("--key", "TLS: the key of --certificate. Default: it is in the same file."),
)


def group(name: str, kind: type[Any], *options: Any) -> Callable[[F], F]:
    """Options that several commands have. Such a command gets them as one value, `name`: a `kind`, which is a dataclass
    with a field for each of them."""

    def decorate(function: F) -> F:
        @wraps(function)
        def command(*arguments: Any, **given: Any) -> Any:
            value = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
            return function(*arguments, **given, **{name: value})

        for option in reversed(options):
            command = option(command)
        return command  # type: ignore[return-value]

    return decorate


def connect_timeout_option(whom: str) -> Callable[[F], F]:
    return click.option(
        "--connect-timeout",
        "connect_timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        show_default=True,
        help=f"Seconds until {whom}.",
    )


def listen_option(default: str, what: str) -> Callable[[F], F]:
    return click.option("--listen", default=default, show_default=True, callback=host_port, help=what)


@dataclass(frozen=True, slots=True)
class Tls:
    """What `tls_options` say: TLS to something that has no URL."""

    ca: str | None
    certificate: str | None
    key: str | None
    with_tls: bool = False

    def context(self) -> ssl.SSLContext | None:
        import onceway

        files = self.ca, self.certificate, self.key
        return onceway.tls_context(*files) if self.with_tls or any(files) else None


tls_options: Final = group(
    "tls", Tls, *TLS_FILES, click.option("--with-tls", is_flag=True, help="TLS, as with any of these.")
)


@dataclass(frozen=True, slots=True)
class Access:
    """What `access_options` and `access_of_a_store` say: where the routers are, and who this is there."""

    urls: str
    ca: str | None
    certificate: str | None
    key: str | None
    user: str | None
    password_file: str | None
    token_file: str | None
    mechanism: str | None

    def shown(self) -> dict[str, Any]:
        """`tls` and `credentials` of `onceway.connect`. The password is asked for here, where it is nowhere else."""
        return {"tls": Tls(self.ca, self.certificate, self.key).context(), "credentials": self._credentials()}

    def _credentials(self) -> Credentials | None:
        import onceway
        from onceway.access.secrets import read_secret, secret_of

        if (token_file := self.token_file) is not None:
            if self.user is not None:
                raise onceway.UsageError("--token-file with --user: the token says who it is")
            return onceway.Credentials(mechanism=self.mechanism, token=lambda: secret_of(token_file))
        if self.user is None:
            if self.password_file is not None:
                raise onceway.UsageError("--password-file without --user: say whose password it is")
            return onceway.Credentials(mechanism=self.mechanism) if self.mechanism is not None else None
        password = None if self.password_file is not None else os.environ.get("ONCEWAY_PASSWORD")
        if password is None and self.mechanism != "EXTERNAL":
            password = read_secret(f"Password of {self.user}: ", self.password_file)
        return onceway.Credentials(self.user, password or "", self.mechanism)


_WHO: Final = (
    *TLS_FILES,
    user_option,
    password_option,
    file_option(
        "--token-file",
        "A token of OAuth, in place of user and password: this file's first line, read anew each time.",
    ),
    click.option(
        "--mechanism",
        metavar="NAME",
        help="The only SASL mechanism to use, such as PLAIN or EXTERNAL. Default: the best that is offered.",
    ),
)
access_options: Final = group("access", Access, url_option, *_WHO)
access_of_a_store: Final = group(
    "access",
    Access,
    click.option(
        "--url",
        "--router",
        "urls",
        envvar="ONCEWAY_URL",
        show_envvar=True,
        default="",
        callback=without_password,
        help="Routers to attach to. Default: those of the file.",
    ),
    *_WHO,
)
"""Its routers are those of the file, if none are given."""


@dataclass(frozen=True, slots=True)
class Guarding:
    """What `guard_options` say: who may come in at the listener of an edge."""

    topology: str | None = None
    tls: str = ""
    without_tls: bool = False

    @property
    def given(self) -> bool:
        return self != Guarding()

    def check(self, listen: tuple[str, int]) -> None:
        """UsageError where strangers could read and change all, and nobody has said that they may."""
        from onceway.base.values import is_loopback
        from onceway.errors import UsageError

        if self.tls and self.topology is None:
            raise UsageError("--tls without --topology: name the file that has the profile")
        if not self.tls and not self.without_tls and not is_loopback(listen[0]):
            text = f"--listen {listen[0]}: whoever reaches it could read and change what passes"
            raise UsageError(f"{text}; give --topology and --tls (docs/security.md), or --without-tls")

    def guard(self, name: str, log: Log) -> Guard:
        """UsageError or ConfigError if a file cannot be used."""
        from onceway.errors import UsageError
        from onceway.serve.guard import Guard

        def profile(topology: Topology) -> str:
            if self.tls and self.tls not in topology.tls:
                raise UsageError(f"--tls {self.tls}: {self.topology} has no such profile under tls")
            return self.tls

        return Guard(name, log, self.topology, profile)


guard_options: Final = group(
    "guarding",
    Guarding,
    click.option(
        "--topology",
        type=click.Path(dir_okay=False),
        help="Users, policies, limits and TLS profiles of this file hold for clients. Default: everyone comes in.",
    ),
    click.option("--tls", default="", help="The profile of --topology that the listener has."),
    click.option("--without-tls", is_flag=True, help="Listen beyond this machine without TLS."),
)


def link_options(function: F) -> F:
    for option in reversed(
        [
            click.option("--ordered", is_flag=True, help="Try the URLs in their order (else a random one first)."),
            click.option("--name", help="Container-id and link name: who this is when it comes back. Default: random."),
            click.option(
                "--journal",
                type=click.Path(dir_okay=False),
                help="A file that lets the next run under this name go on where this one was killed.",
            ),
            connect_timeout_option("one of the routers must have answered"),
            click.option(
                "--guarantee",
                type=click.Choice(GUARANTEES),
                default="exactly-once",
                show_default=True,
                help="The least guarantee to accept from the router.",
            ),
        ]
    ):
        function = option(function)
    return access_options(function)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """What `link_options` say."""

    address: str
    access: Access
    ordered: bool
    name: str | None
    journal: str | None
    connect_timeout_s: float
    guarantee: str

    def connect(self, role: str) -> Connection:
        """A connection to use with `async with`. Lines about it begin with its name, or with `role` if it has none."""
        import onceway

        return onceway.connect(
            self.access.urls,
            container=self.name,
            journal=self.journal,
            ordered=self.ordered,
            connect_timeout_s=self.connect_timeout_s,
            on_report=report(self.name or role),
            **self.access.shown(),
        )


def run_to_exit(main: Coroutine[Any, Any, int]) -> NoReturn:
    """Runs `main` and exits with its result. An OncewayError is printed in one line, and the exit code is 1."""
    from onceway.base.loop import run
    from onceway.errors import OncewayError, UsageError

    try:
        sys.exit(run(main))
    except UsageError:
        raise
    except OncewayError as error:
        say(str(error))
        sys.exit(1)


def write_out(text: str) -> None:
    """Writes to standard output at once.  Raises OncewayError: a full disk, a pipe that nobody reads."""
    from onceway.errors import OncewayError

    try:
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError:  # what somebody has sent may have characters that the terminal's encoding lacks
            encoding = sys.stdout.encoding
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered would fail again at the end
        raise OncewayError(f"standard output cannot be written: {os.strerror(error.errno or 0)}") from error


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def report(name: str) -> Callable[[Any], None]:
    """An `on_report` that prints a line for each report of the connection."""

    def tell(event: Any) -> None:
        kind = type(event).__name__
        if kind == "RouterConnected":
            say(f"[{name}] connected to {event.router} at {event.url}")
        elif kind == "RouterLost":
            say(f"[{name}] lost {event.url}: {event.reason}; next try in {event.retry_in_s:.2f} s")
        elif kind == "SubscriptionGap":
            say(f"[{name}] {event.address}: messages may have been missed: {event.reason}")
        elif kind == "PublicationsUndecided":
            count = len(event.publications)
            what = (
                f"{count} have no outcome"
                if event.kept
                else f"{count} may or may not have arrived, and are not sent again"
            )
            say(f"[{name}] {event.address}: {what}: {event.reason}")
        elif kind == "PublisherWaiting":
            say(f"[{name}] {event.address}: waits: {event.why}")
        elif kind == "LinkAttached":
            how = "resumed" if event.resumed else "attached"
            say(f"[{name}] {event.address}: {how} at {event.router}, {event.guarantee}")

    return tell


class Meter:
    """A progress line on a terminal: `with Meter("published", total) as meter: meter.at(n)`."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
        self._began = time.monotonic()
        self._drawn = 0.0
        self._on = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)  # noqa: T201

    def at(self, count: int) -> None:
        now = time.monotonic()
        if not self._on or now - self._drawn < 0.1:
            return
        self._drawn = now
        of = f" of {self._total:,}" if self._total else ""
        rate = count / max(now - self._began, 0.001)
        print(f"\r\033[K{self._what} {count:,}{of} ({rate:,.0f}/s)", end="", file=sys.stderr, flush=True)  # noqa: T201

    def seconds(self) -> float:
        return time.monotonic() - self._began
