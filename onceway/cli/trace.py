"""`onceway trace FILE|URL ADDRESS PUBLISHER TAG`: where one delivery is, and who has accepted it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from onceway import topology
from onceway.base import waits
from onceway.cli.options import without_password
from onceway.cli.sockets import Reading, reading_options, sockets_by_url
from onceway.cli.status import admin_address
from onceway.serve.ports import admin_url
from router.json_text import write_json

PREFIX = 16  # bytes of an outgoing tag before the publisher's own
FINAL = ("accepted", "rejected")
STATES = {
    "queued": "queued, waits for the subscriber's credit",
    "sent": "sent, not accepted yet",
    "released": "released, to be sent again",
}
Found = Mapping[str, Any]


@click.command("trace")
@click.argument("target", metavar="FILE|URL", callback=without_password)
@click.argument("address")
@click.argument("publisher", metavar="CONTAINER/NAME")
@click.argument("tag")
@click.option(
    "--as",
    "form",
    type=click.Choice(["text", "hex", "number", "outgoing"]),
    help="What TAG is: text; bytes in hexadecimal; the number of a message of this library's publishers, from 0 on; or"
    " the tag that subscribers see, in hexadecimal. Default: hex if it begins with 0x, else text.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what each router says.")
@reading_options
def command(
    target: str, address: str, publisher: str, tag: str, form: str | None, as_json: bool, reading: Reading
) -> None:
    """Ask every router of a topology FILE, or the one at URL, for one delivery. Routers of this host whose admin
    listener does not answer are asked through their control sockets.

    The delivery is that of the publisher with this container-id and link name (as `onceway status --json` shows them;
    one word stands for both) at ADDRESS, with the delivery-tag TAG.

    Each line says what a router has of it. Then come the subscriptions that have accepted it, and those that it waits
    for. A delivery that is settled is forgotten by all routers, like one that was never sent.

    The exit code is 1 if no router knows the delivery, or a router does not answer.
    """
    from onceway.base.loop import run

    container, _, name = publisher.partition("/")
    query = {
        "address": address,
        "container": container,
        "name": name or container,
        "tag": _tag(tag, form).hex(),
    }
    answers, silent = run(ask(target, query, reading))
    if as_json:
        click.echo(write_json(answers, indent=2))
    else:
        for line in explain(answers, f"{container}/{name or container}", address, silent):
            click.echo(line)
    sys.exit(0 if None not in answers.values() and any(map(_knows, answers.values())) else 1)


async def ask(
    target: str, query: Mapping[str, str], reading: Reading
) -> tuple[dict[str, Found | None], dict[str, str]]:
    """What each router knows, and why it has not said so."""
    url = admin_address(target)
    network = topology.load(target) if url is None else None
    urls = {str(url): str(url)} if network is None else {name: admin_url(network, name) for name in network.routers}
    sockets = {} if network is None else sockets_by_url(network, reading.state_dir)
    async with reading.probe(waits.PROBE_ALL.s, sockets) as probe:
        answers = await asyncio.gather(*(probe.trace(each, query) for each in urls.values()))
        return dict(zip(urls, answers, strict=True)), {name: probe.why.get(each, "") for name, each in urls.items()}


def _tag(text: str, form: str | None) -> bytes:
    if form is None:
        form = "hex" if text.startswith("0x") else "text"
    if form == "text":
        return text.encode()
    try:
        if form == "number":
            number = int(text)
            return number.to_bytes(4 if number < 1 << 32 else 8, "big")
        found = bytes.fromhex(text.removeprefix("0x"))
    except (ValueError, OverflowError) as error:
        what = "a whole number" if form == "number" else "hexadecimal"
        raise click.BadParameter(f'"{text}" is not {what}; --as says what it is', param_hint="TAG") from error
    if form == "outgoing":
        if len(found) < PREFIX:
            raise click.BadParameter(f'"{text}" is shorter than {PREFIX} bytes', param_hint="TAG")
        found = found[PREFIX:]
    return found


def _knows(answer: Found | None) -> bool:
    return answer is not None and any(_has(each) for each in answer["known"])


def _has(known: Found) -> bool:
    ingress = known["ingress"]
    return bool(known["egress"]) or (ingress is not None and ingress["state"] != "unknown")


def explain(
    answers: Mapping[str, Found | None], publisher: str, address: str, silent: Mapping[str, str]
) -> Iterator[str]:
    """The lines for people. silent: why a router has not answered."""
    there = {name: answer for name, answer in answers.items() if answer is not None}
    nobody = "no router" if len(there) == len(answers) else "no router that answers"
    everything = [(name, known) for name, answer in there.items() for known in answer["known"]]
    for name, known in everything:
        if known["ingress"] is not None:
            yield f"[{name}] {_ingress(known['ingress'], publisher)}"
        for one in known["egress"]:
            yield f"[{name}] {_subscription(one)}: {_egress(one)}"
    accepted = {_subscription(one) for _, known in everything for one in known["egress"] if one["state"] in FINAL}
    if accepted:
        yield f"accepted by: {', '.join(sorted(accepted))}"
    waits = [one for _, known in everything if known["ingress"] for one in known["ingress"].get("waits_for", ())]
    left = {_subscription(one): _why(one) for one in waits if one["why"] != "shared"}
    left |= {_subscription(one): _why(one) for one in waits if _subscription(one) not in accepted}
    for subscription, why in sorted(left.items()):
        yield f"waits for: {subscription}, {why}"
    if there:
        yield from _verdict(everything, publisher, address, nobody)
    for name in answers:
        if name not in there:
            yield f"[{name}] {silent.get(name) or 'does not answer'}; what it knows is missing"


def _verdict(everything: list[tuple[str, Found]], publisher: str, address: str, nobody: str) -> Iterator[str]:
    if not everything:
        yield (
            f"{nobody} knows a publisher {publisher} of {address}: it has never attached, has closed and is forgotten,"
            " or has another name"
        )
        return
    if not any(_has(known) for _, known in everything):
        yield f"{nobody} has this delivery: it is settled and forgotten, or it was never sent"
    if not any(known["home"] for _, known in everything):
        away = max(known["away_s"] for _, known in everything)
        how = "has closed" if any(known["closed"] for _, known in everything) else f"has no link for {away:.0f} s"
        yield f"its publisher {how}"


def _subscription(one: Found) -> str:
    return f"{one['container']}/{one['name']}" if one["name"] else str(one["container"])


def _ingress(ingress: Found, publisher: str) -> str:
    state = ingress["state"]
    if state == "unknown":
        return f"publisher {publisher} is attached here, and has no such delivery here"
    if state == "expected":
        return f"publisher {publisher} is attached here, and may send it again"
    if state == "held":
        return f"it has come from publisher {publisher}, whose link {ingress['link']}"
    record = f"record {ingress['position']}, taken {ingress['age_s']:.1f} s ago"
    if state == "undone":
        return f"{record}, not accepted by all"
    outcome = f"rejected by {ingress['rejected']}" if ingress["rejected"] else "accepted by all"
    return f"{record}, {outcome}; its publisher has not settled it"


def _egress(one: Found) -> str:
    state = str(one["state"])
    text = STATES.get(state, state)
    if one.get("redeliveries"):
        text += f", delivered again {one['redeliveries']} times"
    return f"{text}, in doubt: its publisher has no link" if one.get("in_doubt") else text


def _why(one: Found) -> str:
    if one["why"] == "fed":
        return "a shared subscription: for one of its members"
    if one["home"] is None:
        return f"away for {one['away_s']:.0f} s"
    return f"at {one['home']}" + (", which has not been sent it yet" if one["why"] == "owed" else "")
