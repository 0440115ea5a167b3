"""The exchanges that are drawn in docs/diagrams happen so: each is played in the simulation, and its trace has the
arrows of the picture, in their order between any two who speak to one another.

Pictures leave out what every exchange has (further flows, heartbeats, echoes of attaches), so an arrow of the trace may
be missing in the picture, and none of the picture in the trace. Notes are prose, and not compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.simulation.scenarios.schedule import ACCEPT, EXPIRY_S, SHORT, P, S, Schedule, Worlds
from chaos.simulation.world.trace import Trace
from chaos.simulation.world.world import World
from router.config import AddressConfig

DIAGRAMS = Path(__file__).resolve().parents[2] / "docs" / "diagrams"
BY_OTHERS = {"kept-map"}  # its client speaks MQTT, of which this trace knows nothing
ARROW = re.compile(r"(\w+) -> (\w+): (.*?)(?: \[[\d.]+\])?")
MESSAGE = re.compile(r"ACCEPT of SYNC entries|SETTLE of tags|\b[A-Z]{3,}\b")
FRAMES = {  # as they begin in a picture -> in a trace
    r"attach": r"attach",
    r"(?:flow|with credit)": r"flow",
    r"transfers? ": r"transfer(?!.*resumed)",
    r".*, resume": r"transfer.* resumed",
    r"(?:the )?accepted": r"disposition.* accepted",
    r"settled": r"disposition.* settled",
    r"released": r"disposition.* released",
    r"detach": r"detach",
}


def large_ingress_dies(world: Worlds) -> None:
    """A dies when two parts of three have passed through."""
    publisher = P()
    publisher.size, publisher.stops = 6_000, 1_500
    s = Schedule(world("AB", [publisher], [S()], stream_above=1_000)).up("s0@B", "p0@A").hold(("go_on",)).send("p0")
    s.step("go_on", "p0").run().step("go_on", "p0").run()
    s.step("crash", "A").run().attach("p0@B").release().run()


def announced(world: Worlds) -> None:
    """P attaches for the second time, with a map."""
    s = Schedule(world("ABC", [P()], [S()])).up("s0@B", "p0@A")
    s.hold(("accept",)).send("p0").run().lose("p0").attach("p0@A")


def delivered(world: Worlds) -> None:
    Schedule(world("ABC", [P()], [S("s0"), S("s1")])).up("s0@B", "s1@C", "p0@A").send("p0").run()


def settled(world: Worlds) -> None:
    s = Schedule(world("AB", [P()], [S()])).up("s0@B", "p0@A").send("p0").run()
    s.hold(("settle",)).send("p0").run().lose("p0").attach("p0@A").release().run()


def subscribers_router_dies(world: Worlds) -> None:
    s = Schedule(world("ABC", [P()], [S(credit=1)])).up("s0@C", "p0@A").hold(("accept",)).send("p0", 2).run()
    s.step("crash", "C").run().attach("s0@B").finish()


def publishers_router_dies(world: Worlds) -> None:
    """S accepts the first of three, and gives no more credit: the third is still queued when A dies."""
    s = Schedule(world("AB", [P()], [S(credit=2)])).up("s0@B", "p0@A").hold(("settle",))
    more_credit = ("c2r", s.cid("s0"))
    s.send("p0").run(until=lambda: s.next_frame(more_credit[1]) == "flow").hold(more_credit, ("accept",))
    s.run().send("p0", 2).run()
    s.step("crash", "A").run().attach("p0@B").release().run()


def partition(world: Worlds) -> None:
    s = Schedule(world("AB", [P()], [S("s0"), S("s1")], strict=False, address=SHORT)).up("p0@A", "s1@A", "s0@B")
    s.step("part", "A").run().send("p0").run().pass_time(EXPIRY_S).run()
    s.step("heal").run().finish()


def all_die(world: Worlds) -> None:
    s = Schedule(world("AB", [P()], [S()])).up("s0@B", "p0@A").hold(("accept",)).send("p0").run()
    s.step("crash", "A").step("crash", "B").step("restart", "A").step("restart", "B")
    s.attach("p0@A").attach("s0@B").release().finish()


def router_starts_again(world: Worlds) -> None:
    s = Schedule(world("ABC", [P()], [S()], address=ACCEPT)).up("s0@C", "p0@A")
    s.step("crash", "C").run().step("restart", "C").run().attach("s0@C").finish()


def queued(world: Worlds) -> None:
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")], address=AddressConfig(type="queue")))
    s.up("s0@B", "s1@C", "p0@A").hold(("accept",)).send("p0").run()
    s.step("release", "s0", 0).run().release().run()


PLAYED: dict[str, tuple[Callable[[Worlds], None], str]] = {
    "all-die": (all_die, "P:p0 S:s0"),
    "announce": (announced, "P:p0"),
    "large": (large_ingress_dies, "P:p0 S:s0"),
    "normal-delivery": (delivered, "P:p0 S1:s0 S2:s1"),
    "partition-heals": (partition, "P:p0 S:s0 T:s1"),
    "publishers-router-dies": (publishers_router_dies, "P:p0 S:s0"),
    "queue": (queued, "P:p0 C1:s0 C2:s1"),
    "routers": (router_starts_again, "S:s0"),
    "settle": (settled, "P:p0 S:s0"),
    "subscribers-router-dies": (subscribers_router_dies, "P:p0 S:s0"),
}


def drawn(text: str, names: dict[str, str]) -> dict[tuple[str, str], list[str]]:
    """(from, to) -> patterns of what is said, in order. A line that says "the same" repeats the arrow above it."""
    found: dict[tuple[str, str], list[str]] = {}
    routers = set(re.findall(r"(\w+):router", text))
    last = ""
    for source, sink, words in (match.groups() for line in text.splitlines() if (match := ARROW.fullmatch(line))):
        last = said = last if words.startswith("the same") else words
        between_routers = {source, sink} <= routers
        patterns = found.setdefault((names.get(source, source), names.get(sink, sink)), [])
        if between_routers:
            patterns += [rf"{kind_of(name)}\b" for name in MESSAGE.findall(said)]
        else:
            for part in re.split(r"; ", said):
                patterns += [seen for begins, seen in FRAMES.items() if re.match(begins, part)]
        assert patterns, f"{source} -> {sink}: {words}: of what kind is that?"
    return found


def kind_of(name: str) -> str:
    return {"ACCEPT of SYNC entries": "ACCEPTSYNC", "SETTLE of tags": "SETTLETAGS"}.get(name, name)


@pytest.mark.parametrize("name", sorted(path.stem for path in DIAGRAMS.glob("*.txt")))
def test_what_is_drawn_happens_so(name: str) -> None:
    """Protocol 4.2.1, 4.2.2, 4.4.7, 5.5.6, 6.3.2, 6.6.5, 7.3.11, 7.4.1, 16.3.1, 16.3.3, 16.5.2."""
    if name in BY_OTHERS:
        return
    play, lanes = PLAYED[name]
    traces: list[Trace] = []

    def world(*args: object, **options: object) -> World:
        made = World(*args, **options)  # type: ignore[arg-type]
        traces.append(Trace(made))
        return made

    play(world)
    (trace,) = traces
    names = dict(lane.split(":") for lane in lanes.split())
    for (source, sink), patterns in drawn((DIAGRAMS / f"{name}.txt").read_text(), names).items():
        rows = (row.text for row in trace.rows if (row.source, row.sink) == (source, sink))
        said = iter([part for text in rows for part in text.split("; ")])
        for pattern in patterns:
            assert any(re.match(pattern, text) for text in said), (
                f"{source} -> {sink}: no {pattern} after what is drawn above it\n{trace.text()}"
            )
