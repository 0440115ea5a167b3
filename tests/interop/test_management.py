"""`$management` as proton asks: entities, answers at other routers, and who may read and act."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from proton import Delivery, Message
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, LinkDetached, SendException, SyncRequestResponse

from onceway.access.users import User, Users, load_users, store_users, with_password
from onceway.operate.node.entities import ATTRIBUTES
from onceway.operate.node.foreign import TYPES
from tests.guarded import PASSWORD, Guarded

Call = Callable[..., Message]
NAMES = ("identity", "name", "type")


def asking(connection: BlockingConnection, node: str = "$management") -> Call:
    client = SyncRequestResponse(connection, node)

    def call(operation: str, body: Any = None, **properties: Any) -> Message:
        asked = {"operation": operation, **properties}
        answer: Message = client.call(Message(body=body if body is not None else {}, properties=asked))
        return answer

    return call


def rows(answer: Message) -> list[dict[str, Any]]:
    assert answer.properties["statusCode"] == 200, answer.properties
    return [dict(zip(answer.body["attributeNames"], row, strict=True)) for row in answer.body["results"]]


def says(answer: Message, status: int, text: str) -> bool:
    told = answer.properties
    return bool(told["statusCode"] == status and text in told["statusDescription"])


class Named(LinkOption):  # type: ignore[misc]
    """The name of a receiving link's target, to which answers are sent."""

    def apply(self, link: Any) -> None:
        link.target.address = "answers"


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    guarded = Guarded(tmp_path)
    users = load_users(guarded.users)
    more = {"bob": User(with_password(PASSWORD), ("watch",)), "mallory": User(with_password(PASSWORD), ())}
    store_users(guarded.users, Users({**users.by_name, **more}, users.secret))
    document = yaml.safe_load(guarded.network.topology_path.read_text())
    document["admin"] = {"tls": "outside", "groups": ["watch"], "act": {"groups": ["ops"]}}
    document["sasl"]["plain_without_tls"] = True
    guarded.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
    return guarded


def test_who_may_read_reads_and_who_may_act_deletes(guarded: Guarded) -> None:
    def connect(user: str, router: str = "a") -> BlockingConnection:
        url = guarded.network[router].address
        return BlockingConnection(url, timeout=30, user=user, password=PASSWORD, allowed_mechs="PLAIN")

    def talk() -> None:
        mallorys = connect("mallory")
        with pytest.raises(LinkDetached, match=r"unauthorized-access.*user 'mallory' may not read here"):
            mallorys.create_sender("$management")
        bobs, alices = connect("bob"), connect("alice")
        connect("bob").create_receiver("orders", name="billing")
        reads, acts = asking(bobs), asking(alices, "_topo/0/a/$management")
        one = {"type": "onceway.link", "name": "billing"}
        found = reads("READ", **one).body
        assert (found["address"], found["role"], found["container"][:4]) == ("orders", "receiver", "bob|")
        refused = reads("DELETE", **one)
        assert says(refused, 403, "'bob' may not act")
        assert refused.properties["errorCondition"] == "amqp:unauthorized-access"
        for kind, name in (("link", "billing"), ("subscription", "audit")):
            connect("bob").create_receiver("orders", name="audit")

            def found_now(kind: str = kind, name: str = name) -> list[str]:
                entities = rows(reads("QUERY", entityType=f"onceway.{kind}"))
                return [each["identity"] for each in entities if each["link"] == name]

            (identity, *_) = found_now()
            assert acts("DELETE", type=f"onceway.{kind}", identity=identity).properties["statusCode"] == 204
            assert identity not in found_now()
        client = next(c for c in rows(acts("QUERY", entityType="onceway.connection")) if c["user"] == "mallory")
        assert acts("DELETE", type="onceway.connection", identity=client["identity"]).properties["statusCode"] == 204
        assert "mallory" not in [c["user"] for c in rows(acts("QUERY", entityType="onceway.connection"))]
        # at another router: by its file, for the same users
        one = {"type": "onceway.subscription", "identity": "nobody"}
        assert says(asking(connect("bob", "b"), "_topo/0/a/$management")("DELETE", **one), 403, "'bob' may not act")
        assert says(asking(connect("alice", "b"), "_topo/0/a/$management")("DELETE", **one), 404, "no entity")

    async def story() -> None:
        await asyncio.to_thread(talk)

    guarded.play(story)


