"""What a state of a whole world looks like to those who judge it: what is left over, who remembers, what is under way.

Read off the situations of its processes; nothing happens here.
"""

from __future__ import annotations

from collections.abc import Iterable

from chaos.simulation.checker import Violation
from chaos.simulation.checkers import Found
from chaos.simulation.drafts import DOWN, UP, Draft, State
from chaos.simulation.product import Product
from chaos.simulation.smallest import View, incarnation_of


def left_over(product: Product, state: State) -> list[str]:
    draft = Draft(product, state)
    left = [text for number in draft.clients for text in product.locals.offers(number).left]
    for name, site in zip(product.names, draft.sites, strict=True):
        left += [f"{name}: {text}" for text in product.locals.router_left_over(site)]
    return left


def not_closed(product: Product, state: State, names: Iterable[str]) -> list[str]:
    draft = Draft(product, state)
    return [
        f"{name} is not closed"
        for name in names
        if not product.locals.offers(draft.clients[product.places[name]]).closed
    ]


def remembered(product: Product, state: State) -> list[str]:
    draft = Draft(product, state)
    return [
        f"{name} remembers {text}"
        for name, site in zip(product.names, draft.sites, strict=True)
        for text in product.locals.remembered(site)
    ]


def view(product: Product, state: State) -> View:
    draft, names, values = Draft(product, state), product.names, product.values
    inboxes = {
        (names[x], names[y]): tuple(
            "up" if i == UP else "down" if i == DOWN else values[i] for i in draft.inboxes[place]
        )
        for (x, y), place in product.pair.items()
        if draft.sites[x] >= 0
    }
    pipes = {
        (product.who[c.client].name, c.number): (
            names[c.router], incarnation_of(names[c.router], c.life), tuple(values[i] for i in c.c2r),
            tuple(values[i] for i in c.r2c), c.c_open, c.r_open,
        )
        for c in draft.channels
    }  # fmt: skip
    return View(inboxes, pipes, sorted(left_over(product, state)) if min(draft.sites) >= 0 else [])


def quiescent(product: Product, state: State) -> None:
    """Raises Found."""
    draft = Draft(product, state)
    alive = {(name, incarnation_of(name, life)) for name, life in zip(product.names, draft.rest.lives, strict=True)}
    try:
        product.checkers.load(draft.checker).quiescent(alive)
    except Violation as violation:
        raise Found(violation) from None
