"""Deliberate defects: declared subscriptions. Schedules: `scenarios/declared.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router.core.declarations import Declarations
from router.core.directory import SubscriptionEntry
from router.core.messages import Declaration
from router.core.recovery import Recovering
from router.core.subscription_directory import SubscriptionDirectory


def established_when_recovered(self: Recovering, address: str) -> bool:
    return self.is_recovered(address)


def recovered_when_established(self: Recovering, address: str) -> bool:
    closed = self.times.booted and self.declarations.is_closed(address)
    return closed or IS_RECOVERED(self, address)


IS_RECOVERED = Recovering.is_recovered


def of_this_file_only(self: Declarations, address: str) -> bool:
    return any(each.address == address and each.closed for each in self.own.addresses)


def own_statement_only(self: Declarations, peer: str) -> list[Declaration]:
    return [self.own]


def forget_without_a_word(self: SubscriptionDirectory, entry: SubscriptionEntry) -> None:
    entry.declared = False
    self._forget(entry)


def forget_wherever_it_is(self: SubscriptionDirectory, entry: SubscriptionEntry) -> None:
    if entry.home in (None, self.core.name):
        REMOVE(self, entry)
    else:
        forget_without_a_word(self, entry)


REMOVE = SubscriptionDirectory._remove


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 4.4: nothing is accepted before every subscription that might be there has expired
    "all_die_and_nothing_waits": ([(Recovering, "is_established", established_when_recovered)], "waits"),
    # protocol 4.4: A waits for S0 only
    "all_die_and_others_may_be_there": ([(Recovering, "is_established", always(True))], "G1"),
    # protocol 4.5: the file is not looked at before somebody attaches
    "all_die_before_it_ever_attached": ([(Declarations, "addresses", always([]))], "G1"),
    # protocol 5.3: A refuses P, whom B knows
    "publisher_comes_before_its_router_knows_anything": (
        [(Recovering, "is_recovered", recovered_when_established)],
        "G5",
    ),
    # protocol 8.3: each side gives up whom it cannot see
    "apart_for_three_timeouts": ([(SubscriptionDirectory, "_stays", always(False))], "G1"),
    # protocol 7.3: B knows S by another birth, takes it for unknown, and breaks it
    "attached_anew_behind_the_back_of_its_router": (
        [
            (
                SubscriptionDirectory,
                "_is_known",
                lambda self, entry, join: entry.in_time and self._is_the_same(entry, join),
            )
        ],
        "G6",
    ),
    # protocol 8.2: S0 has gone for good
    "closed_and_back": ([(SubscriptionDirectory, "_stays", always(False))], "G1"),
    # protocol 4.5: B goes by its own file
    "added_at_one_router_first": ([(Declarations, "learn", always([]))], "G1"),
    # protocol 4.5: B does not pass on what A has declared
    "added_by_one_who_has_gone": ([(Declarations, "statements", own_statement_only)], "G1"),
    # protocol 8.7: S0 is an orphan like any other, which is waited for
    "removed_when_all_have_removed_it": ([(SubscriptionDirectory, "_remove", always(None))], "G4"),
    # protocol 8.7: A forgets S0, which has attached again at B
    "removed_and_back_before_all_know": ([(SubscriptionDirectory, "_remove", forget_wherever_it_is)], "G"),
    # protocol 8.7: S0 keeps its link, and gets nothing any more
    "removed_with_a_link": ([(SubscriptionDirectory, "_remove", forget_without_a_word)], "G5"),
    # protocol 4.5: A does not wait for S1, which its own file would not let in
    "closed_at_one_router_only": ([(Declarations, "is_closed", of_this_file_only)], "G1"),
}

EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
