"""Declared subscriptions and the recovery of single addresses, at cores without a network (protocol 4.4, 4.5, 7.8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from router.config import AddressConfig, Life, RouterConfig
from router.core.core import Core
from router.core.recovery import Recovery
from router.core.reports import of_all
from tests.router.harness import Mesh

LATER = AddressConfig(subscription_timeout_s=60.0)
SOON = AddressConfig(match="soon", subscription_timeout_s=4.0)
CLOSED = AddressConfig(match="topic", subscriptions=(("s", "in"),), other_subscriptions="refuse")


def core(*addresses: AddressConfig, fresh: bool = False, **named: Any) -> Core:
    config = RouterConfig("a", ("a",), addresses=addresses, defaults=LATER)
    return Core(config, Life(1, 100.0, fresh, **named), lambda peers, message: None, lambda: 1)


def test_each_address_waits_for_its_own_timeout_only() -> None:
    router = core(SOON, CLOSED)
    soon, later, closed = (router.address(name) for name in ("soon", "later", "topic"))
    assert router.recovery.of("soon", router.now) == Recovery("soon", 6.0, 4.0)
    assert router.recovery.of("later", router.now) == Recovery("later", 70.0, 60.0)
    assert router.recovery.of("topic", router.now) is None
    assert not router.recovery.established
    router.tick(106.0)
    assert (soon.established, later.established, closed.established) == (True, False, True)
    assert of_all(router)["recovering_s"] == pytest.approx(64.0)
    router.tick(170.0)
    assert router.address("later").established
    assert router.recovery.established


def test_a_router_of_closed_addresses_is_established_when_it_is_booted() -> None:
    config = RouterConfig("a", ("a",), addresses=(CLOSED, replace(CLOSED, match="other")), defaults=LATER)
    everything = replace(config, addresses=(*config.addresses, replace(SOON, match="*")))
    router = Core(everything, Life(1, 100.0, False), lambda peers, message: None, lambda: 1)
    assert not router.recovery.established, "any other address is open"
    assert router.address("other").established
    assert router.startup.recovering_s() == pytest.approx(6.0)


@pytest.mark.parametrize(("age_s", "left_s"), [(0.0, 6.0), (5.0, 1.0), (90.0, 0.0)])
def test_the_time_for_which_the_network_was_dead_counts_as_waited(age_s: float, left_s: float) -> None:
    """Protocol 4.4.5."""
    router = core(SOON, recover_age_s=age_s)
    if left_s == 0.0:
        router.tick(100.0)
        assert router.recovery.of("soon", router.now) is None
    else:
        assert router.recovery.of("soon", router.now) == Recovery("soon", left_s, 4.0)


def test_a_fresh_router_waits_for_nothing() -> None:
    router = core(SOON, fresh=True)
    assert router.recovery.established
    assert of_all(router)["recovery"] == []


def test_a_declared_subscription_is_there_before_anybody_attaches_and_stays() -> None:
    router = core(CLOSED)
    assert list(router.addresses) == ["topic"]
    router.flush(100.0)
    router.tick(10_000.0)
    (shown,) = of_all(router)["addresses"]["topic"]["subscriptions"]
    assert (shown["container"], shown["declared"], shown["timeout_s"], shown["home"]) == ("s", True, None, None)


def test_files_that_differ_are_shown_with_both_digests() -> None:
    """Protocol 4.5.6, 12.10."""
    mesh = Mesh("ab", address=LATER)
    assert of_all(mesh.cores["a"])["file_differences"] == []
    config = mesh.cores["b"].config
    mesh.cores["b"].reconfigure(replace(config, addresses=(CLOSED,), proof_after_s=1.0), mesh.now)
    mesh.run()
    found = of_all(mesh.cores["a"])["file_differences"]
    assert [each["what"] for each in found] == ["declarations", "settings"]  # type: ignore[index, attr-defined]
    theirs = of_all(mesh.cores["b"])["file_differences"]
    assert [(each["ours"], each["theirs"]) for each in found] == [  # type: ignore[index, attr-defined]
        (each["theirs"], each["ours"])
        for each in theirs  # type: ignore[index, attr-defined]
    ]


def test_files_that_differ_are_logged_once_and_when_they_agree_again() -> None:
    mesh = Mesh("ab", address=LATER)
    logged: list[tuple[object, ...]] = []

    class Noted:
        def debug(self, event: str, text: str, /, **fields: object) -> None:
            logged.append((event, fields.get("peer"), fields.get("what")))

        info = warning = debug

    mesh.cores["a"].owner.log = Noted()
    former = mesh.cores["b"].config
    for config in (replace(former, addresses=(CLOSED,)), replace(former, addresses=(CLOSED,)), former):
        mesh.cores["b"].reconfigure(config, mesh.now)
        mesh.run()
    assert logged == [
        ("file_differs", "b", "declarations"),
        ("file_differs", "b", "settings"),
        ("files_agree", None, None),
    ]
