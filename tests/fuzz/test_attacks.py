"""Whatever a client does, a router's memory stays bounded and the others go on (docs/operating/capacity.md)."""

from __future__ import annotations

import itertools

import pytest

from amqp10.frames import AMQP_HEADER, SASL_HEADER
from amqp10.performatives import Attach, Begin, Detach, Disposition, Flow, Open, Transfer
from amqp10.termini import Source, Target
from amqp10.types import Array, Symbol, ULong
from chaos.fuzz.targets import frame
from router.config import Limits
from router.core.address import Address
from tests.fuzz.attacks import MIB, Attacked, Stranger, memory

BODY = b"\x00Su\xa0\x01x"


def publishing(name: str, handle: int = 0, address: str = "elsewhere", **fields: object) -> Attach:
    return Attach(name, handle, False, target=Target(address), initial_delivery_count=0, **fields)  # type: ignore[arg-type]


def subscribing(name: str, handle: int = 0, address: str = "elsewhere", timeout: int = 0, **fields: object) -> Attach:
    return Attach(name, handle, True, 2, 1, Source(address, timeout=timeout), Target(), **fields)  # type: ignore[arg-type]


def test_hundreds_of_half_open_handshakes() -> None:
    attacked = Attacked(Limits(half_open=30))
    with memory() as used:
        for number in range(300):
            attacked.stranger(opened=False).octets((AMQP_HEADER, SASL_HEADER, b"AMQ")[number % 3])
    assert len(attacked.router.connections) <= 32
    assert used[0] < MIB
    assert attacked.refused() == {"half_open": 270}
    attacked.still_works()
    assert attacked.clients.connect("newcomer").receiver().attached


def test_hundreds_of_handshakes_that_fail() -> None:
    attacked = Attacked(Limits(half_open=20, connections=20))
    with memory() as used:
        for _ in range(500):
            attacked.stranger(opened=False).octets(b"GET / HTTP/1.1\r\n\r\n")
    assert len(attacked.router.connections) <= 62
    assert used[0] < MIB
    attacked.still_works()


@pytest.mark.parametrize("size", [1 << 19, MIB, 1 << 31, 2**32 - 1])
def test_sizes_that_are_only_claimed_cost_nothing(size: int) -> None:
    attacked = Attacked()
    with memory() as used:
        for number in range(50):
            attacked.stranger(f"s{number}").octets(size.to_bytes(4, "big") + b"\x02\x00\x00\x00")
    assert used[1] < 2 * MIB
    attacked.still_works()


def test_frames_that_come_octet_by_octet_cost_what_they_hold() -> None:
    attacked = Attacked()
    stranger = attacked.stranger().begin()
    octets = MIB.to_bytes(4, "big") + b"\x02\x00\x00\x00" + bytes(20_000)
    with memory() as used:
        for start in range(0, len(octets), 2):
            stranger.connection.receive_data(octets[start : start + 2], attacked.clients.now)
    assert used[0] < 40_000
    assert attacked.router.buffers.incomplete_bytes == len(octets)
    attacked.still_works()


def test_frames_that_never_end_on_many_connections() -> None:
    attacked = Attacked()
    with memory() as used:
        strangers = []
        for number in range(60):
            stranger = attacked.stranger(f"s{number}")
            strangers.append(stranger.octets(MIB.to_bytes(4, "big") + b"\x02\x00\x00\x00" + bytes(900_000)))
    assert used[1] < 12 * MIB
    assert 0 < sum(stranger.closed for stranger in strangers) < 60
    closed = next(stranger for stranger in strangers if stranger.closed)
    assert closed.read()[-1].error.condition == "amqp:resource-limit-exceeded"
    assert "memory_limit" in attacked.refused()
    attacked.still_works()


