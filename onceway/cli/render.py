"""`onceway render systemd|compose|kubernetes FILE`: what runs the network of a topology file elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onceway import topology
from onceway.cli.check import warn_of
from onceway.cli.log_options import Logging, log_options
from onceway.cli.router import known_router

if TYPE_CHECKING:
    from onceway.topology import Topology

_OUTPUT = click.option(
    "--output",
    "-o",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write into this directory and print the paths. By default the text goes to stdout.",
)


@click.group("render")
def command() -> None:
    """Write what runs the network of a topology file: a unit of systemd, a Compose file, or objects of Kubernetes."""


def _path(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from onceway.render.systemd import check_path

    try:
        return None if value is None else check_path(value)
    except ValueError as error:
        raise click.BadParameter("; ".join(map(str, error.args)), ctx, param) from error


def _account(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,30}", value):
        raise click.BadParameter(f'"{value}" is no user name; write for example onceway', ctx, param)
    return value


@command.command("systemd")
@click.argument("file")
@click.option("--only", metavar="NAMES", help="The routers of this host, separated by commas. Default: all.")
@click.option("--router", metavar="NAME", help="A unit for this router alone, without the supervisor of `onceway up`.")
@click.option(
    "--store",
    metavar="NAME",
    help="A unit for this store of a pipe alone, or for that of retained messages NAME (retained-NAME).",
)
@click.option(
    "--user", metavar="NAME", callback=_account, help="Run as this account. By default systemd makes one (DynamicUser)."
)
@click.option(
    "--topology",
    "installed",
    metavar="PATH",
    callback=_path,
    show_default="/etc/onceway and the name of FILE",
    help="Where the file is on the host that runs the unit.",
)
@click.option(
    "--command",
    "program",
    metavar="PATH",
    default="/opt/onceway/bin/onceway",
    show_default=True,
    callback=_path,
    help="Where onceway is installed on that host.",
)
@log_options
@_OUTPUT
def systemd(
    file: str,
    only: str | None,
    router: str | None,
    store: str | None,
    user: str | None,
    installed: str | None,
    program: str,
    output: Path | None,
    log: Logging,
) -> None:
    """A unit that runs the routers of one host.

    The unit runs `onceway up`, or `onceway router` with --router. systemd then
    knows when the service is ready, restarts it when it dies or hangs, lets it read the topology file again on
    `systemctl reload`, and drains it on `systemctl stop`. The unit's account must be able to read the files that FILE
    names; the head of the unit has the commands.
    """
    from onceway.render.systemd import Target, check_path, host_unit, router_unit, store_unit

    if only is not None and router is not None:
        raise click.UsageError(
            "--only and --router exclude each other: --only is for onceway up, --router for one router"
        )
    if store is not None and (only is not None or router is not None):
        raise click.UsageError("--store excludes --only and --router: a store has a unit of its own")
    loaded = _load(file)
    if installed is None:
        try:
            installed = check_path(f"/etc/onceway/{Path(file).name}")
        except ValueError as error:
            raise click.UsageError("; ".join(map(str, error.args))) from error
    options = log.options
    if options.file is not None:
        try:
            check_path(str(options.file))
        except ValueError as error:
            raise click.BadParameter("; ".join(map(str, error.args)), param_hint="--log-file") from error
    target = Target(program, installed, user, options)
    if store is not None:
        unit = store_unit(loaded, store, target)
    elif router is not None:
        unit = router_unit(loaded, known_router(loaded, router), target)
    else:
        chosen = [known_router(loaded, name.strip()) for name in (only or ",".join(loaded.routers)).split(",")]
        unit = host_unit(loaded, [name for name in loaded.routers if name in chosen], target)
    _give(file, output, {unit.name: unit.text})


def _default_image() -> str:
    from importlib.metadata import version

    return f"onceway:{version('onceway')}"


def _image(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    if value is None:
        return _default_image()
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}", value):
        raise click.BadParameter(f'"{value}" is no image; write for example registry.example/onceway:1.0', ctx, param)
    return value


def _no_replicas(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "there is no --replicas: each router has a name and links of its own, so the file says how many there are; "
            "add routers to the file",
            ctx,
        )


_IMAGE = click.option(
    "--image",
    metavar="IMAGE",
    callback=_image,
    show_default="onceway:VERSION",
    help="The image that the Dockerfile of Onceway's sources makes.",
)
_NO_REPLICAS = click.option("--replicas", hidden=True, expose_value=False, callback=_no_replicas)


def _host(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from ipaddress import ip_address

    try:
        return str(ip_address(value))
    except ValueError as error:
        raise click.BadParameter(f'"{value}" is no IP address; write for example 0.0.0.0', ctx, param) from error


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", name):
            raise click.BadParameter(f'"{name}" is no name of a host; write for example mq.example.org', ctx, param)
    return tuple(name.lower() for name in value)


@command.command("compose")
@click.argument("file")
@_IMAGE
@click.option(
    "--publish",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    callback=_host,
    help="Publish the ports for clients at this address of the Docker host.",
)
@click.option(
    "--host",
    "hosts",
    metavar="NAME",
    multiple=True,
    callback=_names,
    help="A name of the Docker host by which clients come. May be given again. Addresses will always do.",
)
@click.option("--no-publish", is_flag=True, help="Publish no port: clients are containers in the network `clients`.")
@_NO_REPLICAS
@_OUTPUT
def compose(file: str, image: str, publish: str, hosts: tuple[str, ...], no_publish: bool, output: Path | None) -> None:
    """A Compose file that runs the whole network on one Docker host.

    Each router and each store of FILE is a service. They keep the ports of FILE and get hosts of their own. The ports
    for clients are published on the Docker host. With --output the topology files that the services mount are written,
    too; the head of the Compose file has the commands that bring them certificates, users and keys.
    """
    from onceway.render.compose import compose as write

    _give(file, output, write(_load(file), image=image, publish=None if no_publish else publish, hosts=hosts))


def _namespace(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from onceway.render.kubernetes import NAMESPACE

    if value is not None and not NAMESPACE.fullmatch(value):
        raise click.BadParameter(f'"{value}" is no name of a namespace; use a-z, 0-9 and -', ctx, param)
    return value


def _domain(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", value):
        raise click.BadParameter(f'"{value}" is no domain; write for example cluster.local', ctx, param)
    return value


def _storage(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,9}[KMGTP]i", value):
        raise click.BadParameter(f'"{value}" is no size of a volume; write for example 10Gi', ctx, param)
    return value


@command.command("kubernetes")
@click.argument("file")
@_IMAGE
@click.option("--name", metavar="NAME", help="Name of the objects. Default: the network's name.")
@click.option("--namespace", "-n", metavar="NAME", default="default", show_default=True, callback=_namespace)
@click.option(
    "--cluster-domain",
    metavar="DOMAIN",
    default="cluster.local",
    show_default=True,
    callback=_domain,
    help="The domain of the cluster's DNS.",
)
@click.option(
    "--monitoring-namespace",
    "monitoring",
    metavar="NAME",
    callback=_namespace,
    help="Pods of this namespace may read metrics, too. Otherwise only pods of --namespace may.",
)
@click.option(
    "--storage", metavar="SIZE", default="10Gi", show_default=True, callback=_storage, help="Of each store's volume."
)
@_NO_REPLICAS
@_OUTPUT
def kubernetes(
    file: str,
    image: str,
    name: str | None,
    namespace: str,
    cluster_domain: str,
    monitoring: str | None,
    storage: str,
    output: Path | None,
) -> None:
    """The objects that run the network in a namespace of Kubernetes.

    A StatefulSet runs the routers of FILE in their order: the pod NAME-0 runs the first. All pods listen on the ports
    of the first router. A headless Service gives pods their names, and a Service leads clients to those that are ready.
    Each store is a StatefulSet with a volume. The head of the text has the commands that make the Secrets with
    certificates, users and keys.
    """
    from onceway.render.kubernetes import NAME, Target
    from onceway.render.kubernetes import kubernetes as write

    loaded = _load(file)
    chosen = name if name is not None else loaded.network
    if not NAME.fullmatch(chosen):
        rule = "a-z, 0-9 and -, beginning with a letter, at most 40 characters"
        what = f'"{chosen}" is no name of a Service of Kubernetes'
        raise click.UsageError(f"{what}; give another with --name ({rule})")
    target = Target(chosen, namespace, image, cluster_domain, monitoring, storage)
    _give(file, output, {"kubernetes.yaml": write(loaded, target)})


def _load(file: str) -> Topology:
    loaded = topology.load(file)
    warn_of(loaded)
    return loaded


def _give(file: str, output: Path | None, texts: Mapping[str, str]) -> None:
    """Prints the first text, or writes all as files of these names, none of which is the topology file itself."""
    if output is None:
        click.echo(next(iter(texts.values())), nl=False)
        return
    for name, text in texts.items():
        path = output / name
        if path.resolve() == Path(file).resolve():
            what = f"{path} is the topology file itself"
            raise click.BadParameter(f"{what}; give another directory", param_hint="--output")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if "/" in name:  # what a container mounts, whose user is not ours
                path.chmod(0o644)
                path.parent.chmod(0o755)
        except OSError as error:
            what = f"cannot write {path}: {error.strerror or error}"
            raise click.BadParameter(
                f"{what}; give a directory that you may write to", param_hint="--output"
            ) from error
        click.echo(str(path))
