"""All targets by name, run with one input: as a test of everything that must hold, or plainly for its coverage."""

from __future__ import annotations

import random
from typing import Final

from chaos.fuzz.logins import run_client, run_server, run_token
from chaos.fuzz.peers import run_messages, run_trunk
from chaos.fuzz.targets import ENGINES, Broken, Routed, cut, feed, feed_an_owner, parting

LOGINS: Final = {"sasl": run_server, "scram": run_client, "token": run_token}
TARGETS: Final = (*ENGINES, "router", "trunk", "peer", *LOGINS)


def run(target: str, data: bytes) -> None:
    """Raises where something is wrong. Inputs are cut by their own content."""
    if target == "router":
        routed = Routed()
        routed.feed(cut(data, random.Random(len(data))))
        routed.status()
        routed.leave()
    elif target == "trunk":
        run_trunk(data, lambda data: cut(data, random.Random(len(data)))).leave()
    elif target == "peer":
        run_messages(data).leave()
    elif target in LOGINS:
        LOGINS[target](data)
    else:
        make = ENGINES[target]
        whole = feed(make(), [data])
        pieces = feed(make(), cut(data, random.Random(len(data) + 1)))
        if whole != pieces:
            raise Broken(parting(whole, pieces))
        feed_an_owner(make(), cut(data, random.Random(len(data) + 2)), random.Random(len(data) + 3))


def reach(target: str, data: bytes) -> None:
    """What there is to be covered, once."""
    if target == "router":
        Routed().feed([data])
    elif target == "trunk":
        run_trunk(data)
    elif target == "peer":
        run_messages(data)
    elif target in LOGINS:
        LOGINS[target](data)
    else:
        feed(ENGINES[target](), [data])
