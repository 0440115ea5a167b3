"""`python -m bench [PROGRAM] [options]`.  Without a program: all comparisons with other brokers, in one run.

table        all comparisons with skupper-router alone
compare      CPU per delivery by subscribers, beside other brokers
latency      time from publisher to subscriber, beside other brokers
wide         CPU per delivery of 40 topics by window, beside other brokers
single       the same of one topic
bodies       CPU per delivery by size of the body, beside other brokers
queue        a filter and a queue beside a topic, and beside skupper-router's anycast
watch        what reading status and metrics of a router with many topics costs
unsettled    whether a delivery costs the same beside what is unsettled, idle or stalled
memory       whether routers forget what is settled
peaks        whether a router gives memory back after a peak
cycles       whether what clients make goes with them, each kind up to a million times
strangers    what their filters, subscriptions and retained topics cost, beside a former release
large        memory for large messages at once, and small ones beside them
core         the protocol's decisions alone
links        a filter and a queue beside a topic, in one router with AMQP
calls        calls, reads and writes of one message in a router
engine       encoding and decoding AMQP alone
mqtt         encoding and decoding MQTT alone
kill         MQTT QoS 2 through kill -9 in mid-stream, beside mosquitto
interrouter  the network of routers alone
scale        the control of networks of 5, 20 and 100 routers
spark        rows a second into Spark
wal          the Spark source's log alone
store        the store of the edges alone
pipe         pushes into a pipe, and readers of it
bus          from a push to the event bus to the call-back
metadata     subscriptions by metadata: a change, memory, messages through one edge

`python -m bench PROGRAM --help` lists the options of one, and explains its figures.
"""

from __future__ import annotations

import sys
from importlib import import_module

from bench import compare

PROGRAMS = (
    "watch", "unsettled", "memory", "peaks", "cycles", "strangers", "large", "calls", "core", "links", "engine", "mqtt",
    "kill", "interrouter", "scale", "spark", "wal", "store", "pipe", "bus", "metadata",
)  # fmt: skip


def main() -> int:
    name, *arguments = sys.argv[1:] or [""]
    if name in ("-h", "--help"):
        print(__doc__)
        return 0
    if name == "table":
        return compare.main(["--peers", "onceway,skrouterd", *arguments], list(compare.TABLES))
    if name in compare.TABLES:
        return compare.main(arguments, [name])
    if name in PROGRAMS:
        try:
            program = import_module(f"bench.{name}")
        except ModuleNotFoundError as missing:
            print(f"bench: {name} needs {missing.name}: pip install 'onceway[spark]'", file=sys.stderr)
            return 2
        status: int = program.main(arguments)
        return status
    if name and not name.startswith("-"):
        print(f"bench: no program {name}; python -m bench --help lists them", file=sys.stderr)
        return 2
    return compare.main(sys.argv[1:], list(compare.TABLES))


if __name__ == "__main__":
    sys.exit(main())
