"""`onceway trace`: one delivery through all routers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import onceway as library
from onceway.cli.trace import explain
from tests.cli.conftest import BOUND_S, called, onceway
from tests.live import LiveNetwork
from tests.needs import PROTON, has_proton


def told(*answers: Any) -> list[str]:
    return list(explain(dict(zip("abc", answers, strict=False)), "p/p", "orders", {}))


def known(**what: Any) -> dict[str, Any]:
    one = {"unique_tags": False, "home": "a", "away_s": 0.0, "closed": False, "ingress": None, "egress": [], **what}
    return {"known": [one]}


def test_a_line_for_each_router_then_who_has_accepted_and_who_is_waited_for() -> None:
    waits = [
        {"container": "s0", "name": "in", "home": "b", "why": "shared"},
        {"container": "s1", "name": "in", "home": "b", "why": "shared"},
        {"container": "s2", "name": "in", "home": None, "why": "owed", "away_s": 12.0},
    ]
    undone = {"state": "undone", "position": 7, "age_s": 3.24, "rejected": 0, "waits_for": waits}
    at_b = [
        {"container": "s0", "name": "in", "state": "accepted"},
        {"container": "s1", "name": "in", "state": "queued"},
    ]
    assert told(known(ingress=undone), known(egress=at_b), None) == [
        "[a] record 7, taken 3.2 s ago, not accepted by all",
        "[b] s0/in: accepted",
        "[b] s1/in: queued, waits for the subscriber's credit",
        "accepted by: s0/in",
        "waits for: s1/in, at b",
        "waits for: s2/in, away for 12 s",
        "[c] does not answer; what it knows is missing",
    ]


def test_what_is_settled_and_who_is_unknown_are_said() -> None:
    assert told({"known": []}) == [
        "no router knows a publisher p/p of orders: it has never attached, has closed and is forgotten, or has another name"
    ]
    assert told(None, None) == [f"[{name}] does not answer; what it knows is missing" for name in "ab"]
    assert told({"known": []}, None)[0].startswith("no router that answers knows a publisher p/p of orders: ")
    gone = told(known(home=None, away_s=4.0))
    assert gone == [
        "no router has this delivery: it is settled and forgotten, or it was never sent",
        "its publisher has no link for 4 s",
    ]
    doubt = [{"container": "s", "name": "in", "state": "sent", "in_doubt": True, "redeliveries": 0}]
    assert told(known(home=None, away_s=4.0, egress=doubt))[0] == (
        "[a] s/in: sent, not accepted yet, in doubt: its publisher has no link"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as", "number", "x"), "not a whole number"),
        (("0xyz",), "not hexadecimal"),
        (("--as", "outgoing", "00"), "16"),
    ],
)
def test_a_tag_of_the_wrong_form_is_bad_input(arguments: tuple[str, ...], said: str) -> None:
    done = called("trace", "127.0.0.1:1", "orders", "p", *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_publication_of_this_library_is_found_by_its_number(router: LiveNetwork) -> None:
    async def go() -> None:
        async with library.connect(router.urls(), container="traced") as connection:
            subscriber = await connection.subscriber("traced")
            publisher = await connection.publisher("traced", name="out")
            publication = await publisher.put(b"x")
            async with asyncio.timeout(BOUND_S):
                delivery = await subscriber.receive()
            where = ("trace", router.topology_path, "traced", "traced/out")
            shown = await asyncio.to_thread(onceway, *where, f"0x{publication.tag.hex()}")
            assert (shown.returncode, "not accepted by all" in shown.stdout) == (0, True), shown
            assert "waits for: traced/" in shown.stdout
            number = str(int.from_bytes(publication.tag, "big"))
            again = await asyncio.to_thread(onceway, *where, number, "--as", "number")
            seen = await asyncio.to_thread(onceway, *where, delivery.tag.hex(), "--as", "outgoing")
            assert "sent, not accepted yet" in again.stdout
            assert "sent, not accepted yet" in seen.stdout
            await delivery.accept()
            async with asyncio.timeout(BOUND_S):
                await publication
            await publisher.close()
            await subscriber.close()

    asyncio.run(go())
    gone = called("trace", router.topology_path, "traced", "traced/out", "0x00")
    assert gone.returncode == 1


@pytest.mark.skipif(not has_proton(), reason=PROTON)
async def test_a_delivery_of_proton_is_found_by_its_tag_as_text(router: LiveNetwork) -> None:
    from proton import Message, Timeout
    from proton.utils import BlockingConnection

    def publish() -> tuple[Any, str, str]:
        connection = BlockingConnection(router["a"].url, timeout=BOUND_S)
        sender = connection.create_sender("proton-traced", name="out")
        connection.wait(lambda: sender.link.credit > 0)
        delivery = sender.link.send(Message("x"))
        with pytest.raises(Timeout):  # nobody accepts it yet; meanwhile it is written
            connection.wait(lambda: delivery.remote_state, timeout=1.0)
        return connection, connection.conn.container, delivery.tag

    async with library.connect(router.urls(), container="holder") as connection:
        subscriber = await connection.subscriber("proton-traced")
        publishing, container, tag = await asyncio.to_thread(publish)
        async with asyncio.timeout(BOUND_S):
            delivery = await subscriber.receive()
        where = ("trace", router.topology_path, "proton-traced", f"{container}/out", tag)
        shown = await asyncio.to_thread(onceway, *where)
        assert "sent, not accepted yet" in shown.stdout, shown
        await delivery.accept()
        await asyncio.to_thread(publishing.close)
        await subscriber.close()
