"""Every command in the documents exists with its options."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from onceway.cli import cli

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md"), *ROOT.glob("examples/**/README.md")]
)
# In a block, after a prompt or at the beginning of an indented line; or as code in a sentence.
FOUND = re.compile(
    r"(?:^\s*(?:\$ )?|`|\| )(?P<command>(?:[A-Z_]+=\S+ )?(?:onceway|make|(?:\.venv/bin/)?python -m (?:chaos|bench|onceway))\b[^`\n#]*)",
    re.MULTILINE,
)


def commands(document: Path) -> list[str]:
    text = document.read_text(encoding="utf-8")
    code = re.findall(r"^```console(?: [^\n]*)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in code for line in block.splitlines() if line.startswith("$ ")]
    lines += re.findall(r"^ {4}[^\n]*(?:python -m|onceway) [^\n]*$", text, re.MULTILINE)
    lines += re.findall(r"`((?:[A-Z_]+=\S+ )?(?:onceway|make|(?:\.venv/bin/)?python -m) [^`]+)`", text)
    found = []
    for line in lines:
        match = FOUND.search(line)
        if match:
            found.append(re.split(r"\s{3,}", match["command"].strip())[0])
    return found


def words(command: str) -> list[str]:
    """Its words, without the environment before it and what stands for something else (`A|B`, `[--json]`, `DIR...`)."""
    plain = command.replace("[", " ").replace("]", " ").replace("…", "").replace("...", "")
    return [word for word in shlex.split(plain) if not re.fullmatch(r"[A-Z_]+=.*", word)]


@functools.cache
def help_of(module: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.stdout


def check_onceway(arguments: list[str]) -> None:
    arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments  # then another program's words
    command: click.Command = cli
    context = click.Context(cli, info_name="onceway")
    options = [word.split("=")[0] for word in arguments if word.startswith("--")]
    for word in arguments:
        if not isinstance(command, click.Group) or word.startswith("-") or word.isupper():
            break
        for name in word.split("|"):
            inner = command.get_command(context, name)
            assert inner is not None, f"no command {name!r}"
        command = inner
    known = {name for parameter in command.get_params(context) for name in (*parameter.opts, *parameter.secondary_opts)}
    for option in options:
        assert option in known, f"no option {option}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_exists_with_its_options(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in commands(document):
        program, *arguments = words(command)
        try:
            if program == "make":
                assert next(word for word in arguments if "=" not in word) in targets, "no such target"
            elif program == "onceway":
                check_onceway(arguments)
            else:
                module = arguments[1]
                assert find_spec(module) is not None, f"no module {module}"
                for option in (word for word in arguments[2:] if word.startswith("--")):
                    assert option.split("=")[0] in help_of(module), f"{module} has no {option}"
        except AssertionError as error:
            raise AssertionError(f"{document.relative_to(ROOT)}: {command!r}: {error}") from None


def test_the_documents_have_commands_to_check() -> None:
    assert sum(len(commands(document)) for document in DOCUMENTS) > 60
