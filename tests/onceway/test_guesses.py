"""Guessing passwords is slow, and then not possible."""

from __future__ import annotations

import asyncio
from functools import partial

from onceway.access.authentication import CHECKS_AT_ONCE, Checks
from onceway.access.guesses import (
    ADDRESS_LEAK_S,
    KEPT,
    LEAK_S,
    MOST_DELAY_S,
    MOST_OF_ADDRESS,
    MOST_OF_KNOWN,
    MOST_OF_PAIR,
    MOST_OF_USER,
    Guesses,
)
from router.links.crowd import network_of

HERE, THERE = "192.0.2.1:1000", "192.0.2.2:1000"


def test_failures_are_answered_later_and_later() -> None:
    guesses = Guesses()
    assert [guesses.failed(HERE, "alice", 0.0) for _ in range(9)] == [0, 0, 0, 0.25, 0.5, 1, 2, 4, MOST_DELAY_S]
    assert guesses.failed(THERE, "bob", 0.0) == 0


def test_guesses_at_one_user_stop_nobody_else_behind_the_same_address() -> None:
    guesses = Guesses()
    for number in range(MOST_OF_PAIR):
        assert not guesses.refuses(HERE, "alice", 0.0)
        guesses.failed(f"192.0.2.1:{number}", "alice", 0.0)
    assert guesses.refuses(HERE, "alice", 0.0)
    assert not guesses.refuses(HERE, "bob", 0.0)
    assert not guesses.refuses(THERE, "alice", 0.0)
    assert not guesses.refuses(HERE, "alice", LEAK_S)


def test_an_address_that_tries_many_users_stops_no_user_who_has_come_in_from_there() -> None:
    guesses = Guesses()
    guesses.succeeded(HERE, "alice")
    for number in range(MOST_OF_ADDRESS):
        assert not guesses.refuses(HERE, "new", 0.0)
        guesses.failed(f"192.0.2.1:{number}", f"user{number}", 0.0)
    assert guesses.refuses(HERE, "new", 0.0)
    assert not guesses.refuses(HERE, "alice", 0.0)
    assert not guesses.refuses(THERE, "new", 0.0)
    assert not guesses.refuses(HERE, "new", ADDRESS_LEAK_S)


def test_a_user_who_is_guessed_at_comes_in_from_where_it_has_been() -> None:
    guesses = Guesses()
    guesses.succeeded(THERE, "alice")
    for number in range(MOST_OF_USER):
        guesses.failed(f"198.51.100.{number}:1", "alice", 0.0)
        guesses.failed(THERE, "alice", 0.0)
    assert guesses.refuses(HERE, "alice", 0.0)
    assert not guesses.refuses(THERE, "alice", 0.0)
    assert not guesses.refuses(HERE, "bob", 0.0)
    assert not guesses.refuses(HERE, "alice", (MOST_OF_USER + 1) * LEAK_S)


def test_guesses_are_bounded_also_from_where_the_user_has_come_in() -> None:
    guesses = Guesses()
    guesses.succeeded(HERE, "alice")
    looked_at = 0
    while not guesses.refuses(HERE, "alice", 0.0):
        guesses.failed(HERE, "alice", 0.0)
        looked_at += 1
    assert looked_at == MOST_OF_KNOWN


def test_who_shows_no_name_stops_no_user() -> None:
    guesses = Guesses()
    for _ in range(2 * MOST_OF_ADDRESS):
        guesses.failed(HERE, "", 0.0)
    assert not guesses.refuses(HERE, "alice", 0.0)
    assert guesses.refuses(HERE, "", 0.0)


def test_addresses_of_one_customer_count_together() -> None:
    assert network_of("192.0.2.1:1") == "192.0.2.1"
    assert network_of("::ffff:192.0.2.1:1") == "192.0.2.1"
    assert network_of("2001:db8::1:1") == network_of("2001:db8::ffff:2:1")
    assert network_of("2001:db8:0:1::1:1") != network_of("2001:db8::1:1")
    assert network_of("?") == ""


def test_what_is_remembered_is_bounded() -> None:
    guesses = Guesses()
    for number in range(2 * KEPT):
        guesses.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:1", f"user{number}", 0.0)
        guesses.succeeded(f"h{number}:1", "alice")
    assert len(guesses._buckets) == KEPT
    assert len(guesses._came_in) == KEPT


def test_a_flood_of_passwords_from_one_address_holds_up_another_by_one_comparison() -> None:
    async def go() -> list[str]:
        checks, order = Checks(), list[str]()

        def check(name: str) -> bool:
            order.append(name)
            return name == "alice"

        flood = [checks.start(f"10.0.0.1:{n}", partial(check, "flood")) for n in range(50)]
        more = [checks.start(f"2001:db8::{n}:1", partial(check, "one /64")) for n in range(50)]
        assert await checks.start("10.0.0.2:7", partial(check, "alice"))
        assert not any(await asyncio.gather(*flood, *more))
        assert not checks._waiting
        return order

    order = asyncio.run(go())
    assert len(order) == 101
    assert order.index("alice") <= 2 * CHECKS_AT_ONCE + 1


def test_the_password_of_somebody_who_is_gone_is_not_compared() -> None:
    async def go() -> int:
        checks, compared = Checks(), 0

        def check() -> bool:
            nonlocal compared
            compared += 1
            return True

        waiting = [checks.start("10.0.0.1:1", check) for _ in range(50)]
        for each in waiting[CHECKS_AT_ONCE:-1]:
            each.cancel()
        assert await waiting[-1]
        assert not checks._waiting
        return compared

    assert asyncio.run(go()) == CHECKS_AT_ONCE + 1
