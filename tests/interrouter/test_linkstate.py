"""The map of the network: what is news, what is old, and who is no more."""

from __future__ import annotations

import random

from interrouter.linkstate import LinkState, LinkStateDatabase
from tests.interrouter.harness import Net


def database(name: str = "a", incarnation: int = 1) -> LinkStateDatabase:
    return LinkStateDatabase(name, incarnation, 0.0, refresh_s=30.0, max_age_s=100.0)


def state(
    name: str, incarnation: int, sequence: int, *links: int, former: tuple[int, ...] = (), born: float = 0.0
) -> LinkState:
    return LinkState(name, incarnation, sequence, tuple((link, 1) for link in links), former, born)


def test_news_is_flooded_once() -> None:
    known = database()
    first = state("b", 2, 5, 1)
    assert known.receive(first, 0.0) == [first]
    assert known.receive(state("b", 2, 5, 1), 0.0) == []
    assert known.receive(state("b", 2, 4, 1, 3), 0.0) == []
    later = state("b", 2, 6, 1, 3)
    assert known.receive(later, 0.0) == [later]


def test_a_repetition_that_says_the_same_changes_no_path() -> None:
    known = database()
    known.receive(state("b", 2, 5, 1), 0.0)
    known.changed = False
    assert known.receive(state("b", 2, 6, 1), 10.0)
    assert not known.changed


def test_a_link_counts_when_both_ends_name_it_and_costs_the_larger_of_two() -> None:
    known = database()
    known.originate({2: 1}, 0.0)
    assert known.graph()[1] == {}
    known.receive(LinkState("b", 2, 1, ((1, 4), (3, 1)), (), 0.0), 0.0)
    known.receive(LinkState("c", 3, 1, (), (), 0.0), 0.0)
    assert known.graph() == {1: {2: 4}, 2: {1: 4}, 3: {}}


def test_a_restarted_router_s_state_is_news_though_its_numbers_begin_again() -> None:
    known = database()
    known.receive(state("b", 2, 500, 1), 0.0)
    again = state("b", 22, 1, 1)
    assert known.receive(again, 0.0) == [again]


def test_a_restarted_router_buries_its_former_self_everywhere() -> None:
    restarted = database("b", 22)
    (own,) = restarted.receive(state("b", 2, 500, 1), 1.0)
    assert own.former == (2,)
    assert own.incarnation == 22
    other = database()
    other.receive(state("b", 2, 500, 1), 0.0)
    assert other.receive(own, 1.0) == [own]
    assert 2 not in other.others
    assert other.is_former(2)
    assert other.receive(state("b", 2, 501, 1), 2.0) == []


def test_nobody_is_buried_by_a_router_of_another_name() -> None:
    known = database()
    known.receive(state("b", 2, 5, 1), 0.0)
    known.receive(state("c", 3, 5, 1, former=(2,)), 0.0)
    assert 2 in known.others


def test_two_live_processes_of_one_name_are_noticed_and_do_not_flood_for_ever() -> None:
    one, other = database("b", 2), database("b", 22)
    said = [(other, one.own), (one, other.own)]
    for _ in range(20):
        if not said:
            break
        to, what = said.pop(0)
        said += [(one if to is other else other, news) for news in to.receive(what, 0.0) if news is to.own]
    assert not said
    assert one.conflict or other.conflict


def test_what_is_not_repeated_is_forgotten_at_its_age_even_if_it_comes_again() -> None:
    known = database()
    known.receive(state("b", 2, 5, born=-20.0), 0.0)
    known.tick(79.0)
    assert 2 in known.others
    known.tick(81.0)
    assert 2 not in known.others
    assert known.receive(state("b", 2, 5, born=-20.0), 81.0) == []


def test_our_own_state_is_repeated_when_it_is_due() -> None:
    known = database()
    assert not known.tick(29.0)
    assert known.tick(30.0)
    assert known.own.sequence == 2
    assert not known.tick(59.0)


def test_somebody_else_s_word_in_our_name_is_overtaken() -> None:
    known = database()
    (own,) = known.receive(state("a", 1, 70, 9), 0.0)
    assert own.sequence == 71
    assert own.links == ()


def test_flooding_ends_and_everybody_has_the_same_map() -> None:
    rng = random.Random(3)
    names = "abcdefgh"
    links = [(names[rng.randrange(i)], names[i]) for i in range(1, len(names))] + [("a", "h"), ("b", "g"), ("c", "f")]
    net = Net(names, sorted({(min(pair), max(pair), 1) for pair in links}), amqp=False)
    net.run_until(net.converged)
    before = {
        ends: [end.transfers_sent for end in link.connection.ends]
        for ends, link in net.links.items()
        if link.connection
    }
    net.run(0.4)
    for ends, link in net.links.items():
        assert link.connection is not None
        for end, was in zip(link.connection.ends, before[ends], strict=True):
            assert end.transfers_sent - was < 12
    maps = {
        name: sorted(
            (s.name, s.incarnation, s.sequence, s.links)
            for s in (site.network.database.own, *site.network.database.others.values())
        )
        for name, site in net.sites.items()
    }
    assert all(one == maps["a"] for one in maps.values())


def test_states_of_routers_that_went_are_forgotten() -> None:
    net = Net("abc", ["ab", "bc"], amqp=False)
    net.run_until(net.converged)
    net.kill("c")
    net.run(150.0)
    assert len(net["a"].network.database.others) == 1
    assert net["a"].network.database.own.sequence >= 4
    assert [what for _, what, peer in net["a"].log if peer == "b"] == ["up"]
