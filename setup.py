"""Builds the wheel. Where a C compiler is there, mypyc compiles the engine, the codec of MQTT, the router, the network
and what carries their bytes. Elsewhere, and for editable installs, the sources are taken as they are.

It is the backend that pyproject.toml names (PEP 517), and the `setup.py` that setuptools runs for it.
ONCEWAY_COMPILED=0 compiles nothing; with ONCEWAY_COMPILED=1 it is an error where nothing can be compiled.
ONCEWAY_OPTIMIZATION=0 takes half of the time, for tests. All else about the distribution is in pyproject.toml;
docs/decisions/compiled.md says why, and what stays interpreted.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

MYPY = "mypy>=1.11,<3"
# Types are `make check`'s to judge: what the sources import need not be there to compile them.
OPTIONS = ("--config-file=", "--ignore-missing-imports", "--follow-imports=silent")
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


def lacking() -> str:
    """Why nothing is compiled here, and the remedy; empty if it is."""
    if os.environ.get("ONCEWAY_COMPILED") == "0":
        return "ONCEWAY_COMPILED=0 asks for none"
    if sys.implementation.name != "cpython":
        return f"mypyc compiles for CPython, and this is {sys.implementation.name}"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler {compiler} (Debian: apt-get install gcc libc6-dev)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "there is no Python.h (Debian: apt-get install python3-dev)"
    return ""


# -- the backend; what is not here is setuptools'


def __getattr__(name: str) -> Any:
    from setuptools import build_meta

    return getattr(build_meta, name)


def get_requires_for_build_wheel(config_settings: Any = None) -> Sequence[str]:
    return () if lacking() else (MYPY,)


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    from setuptools import build_meta

    why = lacking()
    if why and os.environ.get("ONCEWAY_COMPILED") == "1":
        sys.exit(f"ONCEWAY_COMPILED=1, and nothing can be compiled: {why}")
    os.environ["ONCEWAY_COMPILED"] = "0" if why else "1"
    return build_meta.build_wheel(directory, config_settings, metadata_directory)


# -- setup.py


def set_up() -> None:
    from setuptools import setup

    if os.environ.get("ONCEWAY_COMPILED") != "1" or not {"bdist_wheel", "build_ext"}.intersection(sys.argv):
        setup()
        return
    from mypyc.build import mypycify
    from setuptools.command.build_ext import build_ext

    class SideBySide(build_ext):  # type: ignore[misc]
        """A module has a file of C, and each processor compiles one at a time."""

        def build_extensions(self) -> None:
            one = self.compiler.compile

            def compiled(sources: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                    return list(chain.from_iterable(pool.map(lambda source: one([source], **options), sources)))

            self.compiler.compile = compiled
            super().build_extensions()

    # a file for each module: gcc would take gigabytes for one of them all
    level = os.environ.get("ONCEWAY_OPTIMIZATION", "2")
    extensions = mypycify([*OPTIONS, *modules()], opt_level=level, debug_level="0", multi_file=True)
    setup(ext_modules=extensions, cmdclass={"build_ext": SideBySide})


if __name__ == "__main__":
    set_up()
