"""A state of a whole world, which is a tuple of numbers, and what these stand for: the parts that can be changed.

In order: situations of routers (-1: dead), inboxes, situations of clients, connections, the checker, the rest. Next:
`product.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chaos.simulation.frames import kind_of
from chaos.simulation.processes import STEP_S
from chaos.simulation.smallest import TURN_S

if TYPE_CHECKING:
    from chaos.simulation.product import Product

UP, DOWN = 0, 1  # in inboxes, beside the numbers of messages
State = tuple[int, ...]


class Channel(NamedTuple):
    """One client connection. c2r, r2c: the frames under way, by their numbers."""

    client: int
    number: int
    router: int
    life: int
    c2r: tuple[int, ...]
    r2c: tuple[int, ...]
    c_open: bool
    r_open: bool


class Rest(NamedTuple):
    budget: tuple[int, ...]  # faults left, in the order of FAULTS
    lives: tuple[int, ...]  # of routers: how often each has started
    numbers: tuple[int, ...]  # of clients: how often each has connected
    broken: bool  # the trunk
    turns: int  # of time


class Draft:
    """A state taken apart, to be changed."""

    def __init__(self, product: Product, state: State) -> None:
        values = product.values
        n, pairs, m = product.n, product.pairs, product.m
        self.sites = list(state[:n])
        self.inboxes = [values[each] for each in state[n : n + pairs]]
        self.clients = list(state[n + pairs : n + pairs + m])
        self.channels: list[Channel] = list(values[state[-3]])
        self.checker = state[-2]
        self.rest: Rest = values[state[-1]]


def time_after(turns: int) -> float:
    """Added up as `World.advance` does, so that clocks agree to the last bit."""
    now = 0.0
    for _ in range(turns):
        end = now + TURN_S
        while now < end:
            now = min(end, now + STEP_S)
    return now


def begins(frame: bytes) -> bool:
    return kind_of(frame) in ("open", "begin")
