"""OpenStack's RPC and notifications by oslo.messaging's AMQP 1.0 driver; tests/interop/test_oslo.py says who runs it.

oslo_does.py serve URL NAME: an RPC server NAME, and a listener of notifications; prints `serving`, then what it is told.
oslo_does.py ask URL: takes lines from stdin: `call N`, `call N SERVER`, `cast N`, `fanout N`, `notify N`; prints each answer.
"""

import logging
import sys
import time

import oslo_messaging
from oslo_config import cfg

logging.basicConfig(stream=sys.stderr, level=logging.INFO)
what, url, *rest = sys.argv[1:]
conf = cfg.CONF
conf([], project="interop")
TOPIC = "work"


def say(text):
    print(text, flush=True)


class Endpoint:
    def __init__(self, name):
        self.name = name

    def double(self, context, number):
        return f"{self.name} {2 * number}"

    def note(self, context, kind, number):
        say(f"{kind} {number}")

    def info(self, context, publisher, kind, payload, metadata):
        say(f"{kind} {payload}")


def serve(name):
    target = oslo_messaging.Target(topic=TOPIC, server=name)
    transport = oslo_messaging.get_rpc_transport(conf, url=url)
    endpoint = Endpoint(name)
    server = oslo_messaging.get_rpc_server(transport, target, [endpoint], executor="threading")
    notifications = oslo_messaging.get_notification_transport(conf, url=url)
    listener = oslo_messaging.get_notification_listener(
        notifications, [oslo_messaging.Target(topic=TOPIC)], [endpoint], executor="threading"
    )
    server.start()
    listener.start()
    say("serving")
    while True:
        time.sleep(60)


def ask():
    transport = oslo_messaging.get_rpc_transport(conf, url=url)
    client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic=TOPIC), timeout=30, retry=10)
    notifications = oslo_messaging.get_notification_transport(conf, url=url)
    notifier = oslo_messaging.Notifier(notifications, "interop", driver="messaging", topics=[TOPIC], retry=10)
    for line in sys.stdin:
        kind, number, *server = line.split()
        if kind == "call":
            say(client.prepare(server=server[0] if server else None).call({}, "double", number=int(number)))
        elif kind == "notify":
            notifier.info({}, "notify", int(number))
            say("notified")
        else:
            client.prepare(fanout=kind == "fanout").cast({}, "note", kind=kind, number=int(number))
            say("sent")


if what == "serve":
    serve(rest[0])
else:
    ask()
