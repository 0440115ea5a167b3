"""Registry and exchange: every edge knows all publishers, and its watchers see changes before what they affect."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from typing import Any

import msgpack
import pytest

from edges.metadata import exchange
from edges.metadata.exchange import (
    ALIVE_S,
    FORGET_S,
    MESSAGE_BYTES,
    MOST_KEYS,
    PUBLISHER_OCTETS,
    SILENCE_S,
    Account,
    Asked,
    Deliver,
    LocalPublishers,
    Lost,
    NetworkPublishers,
    TooManyKeys,
    TooMuch,
    read,
)
from edges.metadata.registry import Query, Registry
from router.links.predicate import Predicate

TEXTS = [
    "has a",
    "not has a",
    "a = '1' and b = '1'",
    "a != b and b like '1'".replace("!= b", "!= '2'"),
    "b in ('1', '2') or has c",
]


class Counted(Predicate):
    """Counts how often it is evaluated."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        matches = self.matches
        self.evaluated = 0

        def counted(metadata: Any) -> bool:
            self.evaluated += 1
            return matches(metadata)

        self.matches = counted

    __slots__ = ("evaluated",)


def test_only_predicates_that_name_a_changed_key_are_evaluated_again() -> None:
    registry = Registry()
    room, unit = Counted("has Room"), Counted("Unit = 's'")
    registry.watch(room, "r")
    registry.watch(unit, "u")
    list(registry.put("p", metadata := {"Room": "410"}, (), diffs := {}))
    assert [(query.predicate, diff) for query, diff in diffs.items()] == [(room, (["p"], []))]
    assert (room.evaluated, unit.evaluated) == (1, 0)
    metadata["Unit"] = "s"
    list(registry.put("p", metadata, ["Unit"], {}))
    assert (room.evaluated, unit.evaluated) == (1, 1)


def test_a_new_publisher_is_matched_with_predicates_on_what_it_lacks() -> None:
    registry = Registry()
    query = registry.watch(Predicate("not has Room"), "w")
    list(registry.put("p", {"Unit": "s"}, (), {}))
    assert list(query.members) == ["p"]


def test_no_diff_where_nothing_changes() -> None:
    registry = Registry()
    registry.watch(Predicate("has Room"), "w")
    list(registry.put("p", metadata := {"Room": "410"}, (), {}))
    metadata["Room"] = "411"
    list(registry.put("p", metadata, ["Room"], diffs := {}))
    assert diffs == {}


def test_subscribers_with_one_predicate_share_it() -> None:
    registry = Registry()
    first, second = Counted("has Room"), Counted("has Room")
    query = registry.watch(first, 1)
    assert registry.watch(second, 2) is query
    list(registry.put("p", {"Room": "1"}, (), {}))
    assert (first.evaluated, second.evaluated) == (1, 0)
    registry.unwatch(query, 1)
    assert registry.queries == 1
    registry.unwatch(query, 2)
    assert registry.queries == 0
    registry.remove("p", diffs := {})
    assert diffs == {}


def test_a_new_predicate_looks_at_some_publishers_at_a_time() -> None:
    registry = Registry()
    for number in range(5):
        list(registry.put(f"{number}", {"a": f"{number % 2}"}, (), {}))
    query = registry.begin(Predicate("a = '0'"), "w")
    assert not registry.test(query, "w", 2)
    assert not query.watchers
    list(registry.put("1", {"a": "0"}, ["a"], {}))  # it was looked at
    list(registry.put("4", {"a": "1"}, ["a"], {}))  # it was not
    list(registry.put("new", {"a": "0"}, (), {}))
    registry.remove("2", {})
    registry.check_invariants()
    assert not registry.test(query, "w", 2)
    assert registry.test(query, "w", 2)
    assert set(query.members) == {"0", "1", "new"}
    registry.check_invariants()


