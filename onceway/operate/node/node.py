"""The management node of one router: requests of clients to answers.

Operations on the node itself are QUERY, GET-TYPES, GET-ATTRIBUTES, GET-OPERATIONS, GET-ANNOTATIONS and GET-MGMT-NODES,
those on an entity READ and, for who may act, DELETE. Settings stand in the topology file, so that all routers have the
same: CREATE and UPDATE are not implemented, and say so. Status codes are those of HTTP.

Requests are answered one after the other. What a query finds is made from a router's reports, and written, in pieces
(`operate.overview`); tools ask for it in pages, with `offset` and `count`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import Any, Final

from amqp10.encoder import encode_list, encode_value, register_encoder
from amqp10.errors import UNAUTHORIZED_ACCESS
from amqp10.sections import Message
from onceway.base import waits
from onceway.base.logs import latest
from onceway.operate.actions import Actions
from onceway.operate.control import ControlError
from onceway.operate.node.entities import ATTRIBUTES, DELETED, PREFIX, Entities, Entity, Making, connections_of
from onceway.operate.node.foreign import NONE, PREFIXES, TYPES, Fixed
from onceway.operate.overview import Overview
from onceway.serve.server import RouterServer
from router.links.management import Request, answer_to, encoded, failed
from router.policies import Identity
from router.router import Router

NODE: Final = "org.amqp.management"
MOST: Final = 10_000  # entities in one answer
MOST_OCTETS: Final = 4 << 20  # of them
COMMON: Final = ("identity", "name", "type")
ON_NODE: Final = (
    "QUERY", "GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-ANNOTATIONS", "GET-MGMT-NODES", "GET-LOG",
)  # fmt: skip
_TEXTS: Final = {200: "OK", 204: "No Content"}


class Written(bytes):
    """A value as its octets."""


register_encoder(Written, lambda value, depth: bytes(value))


class Refused(Exception):
    """What an answer says in place of a result."""

    def __init__(self, status: int, text: str, condition: str | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.condition = condition


class Node:
    """`router.links.management.ManagementNode` of the router of `server`."""

    def __init__(self, server: RouterServer, overview: Overview, actions: Actions) -> None:
        self._server = server
        self._entities = Entities(server)
        self._overview = overview
        self._actions = actions
        self._turn = waits.OWN_WORK(asyncio.Lock())
        self._answering: set[asyncio.Task[None]] = set()  # each link has a bound

    def start(self) -> None:
        self._server.router.nodes.own = self

    async def stop(self) -> None:
        self._server.router.nodes.own = None
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    # --- ManagementNode

    def may_read(self, who: Identity) -> bool:
        """Those who may read the admin listener, or act. Where the file names nobody: everyone, unless it has policies,
        which allow only what they name."""
        rules = self._server.topology.admin
        if rules.lets_act(*who) or rules.allows(*who):
            return True
        return not rules.closed and self._server.router.config.policies is None

    def ask(self, request: Request) -> None:
        task = asyncio.create_task(self._answer_in_turn(request))  # of its own: the next is answered if this one fails
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    # --- requests

    async def _answer_in_turn(self, request: Request) -> None:
        async with self._turn:
            work = asyncio.ensure_future(self._answer(request.who, request.message))
            try:
                await asyncio.wait((work,))
            finally:
                work.cancel()  # where this task is
            answer = self._server.router.border.ask(failed(request.message).encode(), work.result)
            self._server.operate(lambda router: request.answer(answer))

    async def _answer(self, who: Identity, message: Message) -> bytes:
        given, condition = message.application_properties or {}, None
        try:
            status, body = await self._do(who, given, message.value)
            text = _TEXTS[status]
        except Refused as error:
            status, text, body, condition = error.status, str(error), None, error.condition
        except ControlError as error:
            status, text, body = error.status, str(error), None
        return encoded(self._server.router.border, message, answer_to(message, status, text, body, condition))

    async def _do(self, who: Identity, given: Mapping[str, Any], body: Any) -> tuple[int, Any]:
        operation = given.get("operation")
        if operation in ON_NODE:
            return 200, await self._on_node(operation, given, body)
        if operation == "READ":
            return 200, await self._read(given)
        if operation == "DELETE":
            return await self._delete(who, given)
        if operation in ("CREATE", "UPDATE"):
            raise Refused(501, f"{operation}: settings stand in the topology file; change it, and onceway reload")
        known = ", ".join((*ON_NODE, "READ", "DELETE"))
        raise Refused(501 if isinstance(operation, str) else 400, f"operation: {operation!r:.60} is none of {known}")

    async def _on_node(self, operation: str, given: Mapping[str, Any], body: Any) -> Any:
        if operation == "GET-MGMT-NODES":
            nodes = [f"amqp:/_topo/0/{name}/$management" for name in self._server.router.config.routers]
            return nodes if len(nodes) > 1 else []  # none but the one that is asked
        if operation == "GET-LOG":
            limit = _number(given, "limit")
            lines = [[event, level, text, "", 0, at] for at, level, event, text in latest()]
            return lines[-limit:] if limit else lines
        wanted = given.get("entityType")
        if operation == "QUERY":
            return await self._query(wanted, given, body)
        kinds = [_known(wanted)] if wanted else [f"{PREFIX}{kind}" for kind in ATTRIBUTES]
        if operation == "GET-ATTRIBUTES":
            return {kind: list(_attributes(kind)) for kind in kinds}
        if operation == "GET-OPERATIONS":
            return {kind: ["READ", *(["DELETE"] if _ours(kind) in DELETED else [])] for kind in kinds}
        return {kind: [] for kind in kinds}  # no type extends another, or has annotations

    async def _query(self, wanted: Any, given: Mapping[str, Any], body: Any) -> Any:
        kinds = [_known(wanted)] if wanted else [f"{PREFIX}{kind}" for kind in ATTRIBUTES]
        names = body.get("attributeNames") if isinstance(body, Mapping) else None
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise Refused(400, "body: attributeNames is no list of strings")
        if not names:
            names = list(dict.fromkeys((*COMMON, *(name for kind in kinds for name in _attributes(kind)))))
        elif all(kind not in _OURS for kind in kinds):  # their tools look whether there is such an attribute
            names = [name for name in names if any(name in _attributes(kind) for kind in kinds)]
        offset, count = _number(given, "offset") or 0, _number(given, "count")
        stop = None if count is None else offset + count
        (rows, number), _ = await self._overview.pace.run(self._rows(kinds, names, offset, stop))
        return {"attributeNames": names, "results": rows, "count": number}

    def _rows(
        self, kinds: list[str], names: list[str], start: int, stop: int | None
    ) -> Generator[None, None, tuple[Written, int]]:
        """Those from `start` to `stop`, and how many they are. What is not among them is not made."""
        rows: list[bytes] = []
        octets = before = 0
        for kind in [each for each in kinds if _ours(each)]:
            if stop is not None and stop <= before:
                break
            low, high = max(start - before, 0), None if stop is None else stop - before
            chosen, number = yield from self._entities.choose(_ours(kind), low, high)
            before += number
            many = len(rows) + sum([len(parts) for _, parts in chosen])
            if many > MOST:
                raise Refused(400, f"there are {many} of them: ask for at most {MOST}, with offset and count")
            for owner, part in ((owner, part) for owner, parts in chosen for part in parts):
                found = yield from self._entities.make(_ours(kind), owner, part)
                if found is None:  # it has gone meanwhile
                    continue
                entity = _dressed(kind, found)
                rows.append(encode_value([entity.get(name) for name in names]))
                octets += len(rows[-1])
                if octets > MOST_OCTETS:
                    text = (
                        f"{len(rows)} of them take more than {MOST_OCTETS} octets: ask for fewer, with offset and count"
                    )
                    raise Refused(400, text)
                yield
        return Written(encode_list(rows)), len(rows)

    async def _read(self, given: Mapping[str, Any]) -> Entity:
        wanted, key = given.get("type"), "identity" if given.get("identity") is not None else "name"
        if given.get(key) is None:
            raise Refused(400, "identity or name is missing")
        kinds = [_known(wanted)] if wanted else [f"{PREFIX}{kind}" for kind in ATTRIBUTES]
        found, _ = await self._overview.pace.run(self._find(kinds, key, given[key]))
        if found is None:
            raise Refused(404, f"{wanted or 'any type'}: no entity with {key} {given[key]!r:.200}")
        return found

    def _find(self, kinds: list[str], key: str, value: Any) -> Making:
        if not isinstance(value, str):
            return None
        for kind in [each for each in kinds if _ours(each)]:
            # their name of an address has a letter before ours
            for each in (value, value[1:]) if key == "name" and kind not in _OURS else (value,):
                found = yield from self._entities.find(_ours(kind), key, each)
                entity = None if found is None else _dressed(kind, found)
                if entity is not None and entity[key] == value:
                    return entity
        return None

    async def _delete(self, who: Identity, given: Mapping[str, Any]) -> tuple[int, Any]:
        kind = _ours(_known(given.get("type")))
        if kind not in DELETED:
            raise Refused(501, f"{given.get('type')}: only {', '.join(DELETED)} can be deleted")
        if not self._server.topology.admin.lets_act(*who):
            text = f"user {who.user!r:.60} may not act here: admin.act does not name them"
            raise Refused(403, text, UNAUTHORIZED_ACCESS)
        entity = await self._read({**given, "type": f"{PREFIX}{kind}"})
        self._server.log.warning(
            "deleted_by_management", "user {user} deletes {kind} {identity}", user=who.user, kind=kind,
            identity=entity["identity"],
        )  # fmt: skip
        if kind == "connection":
            self._close(entity["identity"])
            return 204, {}
        names = {"address": entity["address"], "container": entity["container"], "name": entity["link"]}
        act = {
            "link": self._actions.close_link,
            "subscription": self._actions.drop_subscription,
            "publisher": self._actions.forget_publisher,
        }[kind]
        await waits.OWN_WORK(act(names))
        return 204, {}

    def _close(self, identity: str) -> None:
        found = [one for one in connections_of(self._server) if one is not None and one.log.address == identity]
        if not found:
            raise Refused(501, f"{identity}: connections of MQTT cannot be closed here; onceway admin connection close")

        def close(router: Router) -> None:
            for connection in found:
                connection.send_away("closed by the operator")

        self._server.operate(close)


_OURS: Final = {f"{PREFIX}{kind}": kind for kind in ATTRIBUTES}


def _theirs(kind: str) -> str | None:
    """The name of a type of theirs without its prefix; None if it is one of ours."""
    return next((kind[len(prefix) :] for prefix in PREFIXES if kind.startswith(prefix)), None)


def _dressed(kind: str, entity: Entity) -> Entity:
    """One of ours by the attributes of its type, ours or theirs."""
    name = _theirs(kind)
    if name is None:
        return {**entity, "type": kind}
    values = {key: _value(entity, how) for key, how in TYPES[name].attributes.items()}
    return {"identity": entity["identity"], "name": entity["name"], "type": kind, **values}


def _value(entity: Entity, how: Any) -> Any:
    if isinstance(how, Fixed):
        return how.value
    return entity[how] if isinstance(how, str) else how(entity)


def _known(kind: Any) -> str:
    if isinstance(kind, str) and (kind in _OURS or (name := _theirs(kind)) in TYPES or name in NONE):
        return str(kind)
    raise Refused(404, f"type {kind!r:.100} is not known; GET-TYPES lists them")


def _ours(kind: str) -> str:
    """Of which entities this type has; empty: of none."""
    name = _theirs(kind)
    return _OURS[kind] if name is None else TYPES[name].ours if name in TYPES else ""


def _attributes(kind: str) -> tuple[str, ...]:
    name = _theirs(kind)
    if name is None:
        return (*COMMON, *ATTRIBUTES[_OURS[kind]])
    return tuple(dict.fromkeys((*COMMON, *TYPES[name].attributes))) if name in TYPES else COMMON


def _number(given: Mapping[str, Any], key: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(400, f"{key}: {value!s:.60} is no number of entities")
    return int(value)
