"""Named schedules of who knows whom: a router that starts, and a subscription that others know only from hearsay.

They join `SCENARIOS`; `membership_defects.py` takes the rule away from the real router and names what must break.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulation.scenarios import ACCEPT, P, S, finish, scenario
from chaos.simulation.schedule import Schedule
from chaos.simulation.world import World

Worlds = Callable[..., World]


def _subscribed_behind_the_back_of(world: Worlds) -> Schedule:
    """C has started again and read B's HELLO; A does not know yet that it has a session with C. S subscribes at A, and
    B is told."""
    s = Schedule(world("ABC", [P()], [S()], address=ACCEPT)).up()
    s.hold.append(("up", "A", "C"))
    s.step("crash", "C")
    s.step("restart", "C")
    s.run()
    s.run(place=(("s0", "A"),))
    assert s.w.subscriber("s0").confirmed
    return s


@scenario
def who_was_to_be_waited_for_is_gone(world: Worlds) -> None:
    """A dies before C has heard its HELLO: what A has told B after B's HELLO is in B's next one (4.4)."""
    s = _subscribed_behind_the_back_of(world)
    s.step("crash", "A")
    s.run(place=(("p0", "C"),))
    assert s.w.site("C").router.core.established  # no need to wait until everybody's subscriptions have expired
    s.send("p0")
    s.run()
    s.run(place=(("s0", "B"),))
    finish(s)


@scenario
def who_was_to_be_waited_for_has_started_again(world: Worlds) -> None:
    """A dies and starts again before anybody has noticed: the HELLO of its next life knows nothing of S (4.4)."""
    s = _subscribed_behind_the_back_of(world)
    s.hold = [("down", "B", "A"), ("up", "B", "A")]
    s.step("crash", "A")
    s.step("restart", "A")
    s.run()
    s.run(place=(("p0", "C"),))
    s.send("p0")
    s.run()
    s.hold.clear()
    s.run(place=(("s0", "B"),))
    assert s.w.site("C").router.core.established
    finish(s)