def test_who_no_longer_waits_for_a_predicate_takes_it_with_him() -> None:
    registry = Registry()
    for number in range(3):
        list(registry.put(f"{number}", {"a": "1"}, (), {}))
    query = registry.begin(Predicate("has a"), "w")
    assert not registry.test(query, "w", 1)
    registry.unwatch(query, "w")
    assert registry.queries == 0


def test_the_publishers_of_one_client_have_a_bound_and_others_have_room() -> None:
    limit = 100 * PUBLISHER_OCTETS
    local = LocalPublishers("e", 1, lambda: 1, limit)
    one, other = Account(), Account()
    known: dict[str, None] = {}
    with pytest.raises(TooMuch, match="no more memory for the publishers of one client"):
        for number in range(100):
            local.publish(known, f"{number}", {}, b"", one)
    assert 5 < len(local) < 20
    assert one.octets <= limit // 8
    with pytest.raises(TooMuch):
        local.publish(known, "0", {"a": "x" * limit}, b"", one)
    local.publish({}, "another", {"a": "x"}, b"", other)
    local.disconnected(known)
    while local.waits:
        local.message(0.0)
    assert one.octets == 0
    assert local.octets == other.octets > 0
    assert len(local) == 1


def test_whoever_has_gone_is_told_in_parts_and_a_publisher_that_is_back_before_is_another() -> None:
    local, network = LocalPublishers("e", 1, lambda: 1), NetworkPublishers("e", 1, 0.0)
    network.joined = True
    query = network.registry.watch(Predicate("has a"), "w")
    known: dict[str, None] = {}
    count = 10 * MESSAGE_BYTES // 40
    for number in range(count):
        local.publish(known, f"{number:036}", {"a": "1"}, b"\xc0")
    while local.waits:
        network.receive(local.message(0.0).body, 0.0)  # type: ignore[union-attr]
    assert len(query.members) == count
    local.disconnected(known)
    last = f"{0:036}"
    local.publish({}, last, {"b": "1"}, b"\xc0")
    parts = 0
    while local.waits:
        out = local.message(0.0)
        assert len(out.body) < 2 * MESSAGE_BYTES
        network.receive(out.body, 0.0)
        parts += 1
    assert parts > 5
    assert not query.members
    assert len(local) == len(network.registry) == 1


def test_a_publisher_has_so_many_keys_and_no_more() -> None:
    local = LocalPublishers("e", 1, lambda: 1)
    local.publish(known := {}, "p", {str(n): n for n in range(MOST_KEYS)}, b"\xc0")
    local.publish(known, "p", {"0": None, "new": 1}, b"\xc0")
    before = local.waiting_bytes
    with pytest.raises(TooManyKeys, match="1025 keys"):
        local.publish(known, "p", {"one more": 1}, b"\xc0")
    assert local.waiting_bytes == before


def test_predicates_that_search_are_evaluated_one_by_one_and_others_may_have_turns() -> None:
    local, network = LocalPublishers("e", 1, lambda: 1), NetworkPublishers("e", 1, 0.0)
    network.joined = True
    watch = network.registry.watch
    queries = [watch(Predicate(f"a like 'b|x{n}'"), "w") for n in range(20)]
    left = watch(Predicate("a like 'b|x99'"), "left")
    local.publish({}, "p", {"a": "b"}, b"\xc0")
    steps = network.hear(read(body_of(local, 0.0)), 0.0)
    told: dict[Query, Any] = {}
    parts = 0
    for outputs in steps:
        parts += 1
        if parts == 10:
            network.registry.unwatch(left, "left")
            late = watch(Predicate("a = 'b'"), "late")
            assert list(late.members) == ["p"]
        for output in outputs:
            if isinstance(output, dict):
                assert not told.keys() & output.keys()
                told |= output
    assert parts > 20
    assert told == dict.fromkeys(queries, (["p"], []))
    network.registry.check_invariants()


