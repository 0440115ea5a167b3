"""OpenStack's RPC and notifications, by oslo.messaging's AMQP 1.0 driver; tests/interop/test_oslo.py runs it.

oslo_does.py serve URL NAME: an RPC server NAME, which also listens to notifications. Prints `serving`.

oslo_does.py ask URL KIND:COUNT...: does these one after the other, and prints what a call returns, `sent`, or `again`
where it was told that it has failed and does it again. Numbers begin at 0 for each. `told:COUNT` asks the servers `one`
and `two` what they were told by casts, fanouts and notifications until that is so much, and prints it.
"""

import logging
import sys
from threading import Event

import oslo_messaging
from oslo_config import cfg
from oslo_messaging import MessageDeliveryFailure, MessagingTimeout, Target

TOPIC = "work"
SERVERS = ("one", "two")
WAIT_S = 10

what, url, *rest = sys.argv[1:]
logging.basicConfig(stream=sys.stderr, level=logging.INFO)
cfg.CONF([], project="interop")
rpc = oslo_messaging.get_rpc_transport(cfg.CONF, url=url)
notifications = oslo_messaging.get_notification_transport(cfg.CONF, url=url)


def say(text):
    print(text, flush=True)


class Endpoint:
    def __init__(self):
        self.lines = []

    def told(self, context):
        return self.lines

    def double(self, context, number):
        return f"{rest[0]} {2 * number}"

    def note(self, context, kind, number):
        self.lines.append(f"{rest[0]} {kind} {number}")

    def info(self, context, publisher, kind, payload, metadata):
        self.lines.append(f"{rest[0]} {kind} {payload}")


def serve():
    target = Target(topic=TOPIC, server=rest[0])
    server = oslo_messaging.get_rpc_server(rpc, target, [Endpoint()], executor="threading")
    listener = oslo_messaging.get_notification_listener(
        notifications, [Target(topic=TOPIC)], [Endpoint()], executor="threading"
    )
    server.start()
    listener.start()
    say("serving")
    Event().wait()


def ask():
    client = oslo_messaging.get_rpc_client(rpc, Target(topic=TOPIC), timeout=WAIT_S)
    notifier = oslo_messaging.Notifier(notifications, "interop", driver="messaging", topics=[TOPIC])
    actions = {
        "call": lambda number: client.call({}, "double", number=number),
        "cast": lambda number: client.cast({}, "note", kind="cast", number=number),
        "fanout": lambda number: client.prepare(fanout=True).cast({}, "note", kind="fanout", number=number),
        "notify": lambda number: notifier.info({}, "notify", number),
    }
    for step in rest:
        kind, _, count = step.partition(":")
        number, told = 0, []
        while number < int(count):
            try:
                if kind == "told":
                    told = [line for name in SERVERS for line in client.prepare(server=name).call({}, "told")]
                    number = len(told)
                else:
                    say(actions[kind](number) or "sent")
                    number += 1
            except (MessageDeliveryFailure, MessagingTimeout):
                say("again")
        for line in told:
            say(line)
    rpc.cleanup()
    notifications.cleanup()


serve() if what == "serve" else ask()
