"""A first queue, and a first section `mqtt`, while three routers carry messages: one router after the other follows."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import yaml
from paho.mqtt.enums import CallbackAPIVersion

import onceway
from onceway.client.reports import RouterLost
from tests.cli.conftest import onceway as command
from tests.live import LiveNetwork, free_port, wait_until
from tests.serving import until


class File:
    """The topology file of a network that runs."""

    def __init__(self, network: LiveNetwork) -> None:
        self.network = network
        self.says: dict[str, Any] = yaml.safe_load(network.topology_path.read_text())

    def write(self) -> None:
        self.network.topology_path.write_text(yaml.safe_dump(self.says, sort_keys=False))

    def reload(self, *options: str) -> tuple[int, str, str]:
        environment = {"ONCEWAY_STATE_DIR": str(self.network.directory / "state")}
        done = command("reload", *options, self.network.topology_path, env=environment)
        return done.returncode, done.stdout, done.stderr

    def told(self, name: str) -> None:
        """This router reads the file again."""
        before = self.network[name].log_path.read_text().count("follows")
        os.kill(self.network[name].pid, signal.SIGHUP)
        wait_until(
            lambda: self.network[name].log_path.read_text().count("follows") > before, f"{name} to follow the file"
        )


class Flow:
    """Messages of a topic, from router a to router c."""

    def __init__(self) -> None:
        self.sent = 0
        self.got: list[int] = []
        self.lost: list[object] = []

    def heard(self, report: object) -> None:
        if isinstance(report, RouterLost):
            self.lost.append(report)

    async def publish(self, publisher: onceway.Publisher) -> None:
        while True:
            await publisher.put(str(self.sent).encode())
            self.sent += 1
            await asyncio.sleep(0)

    async def receive(self, subscriber: onceway.Subscriber) -> None:
        async for delivery in subscriber:
            self.got.append(int(delivery.body))
            await delivery.accept()


@asynccontextmanager
async def flowing(network: LiveNetwork, at: str = "a", to: str = "c") -> AsyncIterator[Flow]:
    flow = Flow()
    async with (
        onceway.connect(network.urls(*at), on_report=flow.heard) as one,
        onceway.connect(network.urls(*to), on_report=flow.heard) as other,
    ):
        tasks = [asyncio.create_task(flow.receive(await other.subscriber("orders")))]
        tasks.append(asyncio.create_task(flow.publish(await one.publisher("orders"))))
        yield flow
        tasks[1].cancel()
        await until(lambda: len(flow.got) >= flow.sent, "the last messages")
        tasks[0].cancel()
        await asyncio.wait(tasks)
    assert flow.got == list(range(flow.sent)), "a message is lost, comes twice, or in another order"


def test_a_first_queue_is_served_when_one_router_after_the_other_follows(tmp_path: Path) -> None:
    with LiveNetwork(tmp_path, "abc", [("a", "b"), ("b", "c")]) as network:
        network.start()
        asyncio.run(_first_queue(network, File(network)))


async def _first_queue(network: LiveNetwork, file: File) -> None:
    at_once = asyncio.to_thread
    async with (
        flowing(network) as flow,
        onceway.connect(network.urls("a")) as one,
        onceway.connect(network.urls("b")) as two,
        onceway.connect(network.urls("c")) as three,
    ):
        file.says["addresses"] = [{"match": "orders", "type": "queue"}]
        file.write()
        code, plan, why = await at_once(file.reload)
        assert (code, plan) == (2, "")
        assert (
            "address 'orders' is a queue in this file, and in use as a topic: 1 publisher (at a) and 1 subscription "
            "(at c): close them for good or wait until they are forgotten, or stop the network and start it with this "
            "file\n"
        ) in why
        file.says["addresses"] = [{"match": "jobs", "type": "queue"}]
        file.write()
        code, plan, _ = await at_once(file.reload, "--dry-run")
        assert (code, plan) == (0, "added address jobs\naddress jobs: queue from when all routers follow this file\n")
        await at_once(file.told, "a")
        waiting = [asyncio.create_task(each) for each in (one.subscriber("jobs"), three.publisher("jobs"))]
        why = "is a queue at router a, and a topic at b, c: attach again when all routers follow the same topology file"
        await until(lambda: why in network["a"].log_path.read_text(), "a consumer to be refused")
        await at_once(file.told, "b")
        assert not any(each.done() for each in waiting)
        await at_once(file.told, "c")
        consumer, publisher = await asyncio.gather(*waiting)
        other = await two.subscriber("jobs")
        got: list[bytes] = []

        async def work(subscriber: Any) -> None:
            async for delivery in subscriber:
                got.append(delivery.body)
                await delivery.accept()

        workers = [asyncio.create_task(work(each)) for each in (consumer, other)]
        await (await publisher.put_many([b"%d" % number for number in range(1000)]))
        for each in workers:
            each.cancel()
        assert sorted(got, key=int) == [b"%d" % number for number in range(1000)]
        seen = len(flow.got)
        await until(lambda: len(flow.got) > seen + 100, "more messages of the topic")
    assert not flow.lost


def test_a_first_section_mqtt_comes_with_a_restart_of_one_router_after_the_other(tmp_path: Path) -> None:
    with LiveNetwork(tmp_path, "abc", [("a", "b"), ("b", "c"), ("a", "c")]) as network:
        network.start()
        file = File(network)
        file.says["addresses"] = [{"match": "telemetry", "no_subscribers": "accept"}]
        file.says["mqtt"] = {"topics": {"#": "telemetry"}}
        for place in file.says["routers"].values():
            place["mqtt"] = free_port()
        file.write()
        asyncio.run(_first_mqtt(network, file))


async def _first_mqtt(network: LiveNetwork, file: File) -> None:
    at_once = asyncio.to_thread
    async with flowing(network, "abc", "cba") as flow:
        code, plan, _ = await at_once(file.reload)
        assert code == 0
        assert "shared subscriptions of MQTT: queue from when all routers follow this file\n" in plan
        for name in "abc":
            await at_once(network.stop, name)
            await at_once(network.start, name)
        seen = len(flow.got)
        await until(lambda: len(flow.got) > seen + 100, "more messages of the topic")
    members = [Mqtt(file.says["routers"][name]["mqtt"]) for name in "ab"]
    publisher = Mqtt(file.says["routers"]["c"]["mqtt"])
    for each in members:
        await at_once(each.subscribe, "$share/workers/jobs/#")
    for number in range(100):
        publisher.client.publish("jobs/1", str(number), qos=2)
    await until(lambda: sum(len(each.got) for each in members) >= 100, "each message at a member")
    assert sorted(members[0].got + members[1].got, key=int) == [b"%d" % number for number in range(100)]
    for each in (*members, publisher):
        each.close()


class Mqtt:
    """A client of paho, in a thread of its own."""

    def __init__(self, port: int) -> None:
        self.got: list[bytes] = []
        self.subscribed: list[object] = []
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=f"m{port}", protocol=paho.MQTTv5)
        self.client.on_message = lambda client, data, message: self.got.append(message.payload)
        self.client.on_subscribe = lambda client, data, mid, reasons, properties: self.subscribed.extend(reasons)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def subscribe(self, topic_filter: str) -> None:
        self.client.subscribe(topic_filter, qos=2)
        wait_until(lambda: self.subscribed, "SUBACK")
        assert str(self.subscribed[0]) == "Granted QoS 2"

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