def test_publishers_of_an_edge_that_leaves_go_in_parts() -> None:
    local, network = LocalPublishers("e", 1, lambda: 1), NetworkPublishers("f", 1, 0.0)
    for number in range(1000):
        local.publish({}, f"{number}", {"a": "b"}, b"\xc0")
    while local.waits:
        network.receive(body_of(local, 0.0), 0.0)
    query = network.registry.watch(Predicate("has a"), "w")
    local.leave()
    gone = [len(output[query][1]) for outputs in network.hear(read(body_of(local, 0.0)), 0.0) for output in outputs]  # type: ignore[index]
    assert sum(gone) == 1000
    assert max(gone) < 100


def test_an_edge_that_has_left_says_nothing_more() -> None:
    local, network = LocalPublishers("e", 1, lambda: 1), NetworkPublishers("f", 1, 0.0)
    network.joined = True
    known: dict[str, None] = {}
    local.publish(known, "p", {"a": "b"}, b"\xc0")
    local.leave()
    said = [body_of(local, 0.0)]
    local.disconnected(known)
    local.tell("asker")
    for now in (0.0, ALIVE_S):
        assert local.message(now) is None
    assert not local.waits
    assert not local.telling
    assert not any(isinstance(output, Lost) for output in network.receive(said[0], 0.0))


@pytest.mark.parametrize("character", ["a", "\u00e9", "\U0001f41d"])
def test_all_metadata_of_a_publisher_have_room_in_one_message(character: str) -> None:
    local = LocalPublishers("e", 1, lambda: 1, most=100_000)
    known: dict[str, None] = {}
    with pytest.raises(TooMuch, match="more than 100000 octets of metadata"):
        for number in range(1000):
            local.publish(known, "p", {f"{number}{character}": character * 1000}, b"\xc0")
    local.publish(known, "p", {f"0{character}": None}, b"\xc0")
    while local.waits:
        local.message(0.0)
    local.tell("asker")
    out = local.message(0.0)
    assert 50_000 < len(out.body) < 100_100


def body_of(local: LocalPublishers, now: float) -> bytes:
    out = local.message(now)
    return out.body


def test_what_is_no_message_of_an_edge_is_refused() -> None:
    network = NetworkPublishers("e", 1, 0.0)
    network.joined = True
    other = LocalPublishers("f", 1, lambda: 1)
    network.receive(body_of(other, 0.0), 0.0)
    other.publish({}, "p", {}, b"\xc0")
    good = body_of(other, 0.0)
    rng = random.Random(5)
    for _ in range(3000):
        bad = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        try:
            network.receive(bytes(bad[: rng.randint(0, len(bad))]), 0.0)
        except ValueError:
            pass
        network.registry.check_invariants()


def test_an_edge_that_is_silent_has_gone_and_is_back_when_it_is_heard() -> None:
    network, other = NetworkPublishers("e", 1, 0.0), LocalPublishers("f", 1, lambda: 1)
    query = network.registry.watch(Predicate("has a"), "w")
    other.publish({}, "p", {"a": "1"}, b"\xc0")
    network.receive(body_of(other, 0.0), 0.0)
    assert (list(query.members), network.edges) == (["p"], ("e", "f"))
    assert other.message(ALIVE_S / 2) is None
    assert list(network.tick(SILENCE_S - 1)) == []
    assert list(network.tick(SILENCE_S)) == [[{query: ([], ["p"])}]]
    assert list(network.tick(SILENCE_S + 1)) == []
    assert network.receive(body_of(other, SILENCE_S + 2), SILENCE_S + 2) == [{query: (["p"], [])}]


def test_an_edge_that_was_forgotten_makes_the_others_join_again() -> None:
    network, other = NetworkPublishers("e", 1, 0.0), LocalPublishers("f", 1, lambda: 1)
    network.receive(body_of(other, 0.0), 0.0)
    network.joined = True
    list(network.tick(FORGET_S))
    assert isinstance(network.receive(body_of(other, FORGET_S), FORGET_S)[0], Lost)


