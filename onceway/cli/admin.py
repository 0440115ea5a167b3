"""`onceway admin`: what an operator does to subscriptions, publishers, links and connections of this host's routers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from onceway.base import waits
from onceway.cli.options import say
from onceway.cli.sockets import routers_here, run_action, socket_options
from router.json_text import write_json

router_option: Final = click.option(
    "--router", metavar="NAME", help="Ask this router alone. By default all that run on this host."
)
NAMES: Final = ("address", "container", "name")


def _of_link(function: Callable[..., None]) -> Callable[..., None]:
    """Arguments and options of what is done to one link."""
    function = router_option(socket_options(function))
    for name in reversed(NAMES):
        function = click.argument(name)(function)
    return function


def _read(given: dict[str, Any]) -> tuple[dict[str, Path], dict[str, Any], bool]:
    """The control sockets to ask, the link's names, and whether to answer in JSON."""
    sockets = routers_here(given["network"], given["state_dir"], given["router"])
    return sockets, {name: given[name] for name in NAMES}, given["as_json"]


@click.group("admin")
def command() -> None:
    """Drop a subscription, forget a publisher, close links and connections.

    These commands reach the routers of this host through their control sockets.
    Only the user that the routers run as, and root, may use them.
    """


@command.group("subscription")
def subscription() -> None:
    """Drop a subscription that nobody needs any more."""


@command.group("publisher")
def publisher() -> None:
    """Forget a publisher that does not come back."""


@command.group("link")
def link() -> None:
    """Close the link of a publisher or subscriber."""


@command.group("connection")
def connection() -> None:
    """Close the connections of a client."""


@subscription.command("drop")
@_of_link
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop_subscription(yes: bool, **given: Any) -> None:
    """Drop subscription CONTAINER NAME of ADDRESS, in the whole network.

    Nobody waits for it any more, and what is owed to it is lost to it. Its
    client is told so (onceway:subscription-broken): at once if it is attached,
    else when it comes back. A client that runs subscribes again, and gets what
    is published from then on; stop it first if it is not to. One that the
    topology file declares cannot be dropped; remove it from the file.

    \b
    Examples:
      onceway admin subscription drop orders billing billing
      onceway admin subscription drop orders spark lake --yes --json
    """
    sockets, names, as_json = _read(given)
    run_action(_drop(sockets, names, yes, as_json))


async def _drop(sockets: Mapping[str, Path], names: dict[str, Any], yes: bool, as_json: bool) -> int:
    known = await _ask_all(sockets, "/subscription/drop", {**names, "dry_run": True})
    owed = sum(each["owed"] for each in known.values())
    one = next(iter(known.values()))
    shown = f"{names['address']}: subscription {names['container']}/{names['name']}"
    if not yes and (one["home"] is None or one["home"] in known):
        messages = "1 message" if owed == 1 else f"{owed} messages"
        if one["home"] is None:
            state = f"is away for {one['away_s']:.0f} s and waited for {one['timeout_s']:.0f} s"
        else:
            messages += " and what it has not accepted of those it was sent"
            state = f"is attached at router {one['home']}; its client is told, and may subscribe again at once"
        click.echo(
            f"{shown} {state}. The routers of this host owe {messages} to it, which it will never get.", err=True
        )
        click.confirm("Drop it?", abort=True, err=True)
    first = sorted(known, key=lambda router: router != one["home"])
    router = await _ask_one({each: sockets[each] for each in first}, "/subscription/drop", names)
    if as_json:
        click.echo(write_json({**names, "dropped_at": router, "owed": owed}))
    else:
        click.echo(f"{shown} dropped")
    return 0


@publisher.command("forget")
@_of_link
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget_publisher(yes: bool, **given: Any) -> None:
    """Forget publisher CONTAINER NAME of ADDRESS, in the whole network.

    It is away and does not come back: what subscribers hold of it in doubt is
    settled now, and not only when its publisher_timeout is over. What they have
    accepted counts; what they have not may be missing for them. If it comes
    back it is told onceway:publisher-expired. One with unique tags is refused
    so until its publisher_timeout is over.

    \b
    Example:
      onceway admin publisher forget orders shop orders
    """
    sockets, names, as_json = _read(given)
    run_action(_forget(sockets, names, yes, as_json))


