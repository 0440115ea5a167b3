"""Which publishers match which predicates, kept up to date change by change.

A change of metadata evaluates the predicates that name a changed key, and no others. Subscribers with the same
predicate share one query.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from router.links.predicate import Metadata, Predicate


class Query:
    """A predicate that somebody watches.

    Attributes:
        members: The publishers that match it.
        watchers: Who watches it.
    """

    __slots__ = ("members", "predicate", "watchers")

    def __init__(self, predicate: Predicate) -> None:
        self.predicate: Final = predicate
        self.members: dict[str, None] = {}
        self.watchers: dict[Hashable, None] = {}


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
        self._queries: dict[str, Query] = {}
        self._by_key: dict[str, dict[Query, None]] = {}
        self._without_keys: dict[Query, None] = {}  # those that match a publisher with none of their keys

    def __len__(self) -> int:
        return len(self._publishers)

    @property
    def queries(self) -> int:
        """How many different predicates are watched."""
        return len(self._queries)

    def watch(self, predicate: Predicate, watcher: Hashable) -> Query:
        """From now on this watcher is named in diffs; the query's members are what matches now."""
        query = self._queries.get(predicate.text)
        if query is None:
            query = self._queries[predicate.text] = Query(predicate)
            for key in predicate.keys:
                self._by_key.setdefault(key, {})[query] = None
            if predicate.matches_nothing:
                self._without_keys[query] = None
            for uuid, publisher in self._publishers.items():
                if predicate.matches(publisher.metadata):
                    query.members[uuid] = None
                    publisher.queries[query] = None
        query.watchers[watcher] = None
        return query

    def unwatch(self, query: Query, watcher: Hashable) -> None:
        """The last watcher takes the query with it."""
        del query.watchers[watcher]
        if query.watchers:
            return
        del self._queries[query.predicate.text]
        self._without_keys.pop(query, None)
        for key in query.predicate.keys:
            queries = self._by_key[key]
            del queries[query]
            if not queries:
                del self._by_key[key]
        for uuid in query.members:
            del self._publishers[uuid].queries[query]

    def put(self, uuid: str, metadata: Metadata, changed: Iterable[str], diffs: Diffs) -> None:
        """A publisher is new, or its metadata have changed.

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
        for key in changed:
            concerned.update(self._by_key.get(key, ()))
        for query in concerned:
            matches = query.predicate.matches(metadata)
            if matches and uuid not in query.members:
                query.members[uuid] = None
                publisher.queries[query] = None
                diffs.setdefault(query, ([], []))[0].append(uuid)
            elif not matches and uuid in query.members:
                del query.members[uuid]
                del publisher.queries[query]
                diffs.setdefault(query, ([], []))[1].append(uuid)

    def remove(self, uuid: str, diffs: Diffs) -> None:
        """A publisher has gone away."""
        for query in self._publishers.pop(uuid).queries:
            del query.members[uuid]
            diffs.setdefault(query, ([], []))[1].append(uuid)

    def queries_of(self, uuid: str) -> Iterable[Query]:
        """Whose watchers get this publisher's messages."""
        return self._publishers[uuid].queries

    def check_invariants(self) -> None:
        """Compares what is kept up to date with what evaluating everything gives."""
        for query in self._queries.values():
            assert query.watchers, "a query without watchers was kept"
            matching = {uuid for uuid, each in self._publishers.items() if query.predicate.matches(each.metadata)}
            assert matching == query.members.keys(), f"members of {query.predicate.text} differ"
        for uuid, publisher in self._publishers.items():
            assert all(uuid in query.members for query in publisher.queries)
            assert all(query in publisher.queries for query in self._queries.values() if uuid in query.members)