def test_messages_that_never_end_on_many_links() -> None:
    attacked = Attacked()
    stranger = attacked.stranger()
    with memory() as used:
        for channel in range(4):
            stranger.begin(channel)
            for handle in range(100):
                stranger.say(publishing(f"p{channel}.{handle}", handle), channel=channel)
                stranger.flush()
                first = Transfer(handle, handle, b"%d" % handle, 0, more=True)
                stranger.say(first, channel=channel, payload=bytes(60_000))
                stranger.say(Transfer(handle, more=True), channel=channel, payload=bytes(60_000))
                stranger.flush()
    assert attacked.router.buffers.incomplete_bytes <= 8 * MIB
    assert used[1] < 24 * MIB
    assert "memory_limit" in attacked.refused()
    attacked.still_works()


def test_empty_frames_of_one_message_without_end() -> None:
    attacked = Attacked()
    stranger = attacked.stranger().begin().say(publishing("p"))
    stranger.flush()
    stranger.say(Transfer(0, 0, b"t", 0, more=True))
    more = frame(Transfer(0, more=True)) * 2_000
    with memory() as used:
        for _ in range(8):
            stranger.octets(more)
            stranger.flush()
    assert used[0] < 400_000
    attacked.still_works()


def test_publishers_that_never_settle_get_no_more_credit() -> None:
    attacked = Attacked(unsettled_window=500)
    stranger = attacked.stranger().begin().say(publishing("p", rcv_settle_mode=1))
    stranger.flush()
    taken = 0
    with memory() as used:
        for _ in range(100):
            octets = b"".join(frame(Transfer(0, taken + n, b"%d" % (taken + n), 0), 0, BODY) for n in range(50))
            stranger.octets(octets)
            taken += 50
            if any(isinstance(performative, Detach) for performative in stranger.read()):
                break
    assert taken <= 600
    assert used[0] < MIB
    attacked.still_works()


def test_attaching_and_detaching_forever_under_new_names() -> None:
    attacked = Attacked(memory_limit=MIB)
    stranger = attacked.stranger().begin()
    limit = attacked.router.bookkeeping.limit
    with memory() as used:
        for number in range(limit + 500):
            stranger.say(subscribing(f"s{number}", timeout=20, address="orders"), Detach(0, False))
            stranger.flush()
    attacked.router.bookkeeping._counted_at = 0.0
    assert attacked.router.status()["entries"] <= limit + 50
    assert used[0] < attacked.router.config.memory_limit
    assert attacked.refused()["memory_limit"] >= 500
    attacked.still_works()


def test_attaching_and_detaching_forever_at_new_addresses() -> None:
    attacked = Attacked(memory_limit=MIB)
    stranger = attacked.stranger().begin()
    with memory() as used:
        for number in range(500):
            stranger.say(subscribing("s", timeout=20, address=f"a{number}"), Detach(0, False))
            stranger.flush()
    assert used[0] < attacked.router.config.memory_limit
    assert attacked.refused()["memory_limit"] >= 100
    attacked.still_works()


def test_names_expire_and_make_room_and_looking_for_them_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    attacked = Attacked()
    stranger = attacked.stranger().begin()
    for number in range(1_000):
        stranger.say(subscribing(f"s{number}", timeout=20, address="orders"), Detach(0, False))
        stranger.flush()
        attacked.clients.now += 0.003
    looks = 0
    core = attacked.router.core
    deadlines = Address.deadlines

    def counted(address: Address) -> list[float]:
        nonlocal looks
        looks += 1
        return deadlines(address)

    monkeypatch.setattr(Address, "deadlines", counted)
    attacked.clients.sleep(60.0)
    assert looks < 600
    assert len(core.addresses["orders"].subscriptions.entries) == 1
    attacked.clients.now += 1.0
    assert attacked.router.status()["entries"] < 100


def test_huge_unsettled_maps_of_tags_that_nobody_knows() -> None:
    attacked = Attacked(memory_limit=2 * MIB)
    unique = itertools.count()
    refused = 0
    with memory() as used:
        for number in range(8):
            stranger = attacked.stranger(f"s{number}").begin()
            unsettled = {b"%032d" % next(unique): None for _ in range(2_000)}
            stranger.say(subscribing("s", timeout=20, unsettled=unsettled))
            refused += sum(isinstance(performative, Detach) for performative in stranger.read())
            stranger.connection.receive_eof(attacked.clients.now)
            attacked.turn()
    assert refused > 4
    assert used[0] < attacked.router.config.memory_limit
    attacked.still_works()


