"""`onceway policy test`: whether a router with this file would let a user use an address, and by which entry."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

import click

if TYPE_CHECKING:
    from router.policies import Direction


@click.group(name="policy")
def command() -> None:
    """What `policies` of a topology file let users do."""


@command.command()
@click.argument("user")
@click.argument("direction", type=click.Choice(["send", "receive"]))
@click.argument("address")
@click.option(
    "--topology",
    "file",
    envvar="ONCEWAY_TOPOLOGY",
    show_envvar=True,
    required=True,
    metavar="FILE",
    help="The topology file.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="A group that the user is in beside those of the file of users. Repeat it.",
)
def test(user: str, direction: str, address: str, file: str, groups: tuple[str, ...]) -> None:
    """Say whether USER may send to ADDRESS, or receive from it. Exit 0: yes; 1: no."""
    from onceway import topology
    from onceway.access import authentication
    from router.config import is_dynamic
    from router.links.negotiation import Unauthorized
    from router.policies import NOBODY, Identity, allowed, concerning

    loaded = topology.load(file)
    own = authentication.load(loaded)
    if own is not None and own.sasl.users is not None and user not in own.users.by_name and user != NOBODY.user:
        click.echo(f"note: {own.sasl.users} has no user {user}", err=True)
    in_file = own.users.groups(user) if own is not None else ()
    who, way = Identity(user, (*in_file, *groups)), cast("Direction", direction)
    policies = loaded.settings.policies
    if policies is None:
        click.echo(f"allowed: {file} has no policies, so everyone may use every address")
        return
    for number, policy in enumerate(policies):
        if allowed(concerning((policy,), who), who, way, address, dynamic=is_dynamic(address)):
            click.echo(f"allowed by policies[{number}]: {policy}")
            return
    click.echo(f"refused: {Unauthorized(who, way, address).description}")
    sys.exit(1)