def test_a_new_process_of_an_edge_has_no_publishers_of_the_old_one() -> None:
    network = NetworkPublishers("e", 1, 0.0)
    query = network.registry.watch(Predicate("has a"), "w")
    old, new = LocalPublishers("f", 1, lambda: 1), LocalPublishers("f", 2, lambda: 2)
    old.publish({}, "p", {"a": "1"}, b"\xc0")
    network.receive(body_of(old, 0.0), 0.0)
    diffs, asked = network.receive(body_of(new, 0.0), 0.0)
    assert diffs == {query: ([], ["p"])}
    assert isinstance(asked, Asked)
    old.publish({}, "q", {"a": "1"}, b"\xc0")
    assert network.receive(body_of(old, 0.0), 0.0) == []


def test_the_edge_that_met_a_publisher_last_counts_everywhere() -> None:
    edges = {name: LocalPublishers(name, 1, lambda at=at: at) for at, name in enumerate("fg")}
    edges["f"].publish({}, "p", {"a": "1", "b": "1"}, b"\xc0")
    edges["g"].publish({}, "p", {"a": "2"}, b"\xc0")
    bodies = {name: body_of(edge, 0.0) for name, edge in edges.items()}
    for order in ("fg", "gf"):
        network = NetworkPublishers("e", 1, 0.0)
        one, two, b = (network.registry.watch(Predicate(text), "w") for text in ("a = '1'", "a = '2'", "has b"))
        for name in order:
            network.receive(bodies[name], 0.0)
        assert [list(query.members) for query in (one, two, b)] == [[], ["p"], []]
    gone = LocalPublishers("g", 1, lambda: 1)
    gone.publish(known := {}, "p", {"a": "2"}, b"\xc0")
    body_of(gone, 0.0)
    gone.disconnected(known)
    network.receive(body_of(gone, 0.0), 0.0)
    assert [list(query.members) for query in (one, two, b)] == [["p"], [], ["p"]]


