"""Secrets on their way in: from a file, the environment or a prompt, never from the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from onceway.base import waits
from onceway.base.private import let_read
from onceway.errors import UsageError

MOST: Final = 64 << 10  # bytes of a file that holds one secret


def read_secret(prompt: str, file: str | None, *, new: bool = False) -> str:
    """The first line of the file (- is standard input), or what is typed. new: it is asked for twice.

    Raises:
        UsageError: There is none.
    """
    if file is not None:
        return secret_of(file)
    if not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask at: give --password-file, - for standard input")
    secret = click.prompt(
        prompt, prompt_suffix="", hide_input=True, confirmation_prompt="Again: " if new else False, err=True
    )
    return str(secret)


def secret_of(file: str) -> str:
    """The file's first line, without its end. UsageError if it cannot be read, or there is nothing."""
    try:
        if file == "-":
            text = waits.STDIN(sys.stdin.readline)()
        else:
            with Path(file).open(encoding="utf-8") as opened:
                text = opened.readline(MOST)
    except (OSError, UnicodeDecodeError) as error:
        why = f"{error.strerror}{let_read(error)}" if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{file} cannot be read: {why}") from error
    secret = text.rstrip("\r\n")
    if not secret:
        raise UsageError(f"{'standard input' if file == '-' else file}: there is no secret in the first line")
    return secret
