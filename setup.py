"""Compiles the engine, the codec of MQTT, the router and the network with mypyc, where ONCEWAY_COMPILED=1 asks for it,
and what carries their bytes.

All else about the distribution is in pyproject.toml; docs/decisions/compiled.md says why, and what stays interpreted.
"""

import os
from pathlib import Path

from setuptools import setup

PACKAGES = ("amqp10", "interrouter", "mqtt", "router")
CARRIERS = {
    "onceway/serve/clients.py",
    "onceway/serve/neighbours.py",
    "onceway/serve/server.py",
    "onceway/serve/transport.py",
    # No interpreted class can inherit from a compiled Carrier.
    "edges/metadata/serve.py",
    "edges/pipe/listener.py",
}
INTERPRETED = {
    # They subclass builtins, or are made by amqp10.composite from tables when they are imported.
    "amqp10/types.py",
    "amqp10/composite.py",
    "amqp10/performatives.py",
    "amqp10/outcomes.py",
    "amqp10/sections.py",
    "amqp10/termini.py",
    "amqp10/sasl.py",
    # Dataclasses with slots: the class that the decorator makes is not the one that was compiled.
    "amqp10/events.py",
    "amqp10/scram.py",
    "amqp10/settings.py",
    "interrouter/events.py",
    "interrouter/linkstate.py",
    "interrouter/trunk.py",
    "mqtt/packets.py",
    "router/config.py",
    "router/core/messages.py",
    "router/core/ports.py",
    "router/core/recovery.py",
    "router/links/negotiation.py",
    # A transformer of lark with closures in its methods: mypyc stops with an internal error.
    "router/links/predicate.py",
    "router/links/selector.py",
    # A protocol, and methods that are one function under several names.
    "router/reporting.py",
}


def modules() -> list[str]:
    found = [str(path) for package in PACKAGES for path in sorted(Path(package).rglob("*.py"))]
    assert set(found) >= INTERPRETED, f"no such module: {sorted(INTERPRETED.difference(found))}"
    return [
        *(path for path in found if path not in INTERPRETED and not path.endswith("__init__.py")),
        *sorted(CARRIERS),
    ]


if __name__ != "__main__":
    pass  # tests/test_compiled.py asks for the modules
elif not os.environ.get("ONCEWAY_COMPILED"):
    setup()
else:
    try:
        from mypyc.build import mypycify
    except ImportError:  # pip asks for what the build needs first, and installs it before it builds
        setup(setup_requires=["mypy>=1.11,<3"])
    else:
        # a file for each module: gcc would take gigabytes for one of them all
        compiled = mypycify(modules(), opt_level="2", debug_level="0", multi_file=True)
        setup(setup_requires=["mypy>=1.11,<3"], ext_modules=compiled)
