"""The settle modes that ask for a guarantee, and the guarantee that an answer offers."""

from __future__ import annotations

from amqp10.link import Link
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_SETTLED, SND_UNSETTLED, Attach
from router.names import GUARANTEE, GUARANTEES, Guarantee

# (snd-settle-mode, rcv-settle-mode)
MODES: dict[Guarantee, tuple[int, int]] = {
    "exactly-once": (SND_UNSETTLED, RCV_SECOND),
    "at-least-once": (SND_UNSETTLED, RCV_FIRST),
    "at-most-once": (SND_SETTLED, RCV_FIRST),
}


def offered(link: Link, answer: Attach) -> Guarantee:
    """What the network says it gives, or, of a peer that does not say, what its settle modes come to."""
    word = (answer.properties or {}).get(GUARANTEE)
    for guarantee in GUARANTEES:
        if word == guarantee:
            return guarantee
    if link.snd_settle_mode == SND_SETTLED:
        return "at-most-once"
    return "exactly-once" if link.rcv_settle_mode == RCV_SECOND else "at-least-once"


def less(guarantee: Guarantee, asked: Guarantee) -> bool:
    return GUARANTEES.index(guarantee) > GUARANTEES.index(asked)
