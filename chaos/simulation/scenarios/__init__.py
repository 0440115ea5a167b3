"""The named schedules of protocol 11, against the real cores: with every rule the schedule passes.

Each is the one interleaving that its rule is there for. `chaos/simulation/defects` takes the rule away and watches the
named guarantee break. Every public function of these modules is a schedule; begin with `proof.py`. The verbs that they
are written in are in `schedule.py`.
"""

from collections.abc import Callable
from inspect import isfunction
from typing import Any

from chaos.simulation.scenarios import (
    absences,
    changes,
    clients,
    declared,
    kinds,
    large,
    membership,
    proof,
    publishers,
    queues,
    subscriptions,
)

SCENARIOS: dict[str, Callable[[Callable[..., Any]], None]] = {
    name: function
    for module in (
        absences,
        changes,
        clients,
        declared,
        kinds,
        large,
        membership,
        proof,
        publishers,
        queues,
        subscriptions,
    )
    for name, function in vars(module).items()
    if isfunction(function) and function.__module__ == module.__name__ and name[0] != "_"
}