def test_maps_in_parts_that_are_never_complete() -> None:
    attacked = Attacked(memory_limit=2 * MIB)
    unique = itertools.count()
    with memory() as used:
        for number in range(20):
            stranger = attacked.stranger(f"s{number}").begin()
            unsettled = {b"%d" % next(unique): None for _ in range(1_000)}
            epoch = {Symbol("onceway:epoch"): ULong(7)}
            stranger.say(
                publishing("p", unsettled=unsettled, incomplete_unsettled=True, properties=epoch),
            )
            stranger.flush()
            stranger.connection.receive_eof(attacked.clients.now)
            attacked.turn()
    assert used[0] < attacked.router.config.memory_limit
    assert attacked.refused()["memory_limit"] > 10
    attacked.still_works()


def test_parts_of_one_map_add_up() -> None:
    attacked = Attacked(Limits(unsettled_map=2_500))
    epoch = {Symbol("onceway:epoch"): ULong(7)}
    stranger = attacked.stranger().begin()
    answers = []
    for part in range(4):
        unsettled = {b"%d.%d" % (part, n): None for n in range(1_000)}
        stranger.say(publishing("p", unsettled=unsettled, incomplete_unsettled=True, properties=epoch))
        answers += [performative for performative in stranger.read() if isinstance(performative, Detach)]
        stranger.say(Detach(0, False))
    assert [detach.error is not None for detach in answers] == [False, False, True, True]
    assert attacked.refused() == {"unsettled_map": 2}


def test_subscribers_that_never_read() -> None:
    attacked = Attacked()
    strangers = []
    for number in range(5):
        stranger = attacked.stranger(f"s{number}").begin().say(subscribing("s", address="orders"))
        strangers.append(stranger.say(Flow(0, 10**9, 0, 10**9, handle=0, delivery_count=0, link_credit=10**9)))
    payload = b"\x00Su\xb0" + (100_000).to_bytes(4, "big") + bytes(100_000)
    with memory() as used:
        for number in range(300):
            if not attacked.sender.capacity():
                break
            attacked.sender.send([b"big %d" % number], [payload])
            attacked.clients.exchange()
            for stranger in strangers:
                stranger.connection.pause_output()
    assert used[1] < 5 * 6 * MIB + 3 * 8 * MIB


