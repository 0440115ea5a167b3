"""Deliberate defects: topology files that change. Schedules: `scenarios/changes.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router.core.directory import PublisherEntry
from router.core.membership import Membership
from router.core.publisher_directory import PublisherDirectory


def forget_by_the_present_file(self: PublisherDirectory, entry: PublisherEntry) -> float:
    return self.address.config.publisher_expires_s + self.address.config.margin_s


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 12.7: B settles at S0 what P may still send again
    "publisher_away_while_its_timeout_is_lowered": (
        [(PublisherDirectory, "_forgotten_after", forget_by_the_present_file)],
        "G2",
    ),
    # protocol 12.8: B takes A and itself for all, and settles at S0 what P sends again at C
    "publisher_at_a_router_that_not_all_have_in_their_file": (
        [(Membership, "_in_files", always(frozenset("AB")))],
        "G2",
    ),
    # protocol 12.8: A and B wait for C for ever
    "publisher_at_a_router_that_is_removed": ([(Membership, "_in_files", always(frozenset("ABC")))], "G4"),
}

EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
