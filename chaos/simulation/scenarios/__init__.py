"""The named schedules of PROTOCOL 11, against the real cores: with every rule the schedule passes.

Each is the one interleaving that its rule is there for. `chaos/simulation/mutations.py` takes the rule away and watches
the named guarantee break. What they have in common is in `named.py`; begin with `proof.py`.
"""

from chaos.simulation.scenarios import absences, clients, membership, proof, publishers, subscriptions
from chaos.simulation.scenarios.named import SCENARIOS

__all__ = ["SCENARIOS", "absences", "clients", "membership", "proof", "publishers", "subscriptions"]
