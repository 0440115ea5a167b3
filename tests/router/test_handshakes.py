"""The tables of the attach handshakes: every state with every input."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any

import pytest

from router.core import publisher_handshake, subscriber_handshake


def publisher(state: Enum) -> publisher_handshake.Handshake:
    handshake = publisher_handshake.Handshake(brought_epoch=False)
    handshake.state = publisher_handshake.State(state)
    return handshake


def subscriber(state: Enum) -> subscriber_handshake.Handshake:
    handshake = subscriber_handshake.Handshake(brought_epoch=False, brought_map=False)
    handshake.state = subscriber_handshake.State(state)
    return handshake


Machine = tuple[ModuleType, Callable[[Enum], Any]]
MACHINES: list[Machine] = [(publisher_handshake, publisher), (subscriber_handshake, subscriber)]


@pytest.mark.parametrize("machine", MACHINES, ids=[module.__name__ for module, _ in MACHINES])
def test_every_input_in_every_state_is_in_the_table_or_an_error_that_names_both(machine: Machine) -> None:
    module, make = machine
    for state in module.State:
        for what in module.Input:
            handshake = make(state)
            if (state, what) in module.TABLE:
                action = handshake.receive(what)
                assert (action, handshake.state) == module.TABLE[state, what]
            else:
                with pytest.raises(AssertionError, match=f"{re.escape(what.name)} .*{re.escape(state.name)}"):
                    handshake.receive(what)
                assert handshake.state is state


@pytest.mark.parametrize("machine", MACHINES, ids=[module.__name__ for module, _ in MACHINES])
def test_a_table_has_every_state_input_and_action_and_ends(machine: Machine) -> None:
    module, _ = machine
    first = next(iter(module.State))
    reached, left = {first}, [first]
    while left:
        state = left.pop()
        found = {then for (before, _), (_, then) in module.TABLE.items() if before is state}
        left += found - reached
        reached |= found
    assert reached == {*module.State}
    assert {what for _, what in module.TABLE} == {*module.Input}
    assert {action for action, _ in module.TABLE.values()} == {*module.Action}
    ends = {*module.State} - {before for before, _ in module.TABLE}
    assert len(ends) == 1, "one state, that nothing leaves"
