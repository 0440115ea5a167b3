"""Why a subscription does not take a delivery: told to the publisher's router before its outcome (protocol 6.4.9).

A router that rejects in a subscription's stead does so by a `Refusal`, which has a reason. It comes through here, or,
where the publisher's router counts failures, through `Records.refuse`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from router.core import messages as m
from router.core.intervals import IntervalSet, Range
from router.core.irregular import Irregular, State
from router.core.ports import Refusal

if TYPE_CHECKING:
    from router.core.subscriber import BaseDeliveries, Subscriber


def tell_why(deliveries: BaseDeliveries, subscriber: Subscriber, first: int, last: int, why: bytes | Refusal) -> None:
    """Says it of the delivery-ids first..last that are undecided."""
    ranges: list[Range] = []
    for sent, low, high in subscriber.sent.ids.pieces(first, last + 1):
        ranges += subscriber.owes.overlap(sent.start + low, sent.start + high)
    undecided = [each for each in deliveries.irregular_between(subscriber, first, last) if each.state is State.SENT]
    tell_of(deliveries, subscriber, ranges, undecided, why)


def tell_of(
    deliveries: BaseDeliveries, subscriber: Subscriber, ranges: Iterable[Range], singles: Iterable[Irregular],
    why: bytes | Refusal,
) -> None:  # fmt: skip
    """Says it of log positions and deliveries. One whose ingress is away has nobody to be told."""
    log, core = deliveries.log, deliveries.core
    local = IntervalSet(ranges)
    found: dict[str, IntervalSet] = {}
    for delivery in singles:
        if delivery.ingress is not None:
            at = delivery.ingress_position
            found.setdefault(delivery.ingress, IntervalSet()).add(at, at + 1)
        elif delivery.position >= 0:
            local.add(delivery.position, delivery.position + 1)
    for start, stop in local:
        for run, low, high in log.runs.pieces(start, stop):
            found.setdefault(run.ingress, IntervalSet()).add(run.position + low, run.position + high)
    if isinstance(why, Refusal):
        number = sum(positions.size for positions in found.values())
        core.owner.rejections.note(deliveries.address.name, subscriber.name, why, number)
        why = core.owner.reason_of(why)
    for ingress, positions in found.items():
        core.post.send_to(ingress, m.Reason(deliveries.address.name, list(positions), why))