def test_output_that_is_not_read_stops_the_reading_and_then_drops_who_lets_most_lie() -> None:
    attacked = Attacked(Limits(unread_output=MIB))
    first, second = (attacked.stranger(f"s{number}").begin() for number in range(2))
    for stranger, size in ((first, 2 * MIB), (second, MIB // 2)):
        stranger.connection.pause_output()
        stranger.connection.output_waits(size)
    assert (first.connection.reads, second.connection.reads) == (False, True)
    assert attacked.refused() == {"unread_output": 1}
    second.connection.output_waits(7 * MIB)
    assert second.connection.closed
    assert not first.connection.closed
    assert attacked.router.buffers.unread_bytes == 2 * MIB
    first.connection.resume_output()
    assert attacked.router.buffers.unread_bytes == 0
    attacked.still_works()


def test_a_flood_of_flows_and_dispositions_leaves_nothing() -> None:
    attacked = Attacked()
    stranger = attacked.stranger().begin().say(subscribing("s"), publishing("p", 1))
    flow = frame(Flow(0, 1, 0, 1, handle=0, delivery_count=0, link_credit=1, echo=True, drain=True)) * 500
    said = b"".join(frame(Disposition(True, n * 2, None, False, None)) for n in range(500))
    stranger.octets(flow + said)
    with memory() as used:
        for _ in range(4):
            stranger.octets(flow + said)
            stranger.flush()
    assert used[0] < 50_000
    attacked.still_works()


def test_properties_of_a_megabyte_are_not_kept() -> None:
    attacked = Attacked(max_frame_size=4 * MIB)
    stranger = attacked.stranger().begin()
    properties = {Symbol("p"): "x" * MIB, Symbol("l"): [1] * 1_000}
    with memory() as used:
        for number in range(3):
            large = Source("elsewhere", filter={Symbol("f"): "x" * MIB})
            stranger.say(Attach(f"s{number}", number, True, 2, 1, large, Target(), properties=properties))
            stranger.say(Begin(None, 0, 1, 1, properties=properties), channel=number + 1)
            stranger.flush()
    assert used[0] < 2 * MIB
    attacked.still_works()


def test_arrays_of_nothing_are_no_bombs() -> None:
    attacked = Attacked()
    stranger = attacked.stranger().begin()
    with memory() as used:
        stranger.say(subscribing("s", properties={Symbol("p"): Array("null", [None] * 1_000)}))
    assert used[0] < 100_000
    attacked.still_works()


def test_links_refused_for_their_names_keep_nothing_of_them() -> None:
    attacked = Attacked()
    stranger = attacked.stranger().begin()
    with memory() as used:
        for handle in range(50):
            stranger.say(subscribing("n" * 500_000, handle))
            stranger.flush()
    assert used[0] < MIB
    attacked.still_works()


def test_connections_under_new_containers_forever() -> None:
    attacked = Attacked(Limits(connections=10))
    with memory() as used:
        for number in range(200):
            stranger: Stranger = attacked.stranger(f"c{number}")
            stranger.begin().say(publishing("p")).say(Transfer(0, 0, b"t", 0), payload=BODY)
            stranger.flush()
    assert used[0] < 3 * MIB
    assert attacked.refused()["connections"] > 180
    attacked.still_works()


def test_an_open_of_every_size_before_open() -> None:
    attacked = Attacked()
    with memory() as used:
        for size in (100, 10_000, 60_000, 100_000, 900_000):
            attacked.stranger(opened=False).octets(AMQP_HEADER + frame(Open("c", properties={Symbol("p"): "x" * size})))
    assert used[0] < 500_000
    attacked.still_works()


def big(number: int) -> bytes:
    return b"\x00Su\xb0" + (100_000).to_bytes(4, "big") + number.to_bytes(8, "big") + bytes(99_992)


def test_at_most_once_messages_for_subscribers_who_sleep_are_bounded_by_octets() -> None:
    attacked = Attacked()
    for number in range(20):
        attacked.stranger(f"s{number}").begin().say(subscribing("s", address=f"much {number % 4}"))
    publisher = attacked.stranger("p").begin()
    for handle in range(4):
        publisher.say(publishing("p", handle, f"much {handle}", snd_settle_mode=1))
    publisher.flush()
    with memory() as used:
        for number in range(400):
            publisher.say(Transfer(number % 4, number, b"%d" % number, 0, settled=True), payload=big(number))
            publisher.flush()
    assert attacked.router.core.memory.presettled_bytes < 8 * MIB
    assert used[1] < 10 * MIB
    dropped = [
        link["presettled_dropped"]
        for address in attacked.router.status()["addresses"].values()
        for link in address["egress"]["subscribers"]
    ]
    assert sum(dropped) > 1_000
    for name in [*attacked.router.connections]:
        if name.container.startswith("s") and name.container[1:].isdigit():
            name.receive_eof(attacked.clients.now)
    attacked.turn()
    assert attacked.router.core.memory.presettled_bytes == 0
    attacked.still_works()


def test_greedy_publishers_leave_room_for_those_who_come_later() -> None:
    attacked = Attacked()
    attacked.stranger("sleeper").begin().say(subscribing("s", address="orders", timeout=20))
    with memory() as used:
        for number in range(20):
            greedy = attacked.stranger(f"p{number}").begin().say(publishing("p", address="orders", rcv_settle_mode=1))
            greedy.flush()
            for delivery in range(30):
                greedy.say(Transfer(0, delivery, b"%d" % delivery, 0), payload=big(delivery))
                if any(isinstance(each, Flow) and each.link_credit == 0 for each in greedy.read()):
                    break
    assert attacked.router.core.memory.payload_bytes < 8 * MIB
    assert used[1] < 12 * MIB
    late = attacked.clients.connect("late").sender()
    assert late.credit > 0
