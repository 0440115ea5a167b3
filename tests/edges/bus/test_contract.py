"""The contract of the event bus (docs/contracts/event-bus.md), line by line, over HTTP with an independent client."""

from __future__ import annotations

import json
import re
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import onceway.sync
from tests.edges.bus.world import ROOT_KEY, Batch, BusNetwork, BusProcess, Sink, ask
from tests.live import wait_until

EVENT = {"type": "update", "url": "https://example.com/1"}
Sinks = Callable[..., Sink]

# --- security


def test_a_plain_http_request_is_redirected_to_https(bus: BusProcess) -> None:
    answer = ask(bus.http_port, "POST", "/topics/x?y=1", body=EVENT, tls=False)
    assert answer.status == 308
    assert answer.headers["Location"] == f"https://localhost:{bus.port}/topics/x?y=1"


@pytest.mark.parametrize("path", ["/topics", "/pulse", "/pulse/scaling", "/subscriptions", "/metrics", "/nothing"])
def test_every_request_needs_a_token(bus: BusProcess, path: str) -> None:
    for user in (None, "stranger", ""):
        answer = bus.ask("GET", path, user)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic")


def test_the_password_is_ignored_and_a_broken_header_is_401(bus: BusProcess) -> None:
    token = bus.client()
    assert bus.ask("GET", "/pulse", token).status == 204
    for header in ("Basic", "Basic !!!", "Bearer x", "Basic eA==", "Basic /w=="):
        assert bus.ask("GET", "/pulse", Authorization=header).status == 401


def test_an_unknown_page_is_404(bus: BusProcess) -> None:
    assert bus.ask("GET", "/nothing", ROOT_KEY).status == 404


# --- tokens


def test_tokens_are_made_listed_and_deleted_by_root(bus: BusProcess) -> None:
    for listed in bus.ask("GET", "/api_tokens", ROOT_KEY).json if bus.ask("GET", "/api_tokens", ROOT_KEY).body else []:
        bus.ask("DELETE", f"/api_tokens/{listed['token']}", ROOT_KEY)
    empty = bus.ask("GET", "/api_tokens", ROOT_KEY)
    assert (empty.status, empty.body) == (204, b"")
    made = bus.ask("POST", "/api_tokens", ROOT_KEY, {"name": "shop"})
    assert made.status == 201
    assert made.json["name"] == "shop"
    assert re.fullmatch(r"shop--[0-9a-f]{32}", made.json["token"])
    listed = bus.ask("GET", "/api_tokens", ROOT_KEY)
    assert (listed.status, listed.json) == (200, [made.json])
    token = made.json["token"]
    assert bus.ask("GET", "/pulse", token).status == 204
    for _ in range(2):
        assert bus.ask("DELETE", f"/api_tokens/{token}", ROOT_KEY).status == 204
    assert bus.ask("GET", "/pulse", token).status == 401


def test_a_token_with_colons_is_a_user_name(bus: BusProcess) -> None:
    token = bus.client("a:b")
    assert bus.ask("GET", "/pulse", token).status == 204
    assert bus.ask("GET", "/pulse", token[:-1]).status == 401


def test_a_token_may_be_the_callers(bus: BusProcess) -> None:
    name, short, uuid = "s" * 64, "demo", "2bf959d1-04fb-4912-8450-ab646888d476"
    moved = f"a:b--{'0' * 32}"
    for token in (short, uuid, moved):
        made = bus.ask("POST", "/api_tokens", ROOT_KEY, {"name": name, "token": token})
        assert (made.status, made.json) == (201, {"name": name, "token": token})
        assert bus.ask("GET", "/pulse", token).status == 204
        assert bus.push(token, f"mine_{token[-1] if token == short else len(token) * 'x'}") == 204
    assert bus.ask("POST", "/api_tokens", ROOT_KEY, {"name": "renamed", "token": short}).status == 201
    assert {"name": "renamed", "token": short} in bus.ask("GET", "/api_tokens", ROOT_KEY).json
    assert bus.ask("DELETE", f"/api_tokens/{short}", ROOT_KEY).status == 204
    assert bus.ask("GET", "/pulse", short).status == 401