async def _forget(sockets: Mapping[str, Path], names: dict[str, Any], yes: bool, as_json: bool) -> int:
    known = await _ask_all(sockets, "/publisher/forget", {**names, "dry_run": True})
    accepted, undecided = (sum(each[key] for each in known.values()) for key in ("accepted", "undecided"))
    missing = sorted({router for each in known.values() for router in each["missing"]})
    one = next(iter(known.values()))
    shown = f"{names['address']}: publisher {names['container']}/{names['name']}"
    if not yes:
        click.echo(
            f"{shown} is away for {one['away_s']:.0f} s and waited for {one['timeout_s']:.0f} s. Subscribers at the "
            f"routers of this host hold {accepted + undecided} of its deliveries: {accepted} that they have accepted, "
            f"which count, and {undecided} that they have not, which may be missing for them.",
            err=True,
        )
        if missing:
            click.echo(f"Out of reach: {', '.join(missing)}. Nothing is settled before all routers know.", err=True)
        click.confirm("Forget it?", abort=True, err=True)
    router = await _ask_one({each: sockets[each] for each in known}, "/publisher/forget", names)
    if as_json:
        outcome = {"forgotten_at": router, "accepted": accepted, "undecided": undecided, "missing": missing}
        click.echo(write_json({**names, **outcome}))
    else:
        click.echo(f"{shown} forgotten" + (f"; to be told: {', '.join(missing)}" if missing else ""))
    return 0


@link.command("close")
@_of_link
def close_link(**given: Any) -> None:
    """Detach link NAME of CONTAINER at ADDRESS, publisher or subscriber.

    Nothing is lost or repeated: its client is told amqp:link:detach-forced and
    may attach again.

    \b
    Example:
      onceway admin link close orders billing billing
    """
    sockets, names, as_json = _read(given)
    what = "{address}: link {container}/{name}".format_map(names)
    run_action(_close(sockets, "/link/close", names, what, as_json))


@connection.command("close")
@click.argument("container")
@router_option
@socket_options
def close_connection(
    container: str, router: str | None, as_json: bool, network: str | None, state_dir: Path | None
) -> None:
    """Close the connections of CONTAINER, with all their links.

    Nothing is lost or repeated: its client is told amqp:connection:forced and
    may connect again.

    \b
    Example:
      onceway admin connection close billing --router b
    """
    sockets = routers_here(network, state_dir, router)
    names = {"container": container}
    run_action(_close(sockets, "/connection/close", names, f"connection of {container}", as_json))


async def _close(sockets: Mapping[str, Path], page: str, names: dict[str, Any], what: str, as_json: bool) -> int:
    done = await _ask_all(sockets, page, names)
    closed = {router: answer["closed"] for router, answer in done.items()}
    if as_json:
        click.echo(write_json({**names, "closed": closed}))
    else:
        for router, number in closed.items():
            click.echo(f"[{router}] {what} closed" + ("" if number == 1 else f", {number} times"))
    return 0


async def _ask_one(sockets: Mapping[str, Path], page: str, arguments: dict[str, Any]) -> str:
    """The first of these routers that does it. ControlError if none can."""
    from onceway.operate.control import ControlError, call

    refused: ControlError | None = None
    for router, socket in sockets.items():
        try:
            await waits.CONTROL(call(socket, "POST", page, arguments))
        except ControlError as error:
            refused = error
        else:
            return router
    assert refused is not None
    raise refused


async def _ask_all(sockets: Mapping[str, Path], page: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The answers of the routers that know what the arguments name. ControlError if none does."""
    from onceway.operate.control import ControlError, NotRunning, call

    answers: dict[str, Any] = {}
    unknown: list[ControlError] = []
    for router, socket in sockets.items():
        try:
            answers[router] = await waits.CONTROL(call(socket, "POST", page, arguments))
        except NotRunning as error:
            say(f"[{router}] {error}")
        except ControlError as error:
            if error.status != 404:
                raise
            unknown.append(error)
    if answers:
        return answers
    if not unknown:
        raise NotRunning("no router of this host answers")
    raise max(unknown, key=lambda error: ("did you mean" in str(error), " are " in str(error)))
