"""Two unsettled deliveries of one link have different tags (AMQP 2.6.12, protocol 6.1.7)."""

from __future__ import annotations

import random

import pytest

from router.config import AddressConfig
from router.core.ports import UNIQUE_TAGS
from router.core.repeated_tags import ENOUGH, UsedTags
from tests.router.harness import Mesh


@pytest.mark.parametrize("batches", [(("m0", "m1"), ("m0",)), (("m5",), ("m3", "m3")), (("m5", "m4"), ("m6", "m5"))])
def test_a_tag_of_two_unsettled_deliveries_detaches_the_link(batches: tuple[tuple[str, ...], ...]) -> None:
    """Protocol 6.1.7."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    *before, last = batches
    for batch in before:
        publisher.send(*batch)
    publisher.send(*last)
    assert publisher.condition == "amqp:invalid-field"
    assert subscriber.bodies() == [tag for batch in before for tag in batch], "nothing of that batch was taken"
    again = mesh.publisher("a")
    again.send("m0", "m1")
    assert again.condition is None


def test_a_tag_may_be_used_again_once_it_is_settled() -> None:
    mesh = Mesh("ab")
    mesh.subscriber("b")
    publisher = mesh.publisher("a")
    for i in range(5):
        publisher.send("m1", "m0")
        publisher.settle(2 * i, 2 * i + 1)
    assert publisher.condition is None
    assert sorted(publisher.told) == list(range(10))
    mesh.assert_settled()


def test_a_publisher_in_mode_first_uses_a_tag_again_once_it_has_its_outcome() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a", mode_first=True)
    publisher.send("m0")
    subscriber.accept(subscriber.got[0].id)
    publisher.send("m0")
    assert publisher.condition is None
    publisher.send("m0")
    assert publisher.condition == "amqp:invalid-field"


def test_unique_tags_and_settled_transfers_may_repeat() -> None:
    mesh = Mesh("ab")
    mesh.subscriber("b", accepts=False)
    unique = mesh.publisher("a", "u", unsettled=UNIQUE_TAGS)
    unique.send("m0", "m0")
    settled = mesh.publisher("a", "p")
    settled.send("m0", settled=True)
    settled.send("m0", settled=True)
    assert (unique.condition, settled.condition) == (None, None)


def test_what_was_held_is_looked_at_when_it_is_taken() -> None:
    mesh = Mesh("ab", address=AddressConfig())
    subscriber = mesh.subscriber("b", accepts=False)
    mesh.held.add(("b", "a"))
    publisher = mesh.publisher("a")
    publisher.send("m0")
    publisher.send("m0")
    assert publisher.condition is None
    mesh.held.clear()
    mesh.run()
    assert publisher.condition == "amqp:invalid-field"
    assert subscriber.bodies() == ["m0"]


@pytest.mark.parametrize("seed", range(30))
def test_it_finds_what_a_plain_set_finds(seed: int) -> None:
    rng = random.Random(seed)
    used, unsettled = UsedTags(), dict[bytes, None]()
    counts, number = rng.random() < 0.5, 0
    for _ in range(rng.choice([20, 3 * ENOUGH])):
        batch: list[bytes] = []
        for _ in range(rng.randrange(1, 4)):
            number += 1
            batch.append(b"%d" % number if counts or rng.random() < 0.9 else b"%d" % rng.randrange(number))
        counts = counts and rng.random() > 0.01
        expected = next((tag for i, tag in enumerate(batch) if tag in unsettled or tag in batch[:i]), None)
        found = None if used.rise(batch) else used.find_repeat(batch, lambda: list(unsettled))
        assert found == expected
        if expected is not None:
            return
        unsettled.update(dict.fromkeys(batch))
        for tag in list(unsettled)[: rng.randrange(3)]:
            del unsettled[tag]