@pytest.mark.parametrize("token", ["", "Shop", "a b", "x" * 65, "é", 3, ["a"], "a:b", "root", ROOT_KEY])
def test_a_token_that_is_no_user_name_or_roots_is_400(bus: BusProcess, token: object) -> None:
    assert bus.ask("POST", "/api_tokens", ROOT_KEY, {"name": "x", "token": token}).status == 400


@pytest.mark.parametrize("name", ["", "Shop", "a b", "x" * 65, "é", None, 3, ["a"]])
def test_a_bad_name_of_a_client_is_400(bus: BusProcess, name: object) -> None:
    assert bus.ask("POST", "/api_tokens", ROOT_KEY, {"name": name}).status == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"name": "x", "more": 1}', b'{"name": NaN}', b"\xff"])
def test_a_token_needs_a_json_object_with_a_name(bus: BusProcess, body: bytes) -> None:
    assert bus.ask("POST", "/api_tokens", ROOT_KEY, body).status == 400


def test_tokens_are_for_root_only(bus: BusProcess) -> None:
    token = bus.client()
    assert bus.ask("GET", "/api_tokens", token).status == 401
    assert bus.ask("POST", "/api_tokens", token, {"name": "x"}).status == 401
    assert bus.ask("DELETE", f"/api_tokens/{token}", token).status == 401


def test_a_subscriber_whose_token_is_deleted_stays_subscribed(bus: BusProcess, topic: str, sink: Sink) -> None:
    owner, reader = bus.client(), bus.client()
    assert bus.push(owner, topic, 0) == 204
    assert bus.subscribe(reader, sink, topic) == 204
    assert bus.ask("DELETE", f"/api_tokens/{reader}", ROOT_KEY).status == 204
    assert bus.push(owner, topic, 1) == 204
    assert sink.wait(1)[0]["url"] == "https://example.com/1"


# --- pushing


def test_a_push_creates_a_topic_that_belongs_to_the_first_client(bus: BusProcess, topic: str) -> None:
    owner, other = bus.client("owner"), bus.client("other")
    answer = bus.ask("POST", f"/topics/{topic}", owner, EVENT)
    assert (answer.status, answer.body) == (204, b"")
    assert bus.ask("POST", f"/topics/{topic}", other, EVENT).status == 403
    assert bus.ask("POST", f"/topics/{topic}", owner, EVENT).status == 204
    for user in (owner, other, ROOT_KEY):
        listed = {each["name"]: each for each in bus.ask("GET", "/topics", user).json}
        assert listed[topic] == {"name": topic, "publisher": "owner", "events": 2}


