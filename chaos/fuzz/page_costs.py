"""Cost cases of what readers ask for: every admin page, and every request of `$management`.

They are made from their declarations: the routes of the admin listener, the operations of the management node and its
types of entities, also those of other routers' tools. A router has more and more addresses with a subscription each; or
what is asked gets longer. A turn is one of the event loop's.
"""

# mypy: disable-error-code="misc"
# (as in costs.py)

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any, Final, TypeVar

from amqp10.sections import AmqpValue, Message, Properties
from chaos.fuzz.cost import Case, Turn
from chaos.fuzz.costs import GROWN, LINKS, NOW, World, links
from onceway import topology
from onceway.operate.actions import Actions
from onceway.operate.node.entities import ATTRIBUTES, PREFIX
from onceway.operate.node.foreign import PREFIXES, TYPES
from onceway.operate.node.node import ON_NODE, Node
from onceway.operate.overview import Overview, Pace
from onceway.operate.pages import AdminServer
from onceway.serve.server import RouterServer
from router.policies import Identity

T = TypeVar("T")

FILE: Final = """
network: costs
routers:
  a: {amqp: 127.0.0.1:5672, interrouter: 127.0.0.1:5673, admin: 127.0.0.1:8080}
addresses:
  - {match: "*", no_subscribers: accept}
"""
PARAMETERS: Final = ("limit", "after", "address", "container", "name", "tag")
KINDS: Final = (*(f"{PREFIX}{kind}" for kind in ATTRIBUTES), *(f"{PREFIXES[0]}{kind}" for kind in TYPES))
MORE_THAN_VALUES: Final = ("source", "modified", "error", "states", "tags", "deliveries")
PAGE: Final = 32  # entities
EACH: Final = 64  # bytes that an attach has, about


class OneByOne(Pace):
    """Each piece of readers' work has a turn of its own."""

    async def run(self, steps: Generator[None, None, T]) -> tuple[T, float]:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value, 0.0
            await asyncio.sleep(0)


class Served(World):
    """A router with its server, which does not listen."""

    def __init__(self, subscriptions: int) -> None:
        super().__init__()
        self.server = RouterServer(topology.loads(FILE), "a", fresh=True)
        self.router = self.server.router
        self.admin = AdminServer(self.server, lambda: {"a"})
        self.admin.overview = Overview(self.server, clock=lambda: NOW, cpu=lambda: 0.0)
        self.admin.overview.pace = OneByOne()
        self.node = Node(self.server, self.admin.overview, Actions(self.server))
        for first in range(0, subscriptions, LINKS):
            client = self.client(f"c{first}")
            links(self, client, min(LINKS, subscriptions - first), sends=False, first=first)


def turns_of(work: Coroutine[Any, Any, object]) -> Iterator[Turn]:
    """Each turn of an event loop until this is done."""
    loop = asyncio.new_event_loop()

    def at_once(executor: object, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """What a thread does is done here: a loop that waits for it would have turns without number."""
        future = loop.create_future()
        future.set_result(function(*arguments))
        return future

    vars(loop)["run_in_executor"] = at_once
    task = loop.create_task(work)

    def turn() -> None:
        loop.stop()
        loop.run_forever()

    while not task.done():
        yield turn
    loop.close()
    task.result()


def of_pages() -> Iterator[Case]:
    paths = [route.path for route in Served(0).admin.routes()]

    def handler(served: Served, path: str) -> Callable[[Any], Any]:
        return next(route.handler for route in served.admin.routes() if route.path == path)

    def asked(**query: str) -> Any:
        return SimpleNamespace(query=query, headers={"Accept": "application/openmetrics-text"})

    for path in paths:

        def standing(n: int, path: str = path) -> Iterator[Turn]:
            return turns_of(handler(Served(n), path)(asked(limit="1000") if path == "/status" else asked()))

        yield Case(f"page{path}/addresses", standing, EACH, 1 << 11)
    for path, name in product(paths, PARAMETERS):

        def longer(n: int, path: str = path, name: str = name) -> Iterator[Turn]:
            query = {**dict.fromkeys(("address", "container", "name", "tag"), "00"), name: "0" * n}
            return turns_of(handler(Served(1), path)(asked(**query)))

        yield Case(f"page{path}/{name}", longer, 1, 1 << 13)


def of_management() -> Iterator[Case]:
    who = Identity("operator")

    def request(operation: str, body: Any = None, **given: Any) -> Message:
        said = {"operation": operation, **given}
        return Message(AmqpValue(body), properties=Properties(reply_to="x"), application_properties=said)

    def asks(n: int, message: Message) -> Iterator[Turn]:
        return turns_of(Served(n).node._answer(who, message))

    def paged(n: int, kind: str) -> Iterator[Turn]:
        """Every entity, in pages: what lies before a page must not cost what the page does."""
        node = Served(n).node
        for offset in range(0, n, PAGE):
            message = request("QUERY", entityType=kind, offset=offset, count=PAGE)
            yield from turns_of(node._answer(who, message))

    for kind in KINDS:
        yield Case(f"management/pages/{kind}", lambda n, kind=kind: paged(n, kind), EACH, 1 << 11)
        query, read = request("QUERY", entityType=kind), request("READ", type=kind, identity="x")
        yield Case(f"management/query/{kind}", lambda n, message=query: asks(n, message), EACH, 1 << 11)
        yield Case(f"management/read/{kind}", lambda n, message=read: asks(n, message), EACH, 1 << 11)
    plain = {kind: grow for kind, grow in GROWN.items() if kind not in MORE_THAN_VALUES}
    given = [(each, "entityType") for each in ON_NODE] + [("QUERY", "offset"), ("QUERY", "attributeNames")]
    given += [(each, place) for each in ("READ", "DELETE") for place in ("type", "identity")]
    for (operation, place), (kind, grow) in product(given, plain.items()):

        def asked(n: int, operation: str = operation, place: str = place, grow: Any = grow) -> Iterator[Turn]:
            said = {place: grow(n)}
            body = said if place == "attributeNames" else None
            return asks(1, request(operation, body, **({} if body else said)))

        yield Case(f"management/{operation.lower()}/{place}/{kind}", asked, 4, 1 << 12)


MAKERS: Final = (of_pages, of_management)
