"""How long clients were without their network: from the kill of the router that a client was attached to, to the first
delivery at the router that it went to: `onceway chaos recovery DIRECTORY`.

For a subscriber that is the first delivery handed to the application after its link was answered there; for a
publisher, the first outcome after that.  Read from the history alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaos.judge.history import Event


@dataclass(frozen=True, slots=True)
class Recovery:
    role: str  # p, s
    client: str  # its name
    library: str  # onceway, proton, rhea
    killed: str  # the router
    at: float
    attached_s: float  # until the link was answered at the new router
    delivered_s: float  # until the first delivery there


@dataclass(slots=True)
class _State:
    router: str | None = None
    killed: tuple[str, float] | None = None
    attached: float | None = None


def recoveries(events: Iterable[Event]) -> list[Recovery]:
    """Those that were complete; a client whose router was killed again before its first delivery counts from the
    first kill."""
    libraries: dict[tuple[str, str], str] = {}
    states: dict[tuple[str, str], _State] = {}
    found = []
    for event in events:
        fields = event.fields
        match event.op:
            case "run":
                for role, key in (("p", "publishers"), ("s", "subscribers")):
                    libraries |= {(role, one["name"]): one.get("client", "onceway") for one in fields[key]}
            case "fault" if fields["kind"] == "kill" and fields["target"].startswith("router "):
                router = fields["target"].removeprefix("router ")
                for state in states.values():
                    if state.router == router:
                        state.killed = state.killed or (router, event.t)
                        state.router = state.attached = None
            case "start":
                states[event.client] = _State()  # its own death is another story
            case "attached":
                state = states.setdefault(event.client, _State())
                state.router, state.attached = fields["router"], event.t
            case "receive" | "outcome":
                who = ("s", fields["s"]) if event.op == "receive" else ("p", fields["p"])
                state = states.setdefault(who, _State())
                if state.killed is not None and state.attached is not None:
                    router, killed = state.killed
                    found.append(
                        Recovery(
                            who[0],
                            who[1],
                            libraries.get(who, "onceway"),
                            router,
                            killed,
                            state.attached - killed,
                            event.t - killed,
                        )
                    )
                    state.killed = None
    return found


def longest_waits(events: Iterable[Event]) -> dict[str, float]:
    """By publisher: the longest time from giving a message to the client library to its outcome, in seconds. It
    includes the wait for credit."""
    sent: dict[tuple[str, int], float] = {}
    longest: dict[str, float] = {}
    for event in events:
        if event.op not in ("send", "outcome"):
            continue
        message = event.fields["p"], event.fields["n"]
        if event.op == "send":
            sent.setdefault(message, event.t)
        elif message in sent:
            waited = event.t - sent.pop(message)
            longest[message[0]] = max(longest.get(message[0], 0.0), waited)
    return longest


def summary(found: Sequence[Recovery]) -> list[str]:
    """A line for each kind of client."""
    groups: dict[tuple[str, str], list[float]] = {}
    for one in found:
        groups.setdefault((one.library, one.role), []).append(one.delivered_s)
    lines = []
    for (library, role), times in sorted(groups.items()):
        who = "publishers" if role == "p" else "subscribers"
        times.sort()
        lines.append(
            f"kill to first delivery at the new router, {library} {who}: median {statistics.median(times):.3f} s, "
            f"90 % within {times[math.ceil(0.9 * len(times)) - 1]:.3f} s, most {times[-1]:.3f} s ({len(times)} times)"
        )
    return lines