def test_pushes_of_two_clients_at_once_give_the_topic_to_one(bus: BusProcess, topic: str) -> None:
    codes: list[int] = []
    tokens = [bus.client() for _ in range(6)]
    threads = [threading.Thread(target=lambda t=token: codes.append(bus.push(t, topic))) for token in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(codes) == [204, 403, 403, 403, 403, 403]


@pytest.mark.parametrize("name", ["UPPER", "digit1", "hy-phen", "x" * 65, "%C3%A9", "a%20b"])
def test_a_bad_name_of_a_topic_is_400(bus: BusProcess, name: str) -> None:
    assert bus.ask("POST", f"/topics/{name}", ROOT_KEY, EVENT).status == 400


BAD_EVENTS: list[Any] = [
    {},
    [],
    b"",
    b"{",
    b"{" * 100_000,
    {"type": "update"},
    {"url": "https://x"},
    {**EVENT, "type": "upsert"},
    {**EVENT, "type": None},
    {**EVENT, "type": ["update"]},
    {**EVENT, "url": "http://example.com/1"},
    {**EVENT, "url": "https://"},
    {**EVENT, "url": "/1"},
    {**EVENT, "url": 1},
    {**EVENT, "url": "https://example.com/" + "x" * 1005},
    {**EVENT, "url": "https://[x/"},
    {**EVENT, "timestamp": "1"},
    {**EVENT, "timestamp": 1.5},
    {**EVENT, "timestamp": True},
    {**EVENT, "timestamp": -1},
    {**EVENT, "more": 1},
    {**EVENT, "t": 1},
]


@pytest.mark.parametrize("event", BAD_EVENTS, ids=lambda event: str(event)[:60])
def test_a_bad_event_is_400_and_creates_no_topic(bus: BusProcess, topic: str, event: object) -> None:
    token = bus.client()
    assert bus.ask("POST", f"/topics/{topic}", token, event).status == 400
    assert topic not in {each["name"] for each in bus.ask("GET", "/topics", token).json}


@pytest.mark.parametrize("kind", ["create", "update", "delete", "noop"])
def test_each_type_of_event_is_taken_and_called_back(bus: BusProcess, topic: str, sink: Sink, kind: str) -> None:
    owner = bus.client()
    assert bus.push(owner, topic) == 204
    assert bus.subscribe(owner, sink, topic) == 204
    url = "https://example.com/" + "x" * 1004
    event = {"type": kind, "url": url, "timestamp": 1234, "data": {"ü": [1, None, 2.5]}}
    assert bus.ask("POST", f"/topics/{topic}", owner, event).status == 204
    assert sink.wait(1) == [{"topic": topic, "type": kind, "url": url, "t": 1234, "data": {"ü": [1, None, 2.5]}}]


def test_the_bus_dates_events_without_a_timestamp_and_leaves_null_data_out(
    bus: BusProcess, topic: str, sink: Sink
) -> None:
    owner = bus.client()
    bus.push(owner, topic)
    bus.subscribe(owner, sink, topic)
    before = time.time_ns() // 1_000_000
    assert bus.push(owner, topic, 7, data=None, timestamp=None) == 204
    after = time.time_ns() // 1_000_000
    (event,) = sink.wait(1)
    assert before <= event.pop("t") <= after
    assert event == {"topic": topic, "type": "update", "url": "https://example.com/7"}


def test_a_large_event_arrives_as_it_was(bus: BusProcess, topic: str, sink: Sink) -> None:
    owner = bus.client()
    bus.push(owner, topic)
    bus.subscribe(owner, sink, topic)
    data = {"text": "compress me " * 50_000}
    assert bus.push(owner, topic, data=data) == 204
    assert sink.wait(1)[0]["data"] == data


def test_an_event_that_is_too_large_is_413(bus: BusProcess, topic: str) -> None:
    assert bus.push(ROOT_KEY, topic, data="x" * 1_100_000) == 413


# --- deleting topics


@pytest.mark.parametrize("path", ["/topics/", "/topic/"])
def test_a_topic_is_deleted_by_its_owner_or_root(bus: BusProcess, topic: str, path: str) -> None:
    owner, other = bus.client(), bus.client()
    for user in (owner, ROOT_KEY):
        bus.push(owner, topic)
        assert bus.ask("DELETE", path + topic, other).status == 403
        assert bus.ask("DELETE", path + topic, user).status == 204
        assert bus.ask("DELETE", path + topic, user).status == 404
    assert bus.push(other, topic) == 204
    listed = {each["name"]: each["events"] for each in bus.ask("GET", "/topics", other).json}
    assert listed[topic] == 1


def test_deleting_a_topic_unsubscribes_and_leaves_what_is_queued(bus: BusProcess, topic: str, make_sink: Sinks) -> None:
    well = threading.Event()
    sink = make_sink(lambda _: 200 if well.is_set() else 500)
    owner, reader = bus.client(), bus.client()
    bus.push(owner, topic, 0)
    bus.subscribe(reader, sink, topic)
    bus.push(owner, topic, 1)
    assert bus.ask("DELETE", f"/topics/{topic}", owner).status == 204
    assert bus.subscription(reader)["topics"] == []
    assert bus.push(owner, topic, 2) == 204
    sink.batches.clear()
    well.set()
    wait_until(lambda: bus.subscription(reader)["events"]["queued"] == 0, "the queue is delivered")
    assert {event["url"] for event in sink.events} == {"https://example.com/1"}


# --- subscribing


def test_a_subscription_has_the_defaults_of_the_contract(bus: BusProcess, topic: str, sink: Sink) -> None:
    owner, reader = bus.client(), bus.client("reader")
    bus.push(owner, topic)
    wish = {"topics": [topic], "callback": sink.url, "uuid": "u"}
    answer = bus.ask("POST", "/subscription", reader, wish)
    assert (answer.status, answer.body) == (204, b"")
    found = bus.subscription(reader)
    assert (found["timeout"], found["max_events"]) == (500, 100)
    assert found["subscriber"] == "reader"


BAD_WISHES: list[dict[str, Any]] = [
    {"callback": "http://example.com/"},
    {"callback": "https://example.com/?q=1"},
    {"callback": "https:///x"},
    {"callback": None},
    {"callback": 1},
    {"uuid": ""},
    {"uuid": "a:b"},
    {"timeout": -1},
    {"timeout": 3_600_001},
    {"timeout": "500"},
    {"timeout": True},
    {"max": 0},
    {"max": 1.5},
    {"topics": None},
    {"topics": "x"},
    {"topics": [1]},
    {"topics": ["Bad"]},
    {"extra": 1},
]


@pytest.mark.parametrize("change", BAD_WISHES, ids=str)
def test_a_bad_subscription_is_400(bus: BusProcess, change: dict[str, Any]) -> None:
    token = bus.client()
    wish = {"topics": [], "callback": "https://example.com/", "uuid": "u", **change}
    assert bus.ask("POST", "/subscription", token, wish).status == 400
    assert bus.ask("GET", "/subscriber", token).status == 404


def test_a_topic_can_be_subscribed_to_before_its_first_event(bus: BusProcess, topic: str, sink: Sink) -> None:
    """It belongs to nobody until somebody pushes."""
    reader, owner, other = (bus.client(name) for name in ("reader", "owner", "other"))
    assert bus.subscribe(reader, sink, topic) == 204
    assert {"name": topic, "publisher": None, "events": 0} in bus.ask("GET", "/topics", reader).json
    assert bus.ask("DELETE", f"/topics/{topic}", owner).status == 403
    later = f"{topic}_{'x' * 50}"
    assert bus.ask("PUT", f"/subscriber/topics/{later}", reader).status == 204
    for name in (topic, later):
        assert bus.push(owner, name, 1) == 204
        assert bus.push(other, name, 2) == 403
    assert [event["topic"] for event in sink.wait(2)] == [topic, later]
    assert {"name": topic, "publisher": "owner", "events": 1} in bus.ask("GET", "/topics", reader).json


@pytest.mark.parametrize("path", ["/subscription", "/subscriber"])
@pytest.mark.parametrize(
    ("wish", "user"),
    [
        ({"uuid": "secret", "timeout": None, "max": None}, "secret"),
        ({}, ""),
        ({"uuid": None}, ""),
        ({"callback": "https://secret:x@"}, "secret"),
        ({"callback": "https://other@", "uuid": "secret"}, "secret"),
    ],
    ids=str,
)
def test_the_user_of_a_call_back_is_the_uuid_or_in_its_url_or_empty(
    bus: BusProcess, topic: str, sink: Sink, path: str, wish: dict[str, Any], user: str
) -> None:
    """As the versions of Routemaster's client send it. What is shown has neither."""
    owner, reader = bus.client(), bus.client()
    callback = sink.url.replace("https://", wish.get("callback", "https://"))
    assert bus.ask("POST", path, reader, {"topics": [topic], **wish, "callback": callback}).status == 204
    assert bus.push(owner, topic) == 204
    sink.wait(1)
    assert sink.batches[0].user == f"{user}:x"
    for client, shown in ((reader, user), (ROOT_KEY, user), (owner, None)):
        for listed in ("/subscriptions", "/subscribers"):
            (found,) = (each for each in bus.ask("GET", listed, client).json if topic in each["topics"])
            assert (found["callback"], found["uuid"]) == (sink.url, shown)


def test_topics_that_are_not_listed_are_unsubscribed(bus: BusProcess, topic: str, sink: Sink) -> None:
    owner, reader = bus.client(), bus.client()
    other = f"{topic}_x"
    for name in (topic, other):
        bus.push(owner, name, 0)
    bus.subscribe(reader, sink, topic, other)
    assert bus.ask("GET", "/subscriber/topics", reader).json == [topic, other]
    bus.subscribe(reader, sink, other)
    assert bus.ask("GET", "/subscriber/topics", reader).json == [other]
    bus.push(owner, topic, 1)
    bus.push(owner, other, 2)
    assert [event["url"] for event in sink.wait(1)] == ["https://example.com/2"]


def test_a_subscription_is_edited_step_by_step(bus: BusProcess, topic: str, sink: Sink) -> None:
    owner, reader = bus.client(), bus.client()
    bus.push(owner, topic, 0)
    for method, path in (("GET", "/subscriber"), ("GET", "/subscriber/topics"), ("DELETE", "/subscriber")):
        assert bus.ask(method, path, reader).status == 404
    assert bus.ask("PUT", f"/subscriber/topics/{topic}", reader).status == 404
    assert bus.ask("PUT", "/subscriber", reader, {"callback": sink.url}).status == 400
    assert bus.ask("PUT", "/subscriber", reader, {"callback": sink.url, "uuid": "v", "timeout": 0}).status == 204
    assert bus.ask("PUT", "/subscriber", reader, {"topics": []}).status == 400
    assert bus.ask("PUT", f"/subscriber/topics/{topic}", reader).status == 204
    assert bus.ask("GET", "/subscriber/topics", reader).json == [topic]
    bus.push(owner, topic, 1)
    sink.wait(1)
    assert sink.batches[0].user == "v:x"
    assert bus.ask("PUT", "/subscriber", reader, {"max": 7}).status == 204
    found = bus.subscription(reader)
    assert (found["max_events"], found["timeout"], found["callback"]) == (7, 0, sink.url)
    assert bus.ask("DELETE", f"/subscriber/topics/{topic}", reader).status == 204
    assert bus.ask("DELETE", f"/subscriber/topics/{topic}", reader).status == 404
    assert bus.ask("DELETE", "/subscriber", reader).status == 204
    assert bus.ask("DELETE", "/subscriber", reader).status == 404


def test_subscriptions_say_what_was_sent_and_how_old_the_oldest_is(
    bus: BusProcess, topic: str, make_sink: Sinks
) -> None:
    well = threading.Event()
    sink = make_sink(lambda _: 200 if well.is_set() else 500)
    owner, reader = bus.client(), bus.client("the-reader")
    bus.push(owner, topic, 0)
    bus.subscribe(reader, sink, topic, max=5)
    before = time.time()
    for number in range(3):
        bus.push(owner, topic, number)
    (found,) = [each for each in bus.ask("GET", "/subscriptions", owner).json if each["callback"] == sink.url]
    events = found.pop("events")
    shown = {"subscriber": "the-reader", "uuid": None, "callback": sink.url, "max_events": 5, "timeout": 0}
    assert found == {**shown, "topics": [topic]}
    assert (events["sent"], events["queued"]) == (0, 3)
    assert before <= events["oldest"] <= time.time()
    well.set()
    wait_until(lambda: bus.subscription(reader)["events"]["sent"] == 3, "three events are taken")
    assert bus.subscription(reader)["events"]["queued"] == 0


# --- health


def test_the_pulse_is_there(bus: BusProcess) -> None:
    for user in (bus.client(), ROOT_KEY):
        answer = bus.ask("GET", "/pulse", user)
        assert (answer.status, answer.body) == (204, b"")
        assert bus.ask("GET", "/pulse/scaling", user).status == 204


# --- delivery


def test_a_batch_has_at_most_max_events_in_order_and_the_uuid_as_user(
    bus: BusProcess, topic: str, make_sink: Sinks
) -> None:
    go = threading.Event()

    def hold(batch: Batch) -> int:
        go.wait(60)
        return 204

    sink = make_sink(hold)
    owner = bus.client()
    bus.push(owner, topic)
    bus.subscribe(owner, sink, topic, max=4)
    for number in range(12):
        assert bus.push(owner, topic, number) == 204
    go.set()
    events = sink.wait(12)
    assert [event["url"] for event in events] == [f"https://example.com/{number}" for number in range(12)]
    assert max(len(batch.events) for batch in sink.batches) == 4
    assert {batch.user for batch in sink.batches} == {"its-uuid:x"}
    assert len({batch.connection for batch in sink.batches}) == 1  # kept alive


def test_a_batch_waits_for_more_until_its_timeout(bus: BusProcess, topic: str, sink: Sink) -> None:
    owner = bus.client()
    bus.push(owner, topic)
    bus.subscribe(owner, sink, topic, timeout=3_600_000, max=3)
    bus.push(owner, topic, 0)
    bus.push(owner, topic, 1)
    assert bus.subscription(owner)["events"]["queued"] == 2
    assert sink.batches == []
    bus.push(owner, topic, 2)
    sink.wait(3)
    assert [len(batch.events) for batch in sink.batches] == [3]


@pytest.mark.parametrize("status", [201, 202, 204, 299])
def test_any_2xx_acknowledges(bus: BusProcess, topic: str, make_sink: Sinks, status: int) -> None:
    sink = make_sink(lambda _: status)
    owner = bus.client()
    bus.push(owner, topic)
    bus.subscribe(owner, sink, topic)
    bus.push(owner, topic, 1)
    wait_until(lambda: bus.subscription(owner)["events"]["sent"] == 1, "it is taken")
    assert len(sink.batches) == 1


@pytest.mark.parametrize("status", [301, 307, 400, 404, 500, 503])
def test_anything_else_fails_and_the_same_batch_is_sent_again(
    bus: BusProcess, topic: str, make_sink: Sinks, status: int
) -> None:
    answers = iter([status, status])
    sink = make_sink(lambda _: next(answers, 200))
    owner = bus.client()
    bus.push(owner, topic)
    bus.subscribe(owner, sink, topic)
    bus.push(owner, topic, 1)
    wait_until(lambda: bus.subscription(owner)["events"]["sent"] == 1, "it is taken")
    first, second, third = sink.batches
    assert first.events == second.events == third.events
    assert first.header == second.header == third.header


def test_a_subscriber_that_hangs_delays_no_other(bus: BusProcess, topic: str, make_sink: Sinks) -> None:
    go = threading.Event()

    def hold(batch: Batch) -> int:
        go.wait(60)
        return 200

    slow, quick = make_sink(hold), make_sink()
    owner, other = bus.client(), bus.client()
    bus.push(owner, topic)
    bus.subscribe(owner, slow, topic)
    bus.subscribe(other, quick, topic)
    for number in range(5):
        bus.push(owner, topic, number)
    assert len(quick.wait(5)) == 5
    assert slow.batches == []
    go.set()
    assert [event["url"] for event in slow.wait(5)] == [f"https://example.com/{number}" for number in range(5)]


# --- replay


def test_a_subscriber_goes_back_to_a_position_or_a_time(bus: BusProcess, topic: str, sink: Sink) -> None:
    owner = bus.client(name := topic.replace("_", "-"))
    bus.push(owner, topic, 0)
    bus.subscribe(owner, sink, topic)
    bus.push(owner, topic, 1)
    bus.push(owner, topic, 2)
    sink.wait(2)
    wait_until(lambda: bus.subscription(owner)["events"]["queued"] == 0, "all is taken")
    for start in ({"position": 0}, {"time": 0}):
        sink.batches.clear()
        assert bus.ask("PUT", f"/subscriber/topics/{topic}", owner, start).status == 204
        assert [event["url"][-1] for event in sink.wait(3)] == ["0", "1", "2"]
        wait_until(lambda: bus.subscription(owner)["events"]["queued"] == 0, "all is taken")
    for metric in ("added", "removed"):
        assert bus.metric(f"onceway_bus_events_{metric}_total", subscriber=name) == 8
    for wrong in ({"position": -1}, {"position": 0, "time": 0}, {"from": 0}):
        assert bus.ask("PUT", f"/subscriber/topics/{topic}", owner, wrong).status == 400


def test_any_amqp_client_reads_all_events(bus: BusProcess, network: BusNetwork, topic: str) -> None:
    owner = bus.client()
    pushed = [{"data": number} for number in (1, "x" * 6_000, 3)]
    with (
        ThreadPoolExecutor(1) as pool,
        onceway.sync.connect(network.urls()) as connection,
    ):
        subscriber = connection.subscriber("bus")
        pushes = [pool.submit(bus.push, owner, topic, 0, timestamp=7, **each) for each in pushed]
        bodies = []
        for _ in pushed:
            delivery = subscriber.receive(timeout_s=60)
            delivery.accept()
            bodies.append(delivery.body)
        assert [push.result() for push in pushes] == [204] * 3
        subscriber.close()
    prefix = f"zlib:{topic}:".encode()
    assert bodies[1].startswith(prefix)
    assert len(bodies[1]) < 500
    bodies[1] = zlib.decompress(bodies[1].removeprefix(prefix))
    event = {"topic": topic, "type": "update", "url": "https://example.com/0", "t": 7}
    assert [json.loads(body) for body in bodies] == [{**event, **each} for each in pushed]


def test_what_is_no_event_is_rejected_and_stops_nothing(
    bus: BusProcess, network: BusNetwork, topic: str, sink: Sink
) -> None:
    owner = bus.client()
    bus.push(owner, topic, 0)
    bus.subscribe(owner, sink, topic)
    with onceway.sync.connect(network.urls()) as connection:
        publisher = connection.publisher("bus")
        for body in (b"no event", "text"):
            with pytest.raises(onceway.DeliveryRejected, match="this is no event of a bus"):
                publisher.send(body)
    assert bus.push(owner, topic, 1) == 204
    assert [event["url"] for event in sink.wait(1)] == ["https://example.com/1"]


# --- metrics


def test_the_metrics_have_the_names_of_the_contract(bus: BusProcess, topic: str, make_sink: Sinks) -> None:
    answers = iter([500])
    sink = make_sink(lambda _: next(answers, 200))
    owner, reader = bus.client(), bus.client(topic.replace("_", "-"))
    name = topic.replace("_", "-")
    bus.push(owner, topic)
    bus.subscribe(reader, sink, topic)
    bus.push(owner, topic, 1)
    wait_until(lambda: bus.subscription(reader)["events"]["sent"] == 1, "it is taken")
    prefix = "onceway_bus_"
    assert bus.metric(f"{prefix}events_published_total", topic=topic) == 2
    for metric in ("events_added", "events_removed", "latency_batches"):
        assert bus.metric(f"{prefix}{metric}_total", subscriber=name) == 1
    for status in ("success", "failure"):
        for metric in ("delivery_events", "delivery_batches"):
            assert bus.metric(f"{prefix}{metric}_total", subscriber=name, status=status) == 1
        for metric in ("delivery_seconds", "delivery_square_seconds"):
            assert bus.metric(f"{prefix}{metric}_total", subscriber=name, status=status) > 0
    first = bus.metric(f"{prefix}latency_batches_first_attempt_seconds_total", subscriber=name)
    last = bus.metric(f"{prefix}latency_batches_last_attempt_seconds_total", subscriber=name)
    assert 0 <= first < last
    for metric in ("queue_batches", "queue_events"):
        assert bus.metric(prefix + metric, subscriber=name) == 0
    for status in ("running", "instant", "scheduled"):
        assert bus.metric(f"{prefix}jobs", queue="main", status=status) >= 0
    assert bus.metric(f"{prefix}storage_used_bytes") > 0
    for metric in ("max", "low_mark", "high_mark"):
        assert bus.metric(f"{prefix}storage_{metric}_bytes") == 0
    assert bus.metric(f"{prefix}process_total", status="start", type="edge") == 1
    assert bus.metric(f"{prefix}process_total", status="stop", type="edge") == 0


def test_the_counters_of_a_queue_give_its_rates(bus: BusProcess, topic: str, make_sink: Sinks) -> None:
    """What `rate()` of Prometheus takes the difference of: what comes into a queue and what leaves it, for each."""
    names = [f"{topic.replace('_', '-')}-{which}" for which in ("well", "ill")]
    owner, readers = bus.client(), [bus.client(name) for name in names]
    bus.push(owner, topic)
    for reader, status in zip(readers, (200, 500), strict=True):
        bus.subscribe(reader, make_sink(lambda _, status=status: status), topic)

    def flows() -> list[tuple[float, float]]:
        kinds = ("added", "removed")
        return [
            (first, second)
            for name in names
            for first, second in [[bus.metric(f"onceway_bus_events_{kind}_total", subscriber=name) for kind in kinds]]
        ]

    def push(count: int, before: int) -> None:
        for number in range(count):
            assert bus.push(owner, topic, number) == 204
        wait_until(lambda: bus.subscription(readers[0])["events"]["sent"] == before + count, "one takes them")

    push(2, 0)
    began = flows()
    push(5, 2)
    assert [(added - a, removed - r) for (added, removed), (a, r) in zip(flows(), began, strict=True)] == [
        (5, 5),
        (5, 0),
    ]
    assert [bus.metric("onceway_bus_queue_events", subscriber=name) for name in names] == [0, 7]