class World:
    """Edges, and a network that keeps each sender's order to each receiver, and nothing else."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.clock = 0
        self.local: dict[str, LocalPublishers] = {}
        self.network: dict[str, NetworkPublishers] = {}
        self.links: dict[tuple[str, str], deque[tuple[bytes, dict[str, Any]]]] = {}
        self.connections: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
        self.truth: dict[str, dict[str, Any]] = {}
        self.home: dict[str, tuple[str, int]] = {}
        self.seen: dict[tuple[str, str], set[str]] = {}
        self.got: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
        self.said_at: list[str] = []  # at which edge each message was published
        for name in ("e0", "e1"):
            self.add(name)

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def add(self, name: str) -> None:
        self.local[name] = LocalPublishers(name, self.tick(), self.tick)
        self.network[name] = NetworkPublishers(name, self.clock, self.now)
        for other in self.local:
            self.links[name, other] = deque()
            self.links[other, name] = deque()

    def step(self) -> None:
        rng = self.rng
        what = rng.random()
        name = rng.choice(sorted(self.local))
        if what < 0.35:
            self.publish()
        elif what < 0.4 and len(self.local) < 4:
            self.add(f"e{len(self.local)}")
        elif what < 0.44 and self.home:
            home = self.home[rng.choice(sorted(self.home))]
            known = self.connections.pop(home)
            self.local[home[0]].disconnected(known)
            for uuid in known:
                del self.home[uuid]
                del self.truth[uuid]
        elif what < 0.5:
            self.subscribe(name)
        elif what < 0.7:
            self.say(name)
        else:
            links = sorted(link for link, queue in self.links.items() if queue)
            if links:
                self.deliver(*rng.choice(links))

    def publish(self) -> None:
        rng = self.rng
        uuid = f"p{rng.randrange(6)}"
        joined = sorted(name for name, network in self.network.items() if network.joined)
        if not joined:
            return
        home = self.home.setdefault(uuid, (rng.choice(joined), rng.randrange(2)))
        changes = {rng.choice("abc"): rng.choice(["1", "2", None]) for _ in range(rng.randrange(3))}
        truth = self.truth.setdefault(uuid, {})
        truth.update(changes)
        for key in [key for key, value in truth.items() if value is None]:
            del truth[key]
        self.local[home[0]].publish(self.connections[home], uuid, changes, msgpack.packb(len(self.said_at)))
        self.said_at.append(home[0])

    def subscribe(self, name: str) -> None:
        network = self.network[name]
        text = self.rng.choice(TEXTS)
        if network.joined and (name, text) not in self.seen:
            query = network.registry.watch(Predicate(text), text)
            self.seen[name, text] = set(query.members)

    def say(self, name: str) -> None:
        out = self.local[name].message(self.now)
        if out is not None:
            unheard = {"by": set(self.local), "out": out, "name": name, "asked": set()}
            for other in self.local:
                self.links[name, other].append((out.body, unheard))

    def deliver(self, sender: str, receiver: str) -> None:
        body, unheard = self.links[sender, receiver].popleft()
        later = False
        for output in self.network[receiver].receive(body, self.now):
            if isinstance(output, Asked):
                self.local[receiver].tell((receiver, unheard))
                later = True
            elif isinstance(output, Deliver):
                for query in output.queries:
                    for text in query.watchers:
                        assert output.uuid in self.seen[receiver, text], "a message before its diff"
                        self.got[receiver, text].append((output.uuid, msgpack.unpackb(output.value)))
            else:
                for query, (new, gone) in output.items():
                    for text in query.watchers:
                        seen = self.seen[receiver, text]
                        assert not seen & set(new)
                        assert seen >= set(gone)
                        seen |= set(new)
                        seen -= set(gone)
        if not later:
            self.heard(receiver, unheard)

    def heard(self, receiver: str, unheard: dict[str, Any]) -> None:
        unheard["by"].discard(receiver)
        if not unheard["by"]:
            for who, asking in unheard["out"].told:
                self.heard(who, asking)
            if unheard["out"].joins:
                self.network[unheard["name"]].joined = True

    def settle(self) -> None:
        for _ in range(100_000):
            busy = [name for name, local in self.local.items() if local.waiting_bytes or local.telling]
            for name in busy:
                self.say(name)
            links = sorted(link for link, queue in self.links.items() if queue)
            if not links and not busy:
                return
            if links:
                self.deliver(*self.rng.choice(links))
        raise AssertionError("it does not come to rest")


@pytest.mark.parametrize("seed", range(60))
def test_every_edge_comes_to_know_all_publishers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MESSAGE_BYTES", 60)  # so that telling takes several messages
    world = World(random.Random(seed))
    for _ in range(400):
        world.step()
        for network in world.network.values():
            network.registry.check_invariants()
    world.settle()
    assert all(network.joined for network in world.network.values())
    for (name, text), seen in world.seen.items():
        matching = {uuid for uuid, metadata in world.truth.items() if Predicate(text).matches(metadata)}
        assert seen == matching == set(world.network[name].registry.watch(Predicate(text), "check").members), (
            name,
            text,
        )
    for got in world.got.values():
        assert len(set(got)) == len(got), "a message twice"
        by_publisher = defaultdict(list)
        for uuid, number in got:
            by_publisher[uuid, world.said_at[number]].append(number)
        assert all(numbers == sorted(numbers) for numbers in by_publisher.values())


def test_the_random_worlds_reach_what_they_are_for() -> None:
    worlds = [World(random.Random(seed)) for seed in range(10)]
    for world in worlds:
        for _ in range(400):
            world.step()
    assert sum(len(world.local) > 2 for world in worlds) > 5
    assert sum(sum(map(len, world.got.values())) for world in worlds) > 100


def test_who_asked_is_answered_also_when_the_last_publisher_was_told_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MESSAGE_BYTES", 10)
    local = LocalPublishers("e", 1, lambda: 1)
    local.publish({}, "p", {}, b"\xc0")
    while local.waiting_bytes:
        assert local.message(0.0) is not None
    local.tell("asker")
    told = []
    while local.telling:
        out = local.message(0.0)
        assert out is not None, "nothing to say, and somebody waits"
        told += out.told
    assert told == ["asker"]