def test_entities_and_answers_at_another_router(three_routers: Any) -> None:
    here = BlockingConnection(three_routers["a"].address, timeout=30, properties={"zero": 0})
    there = BlockingConnection(three_routers["c"].address, timeout=30)
    here.create_receiver("orders", name="billing")
    call = asking(here)
    assert sorted(call("GET-TYPES").body) == sorted(f"onceway.{kind}" for kind in ATTRIBUTES)
    for kind, attributes in ATTRIBUTES.items():
        known = call("GET-ATTRIBUTES", entityType=f"onceway.{kind}").body[f"onceway.{kind}"]
        assert tuple(known) == (*NAMES, *attributes)
        assert len(set(known)) == len(known)
        found = rows(call("QUERY", entityType=f"onceway.{kind}"))
        assert found or kind in ("delivery-in-doubt",), kind
        for entity in found:
            assert set(entity) == {*NAMES, *attributes}, kind
            assert entity["type"] == f"onceway.{kind}"
            assert call("READ", type=f"onceway.{kind}", identity=entity["identity"]).body["type"] == f"onceway.{kind}"
    for kind, foreign in TYPES.items():
        for prefix in ("io.skupper.router.", "org.apache.qpid.dispatch."):
            for entity in rows(call("QUERY", entityType=f"{prefix}{kind}")):
                assert set(entity) == {*NAMES, *foreign.attributes}, kind
    assert [node["id"] for node in rows(call("QUERY", entityType="io.skupper.router.router.node"))] == ["a", "b", "c"]

    said = [each["properties"] for each in rows(call("QUERY", entityType="onceway.connection"))]
    assert {"zero": 0} in said
    names = [link["name"] for link in rows(call("QUERY", entityType="onceway.link"))]
    assert len(names) == 3
    pages = [call("QUERY", {"attributeNames": ["name"]}, entityType="onceway.link", offset=n, count=2) for n in (0, 2)]
    assert [name for page in pages for (name,) in page.body["results"]] == names
    assert [
        row["name"] for row in rows(call("QUERY", {"attributeNames": ["name", "?"]}, entityType="onceway.router"))
    ] == ["a"]

    sender = here.create_sender("$management", name="asks")
    elsewhere, beside = there.create_receiver(None, dynamic=True), here.create_receiver("$management", options=Named())
    for receiver, place in ((elsewhere, elsewhere.link.remote_source.address), (beside, "answers")):
        asked = Message(id=f"to {place}", reply_to=place, properties={"operation": "GET-MGMT-NODES"})
        sender.send(asked)
        answer = receiver.receive(timeout=30)
        receiver.accept()
        assert answer.correlation_id == f"to {place}"
        assert answer.body == [f"amqp:/_topo/0/{name}/$management" for name in "abc"]

    far = asking(here, "_topo/0/c/$management")
    assert [router["name"] for router in rows(far("QUERY", entityType="onceway.router"))] == ["c"]
    assert len(rows(far("QUERY", entityType="onceway.connection"))) == 1
    here.close()
    there.close()


def test_what_cannot_be_done_says_why(one_router: Any) -> None:
    connection = BlockingConnection(one_router["a"].address, timeout=30)
    call = asking(connection)
    for operation in ("CREATE", "UPDATE"):
        assert says(call(operation, type="onceway.address", name="x"), 501, "settings stand in the topology file")
    assert says(call("DANCE"), 501, "'DANCE' is none of QUERY")
    assert says(call("QUERY", entityType="onceway.thing"), 404, "GET-TYPES lists them")
    assert says(call("QUERY", entityType=["onceway.link"]), 404, "type ['onceway.link'] is not known")
    assert says(call("QUERY", entityType="onceway.link", count=-1), 400, "count: -1 is no number")
    assert says(call("QUERY", {"attributeNames": "name"}, entityType="onceway.link"), 400, "no list of strings")
    assert says(call("READ", type="onceway.link"), 400, "identity or name is missing")
    assert says(call("READ", type="onceway.link", name="nobody"), 404, "no entity with name 'nobody'")
    assert says(call("DELETE", type="onceway.router", name="a"), 501, "only connection, link")
    assert says(call("DELETE", type="onceway.link", name="nobody"), 403, "admin.act does not name them")
    sender = connection.create_sender("$management", name="asks")
    for reply_to in (None, "$cbs"):
        with pytest.raises(SendException) as error:
            sender.send(Message(reply_to=reply_to, properties={"operation": "GET-TYPES"}))
        assert error.value.state == Delivery.REJECTED
    connection.close()
