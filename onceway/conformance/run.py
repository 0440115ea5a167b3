"""Runs the checks one after the other, each with a client that knows nothing yet, and tells each in a line."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from onceway.conformance import publishers, subscribers
from onceway.conformance.checks import CLAIMS, TABLE, Check, Failed, Stage
from onceway.errors import UsageError

assert publishers, subscribers  # they enter their checks into the table


def chosen(names: Sequence[str]) -> list[Check]:
    """The checks of these names, all without one. UsageError for a name that is none's."""
    for name in names:
        if name not in TABLE:
            from onceway.topology.document import suggest

            raise UsageError(f'no check "{name}"; {suggest(name, list(TABLE), "checks are")}')
    return [check for name, check in TABLE.items() if not names or name in names]


def claims_of(command: Sequence[str], patience_s: float) -> list[str]:
    """What the client says that it can. UsageError if it cannot be started, or says nothing of the kind."""
    with tempfile.TemporaryDirectory(prefix="onceway-conformance-") as directory:
        stage = Stage(command, Path(directory), patience_s)
        try:
            claims = stage.start().claims
        except OSError as error:
            raise UsageError(f"{command[0]}: {error.strerror}") from None
        except Failed:
            raise UsageError(f"the client did not write its first line, `client CLAIM...`{stage.errors()}") from None
        finally:
            stage.close()
    unknown = [claim for claim in claims if claim not in CLAIMS]
    if unknown or not {"publisher", "subscriber"} & {*claims}:
        raise UsageError(f"the client claims `{' '.join(claims)}`; claims are {', '.join(CLAIMS)}")
    return claims


def run(command: Sequence[str], names: Sequence[str], patience_s: float, say: Callable[[str], None]) -> bool:
    """Whether no check has failed.

    Args:
        command: The client's words.
        names: The checks, all if there is none.
        patience_s: How long each thing is waited for, in seconds.
        say: Takes a line for each check, and the tally.

    Raises:
        UsageError: There is no such check, or no client.
    """
    checks = chosen(names)
    claims = claims_of(command, patience_s)
    tally: Counter[str] = Counter()
    for check in checks:
        lacking = [claim for claim in check.needs if claim not in claims]
        if lacking:
            tally["skipped"] += 1
            say(f"skipped {check.name}: the client does not claim {', '.join(lacking)}")
            continue
        failure = _failure(check, command, patience_s)
        tally["failed" if failure else "ok"] += 1
        say(f"failed {check.name}: {failure}" if failure else f"ok {check.name}")
    say(", ".join(f"{kind} {tally[kind]}" for kind in ("ok", "failed", "skipped")))
    return not tally["failed"]


def _failure(check: Check, command: Sequence[str], patience_s: float) -> str:
    with tempfile.TemporaryDirectory(prefix="onceway-conformance-") as directory:
        stage = Stage(command, Path(directory), patience_s)
        try:
            check.run(stage)
        except Failed as failed:
            return f"{failed} ({check.rule}){stage.errors()}"
        finally:
            stage.close()
    return ""
