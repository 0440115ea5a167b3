"""Which publishers match which predicates, kept up to date change by change.

A change of metadata evaluates the predicates that name a changed key, and no others. Of those that need a key to have
one of some values (`Room = "7" and ...`), it evaluates those that need the value that is there, and those that matched
before. Subscribers with the same predicate share one query.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import islice
from operator import length_hint
from typing import Final

from router.links.predicate import Metadata, Predicate, as_text


class Query:
    """A predicate that somebody watches.

    Attributes:
        members: The publishers that match it.
        watchers: Who watches it.
    """

    __slots__ = ("matches", "members", "predicate", "untested", "waiting", "watchers")

    def __init__(self, predicate: Predicate, untested: Iterator[str]) -> None:
        self.predicate: Final = predicate
        self.matches: Final = predicate.matches
        self.members: dict[str, None] = {}
        self.watchers: dict[Hashable, None] = {}
        self.waiting: dict[Hashable, None] = {}  # those who will watch it when it was tested
        self.untested = untested  # publishers that were there before it


SEARCH: Final = 64  # steps that a predicate with regular expressions counts for

Diff = tuple[list[str], list[str]]  # publishers that match now, publishers that do not any more
Diffs = dict[Query, Diff]


class _Publisher:
    __slots__ = ("metadata", "queries")

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.queries: dict[Query, None] = {}


class Registry:
    """Publishers and queries. Whoever calls `put` may change the metadata in place and then names what changed."""

    def __init__(self) -> None:
        self._publishers: dict[str, _Publisher] = {}
        self.gone = 0  # publishers so far
        self._queries: dict[str, Query] = {}
        # key that is named -> key whose value is needed -> that value -> queries; None and None: none is needed
        self._by_key: dict[str, dict[str | None, dict[str | None, dict[Query, None]]]] = {}
        self._without_keys: dict[Query, None] = {}  # those that match a publisher with none of their keys

    def __len__(self) -> int:
        return len(self._publishers)

    @property
    def queries(self) -> int:
        """How many different predicates are watched."""
        return len(self._queries)

    def watch(self, predicate: Predicate, watcher: Hashable) -> Query:
        """From now on this watcher is named in diffs; the query's members are what matches now."""
        query = self.begin(predicate, watcher)
        while not self.test(query, watcher, len(self._publishers)):
            pass
        return query

    def begin(self, predicate: Predicate, watcher: Hashable) -> Query:
        """Somebody wants to watch it, and does so when `test` says so. Changes are noticed from now on."""
        query = self._queries.get(predicate.text)
        if query is None:
            query = self._queries[predicate.text] = Query(predicate, iter(list(self._publishers)))
            needed, values = _needs(predicate)
            for key in predicate.keys:
                by_value = self._by_key.setdefault(key, {}).setdefault(needed, {})
                for value in values:
                    by_value.setdefault(value, {})[query] = None
            if predicate.matches_nothing:
                self._without_keys[query] = None
        query.waiting[watcher] = None
        return query

    def test(self, query: Query, watcher: Hashable, most: int) -> bool:
        """Looks which of the publishers that were there match, as many as `most`; True: it is watched now."""
        for uuid in islice(query.untested, most):
            publisher = self._publishers.get(uuid)
            if publisher is not None and query.matches(publisher.metadata):
                query.members[uuid] = None
                publisher.queries[query] = None
        if length_hint(query.untested):
            return False
        query.watchers[watcher] = None
        query.waiting.pop(watcher, None)
        return True

    def unwatch(self, query: Query, watcher: Hashable) -> None:
        """The last watcher takes the query with it."""
        query.watchers.pop(watcher, None)
        query.waiting.pop(watcher, None)
        if query.watchers or query.waiting:
            return
        del self._queries[query.predicate.text]
        self._without_keys.pop(query, None)
        needed, values = _needs(query.predicate)
        for key in query.predicate.keys:
            by_value = self._by_key[key][needed]
            for value in values:
                del by_value[value][query]
                if not by_value[value]:
                    del by_value[value]
            if not by_value:
                del self._by_key[key][needed]
                if not self._by_key[key]:
                    del self._by_key[key]
        for uuid in query.members:
            del self._publishers[uuid].queries[query]

    def put(self, uuid: str, metadata: Metadata, changed: Iterable[str], diffs: Diffs) -> Iterator[int]:
        """A publisher is new, or its metadata have changed. It takes as many steps as predicates are concerned, which
        it yields before they are taken: a search counts as SEARCH of them. Between two of them somebody else may have a
        turn, who may watch and not watch, but not call `put` or `remove`.

        Args:
            metadata: All of it.
            changed: The keys that differ from what the registry was told before; ignored for a new publisher.
            diffs: What this changes is added here.
        """
        publisher = self._publishers.get(uuid)
        concerned: dict[Query, None] = {}
        if publisher is None:
            publisher = self._publishers[uuid] = _Publisher(metadata)
            concerned.update(self._without_keys)
            changed = metadata
        publisher.metadata = metadata
        changed = [key for key in changed if key in self._by_key]
        for key in changed:
            for needed, by_value in self._by_key[key].items():
                value = None if needed is None else as_text(metadata.get(needed))
                concerned.update(by_value.get(value, ()))
        for query in publisher.queries if changed else ():
            if not query.predicate.keys.isdisjoint(changed):
                concerned[query] = None
        matched = publisher.queries
        for query in concerned:
            yield SEARCH if query.predicate.searches else 1
            if not (query.watchers or query.waiting):
                continue  # nobody watches it any more
            matches = query.matches(metadata)
            if matches is (query in matched):
                continue
            if matches:
                query.members[uuid] = matched[query] = None
            else:
                del query.members[uuid], matched[query]
            diffs.setdefault(query, ([], []))[not matches].append(uuid)

    def remove(self, uuid: str, diffs: Diffs) -> None:
        """A publisher has gone away."""
        self.gone += 1
        for query in self._publishers.pop(uuid).queries:
            del query.members[uuid]
            diffs.setdefault(query, ([], []))[1].append(uuid)

    def queries_of(self, uuid: str) -> Iterable[Query]:
        """Whose watchers get this publisher's messages."""
        return self._publishers[uuid].queries

    def check_invariants(self) -> None:
        """Compares what is kept up to date with what evaluating everything gives."""
        for query in self._queries.values():
            assert query.watchers or query.waiting, "a query without watchers was kept"
            if length_hint(query.untested):
                continue
            matching = {uuid for uuid, each in self._publishers.items() if query.predicate.matches(each.metadata)}
            assert matching == query.members.keys(), f"members of {query.predicate.text} differ"
        for uuid, publisher in self._publishers.items():
            assert all(uuid in query.members for query in publisher.queries)
            assert all(query in publisher.queries for query in self._queries.values() if uuid in query.members)


def _needs(predicate: Predicate) -> tuple[str | None, Iterable[str | None]]:
    return predicate.needs if predicate.needs is not None else (None, (None,))
