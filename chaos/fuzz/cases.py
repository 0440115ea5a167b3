"""All cases of the cost fuzz: what clients send, what neighbours say, and what readers ask for."""

from __future__ import annotations

from chaos.fuzz import costs, neighbour_costs, page_costs
from chaos.fuzz.cost import Case


def cases() -> list[Case]:
    makers = (*costs.MAKERS, *neighbour_costs.MAKERS, *page_costs.MAKERS)
    return [case for make in makers for case in make()]
