"""Each rule of protocol 11 taken away from the real router: the schedule of the same name breaks the named guarantee.

The rules, and how they are taken away, are in `chaos/simulation/defects/`.
"""

from __future__ import annotations

from typing import Any

import pytest

from chaos.simulation.defects.corruptions import STATES
from chaos.simulation.defects.mutations import EASY_TO_LOSE, MUTATIONS, TAKEN, caught, unchecked
from chaos.simulation.defects.taking import Patch, always
from chaos.simulation.scenarios import SCENARIOS
from chaos.simulation.world.subscribers import Subscriber
from chaos.simulation.world.world import Event, World
from router.config import AddressConfig
from router.core import messages as m
from router.core.core import Core
from router.core.publisher_directory import PublisherDirectory


def without(patches: list[Patch], name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The first line of the failure of that schedule without these methods' rule."""
    for owner, method, body in patches:
        assert hasattr(owner, method), f"{owner.__name__}.{method} is no more"
        monkeypatch.setattr(owner, method, body)
    with unchecked(), pytest.raises(AssertionError) as failure:
        SCENARIOS[name](World)
    return str(failure.value).splitlines()[0]


@pytest.mark.parametrize("name", TAKEN)
def test_without_its_rule_the_schedule_breaks_the_guarantee(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patches, expected = TAKEN[name]
    violation = without(patches, name, monkeypatch)
    assert violation.startswith(expected), violation


@pytest.mark.parametrize("name", EASY_TO_LOSE)
def test_without_its_condition_the_schedule_breaks_the_guarantee(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patches, expected = EASY_TO_LOSE[name]
    violation = without(patches, name, monkeypatch)
    assert violation.startswith(expected), violation


@pytest.mark.parametrize("name", STATES)
def test_an_impossible_state_is_noticed_before_anybody_sees_anything_of_it(name: str) -> None:
    found = caught(MUTATIONS[name])
    assert found is not None
    assert ": I " in found, found


def test_publisher_forgotten_before_its_subscriptions_breaks_the_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    """publisher_timeout must exceed subscription_timeout + 2 margin (protocol 12); `onceway.topology` refuses anything
    less. What is held of a publisher waits longer where it may work elsewhere, and that is enough here; without it this
    is not."""
    too_short = AddressConfig(subscription_timeout_s=40.0, publisher_timeout_s=10.0)

    def world(*arguments: Any, **named: Any) -> World:
        return World(*arguments, **{**named, "address": too_short})

    SCENARIOS["publisher_expired_before_subscribers"](world)
    monkeypatch.setattr(PublisherDirectory, "_may_work_out_of_sight", always(False))
    with pytest.raises(AssertionError, match=r"^G2"):
        SCENARIOS["publisher_expired_before_subscribers"](world)


def test_subscriber_that_does_not_drop_repeats_by_tag_gets_at_least_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What plain subscribers have to do for exactly once (protocol 14)."""

    def accept_and_forget(self: Subscriber, index: int = 0) -> None:
        accept(self, index)
        self.done_tags.clear()

    accept = Subscriber.accept
    monkeypatch.setattr(Subscriber, "accept", accept_and_forget)
    with pytest.raises(AssertionError, match=r"^G2"):
        SCENARIOS["repeats_dropped_by_tag"](World)


def test_where_own_messages_wait_behind_other_input_two_attachments_share_a_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A's own JOIN would be one message among others. The ranges are written so that nothing worse follows than a
    stream that is begun twice, which the egress notices (protocol 3.3.3)."""

    def enabled(self: World) -> list[Event]:
        waiting = [name for name, site in self.sites.items() if site is not None and site.router.core.post.to_self]
        return ENABLED(self) + [("own", name) for name in waiting]

    def do_own(self: World, name: str) -> None:
        core = self.site(name).router.core
        core._dispatch(name, core.post.to_self.popleft())

    monkeypatch.setattr(Core, "drain", always(None))
    monkeypatch.setattr(World, "enabled", enabled)
    monkeypatch.setattr(World, "do_own", do_own, raising=False)
    with unchecked(), pytest.raises(m.PeerProtocolError, match="flows already"):
        SCENARIOS["two_attaches_of_one_moment"](World)


ENABLED = World.enabled
