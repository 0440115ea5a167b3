"""A client of MQTT that goes on with its session at another router: paho-mqtt, version 3.1.1, QoS 2."""

from __future__ import annotations

import threading

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion


class Roamer:
    """Connects to the next of its ports when its connection is lost. It subscribes again where its session is gone."""

    def __init__(self, name: str, ports: list[int], topic: str = "", in_flight: int = 50) -> None:
        """topic: that it subscribes to; "": none."""
        self.ports = ports
        self.topic = topic
        self.present: list[bool] = []  # of each CONNACK
        self.subscribed = threading.Event()
        self.got: list[int] = []
        self.client = paho.Client(CallbackAPIVersion.VERSION2, name, clean_session=False, protocol=paho.MQTTv311)
        self.client.max_inflight_messages_set(in_flight)
        self.client.max_queued_messages_set(0)
        self.client.on_connect = self._connected
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        self.client.on_message = lambda _client, _data, message: self.got.append(int(message.payload))
        self.client.on_disconnect = self._lost
        self.client.reconnect_delay_set(1, 1)
        self.client.connect("127.0.0.1", ports[0])
        self.client.loop_start()

    def _connected(self, _client: object, _data: object, flags: paho.ConnectFlags, reason: object, _: object) -> None:
        if str(reason) == "Success":
            self.present.append(flags.session_present)
            if self.topic and not flags.session_present:
                self.client.subscribe(self.topic, 2)

    def _lost(self, *_: object) -> None:
        self.ports.append(self.ports.pop(0))
        self.client.connect_async("127.0.0.1", self.ports[0])

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
