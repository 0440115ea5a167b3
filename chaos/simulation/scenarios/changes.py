"""The topology file changes while routers run, at some of them first (protocol 12.6 to 12.9).

Read `absences.py` for what is forgotten when.
"""

from __future__ import annotations

from dataclasses import replace

from chaos.simulation.scenarios.schedule import PUBLISHER_EXPIRY_S, SHORT, P, S, Schedule, Worlds, half_accepted

SOONER = replace(SHORT, publisher_timeout_s=55.0)


def publisher_away_while_its_timeout_is_lowered(world: Worlds) -> None:
    """P has been told 100 s and leaves. B, where S0 is, is told of a file that says 55 s. P is back after 70 s, with
    what S0 has accepted (protocol 12.7)."""
    s = half_accepted(world, "B", "A", "A", strict=False, address=SHORT)
    s.lose("p0").run()
    s.reload("B", addresses=(SOONER,), defaults=SOONER)
    s.pass_time(70.0).attach("p0@A").finish()


def publisher_at_a_router_that_not_all_have_in_their_file(world: Worlds) -> None:
    """C is new: A's file has it, B's not yet. P works there, in a partition that makes all of it that B knows longer
    away than its timeout. Had B not heard of C's being in the file, it would settle at S0 what P still has (protocol
    12.8)."""
    s = Schedule(world("ABC", [P()], [S("s0"), S("s1")], strict=False, address=SHORT))
    s.reload("B", routers=("A", "B")).up("s0@B", "s1@C", "p0@C")
    s.hold(("accept", "s1"), ("msg", "B", "C")).send("p0").run().step("part", "C").run()
    s.pass_time(PUBLISHER_EXPIRY_S).run()
    s.step("heal")
    s.release(("msg", "B", "C")).run()
    s.finish()


def publisher_at_a_router_that_is_removed(world: Worlds) -> None:
    """C dies with P, which does not come back. S0 has accepted what nobody settles while C is in the file (protocol
    8.6.2, 12.8)."""
    s = half_accepted(world, "B", "B", "C", names="ABC", strict=False, address=SHORT)
    s.step("crash", "C").release().run()
    s.pass_time(PUBLISHER_EXPIRY_S).run()
    assert not s.w.site("B").router.core.members.together_since < s.w.now
    s.reload("AB", routers=("A", "B")).run()
    s.pass_time(PUBLISHER_EXPIRY_S).run()
    left = s.w.router_left_over(s.w.site("B").router)
    assert not left, f"G4 {left}"
