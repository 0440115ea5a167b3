"""Why a subscription does not take a delivery: told to the publisher's router before its outcome (protocol 6.4.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core import messages as m
from router.core.intervals import IntervalSet
from router.core.irregular import State

if TYPE_CHECKING:
    from router.core.subscriber import BaseDeliveries, Subscriber


def tell_why(deliveries: BaseDeliveries, subscriber: Subscriber, first: int, last: int, why: bytes) -> None:
    """Says it of the delivery-ids first..last that are undecided. One whose ingress is away has nobody to be told."""
    log = deliveries.log
    local = IntervalSet()
    found: dict[str, IntervalSet] = {}
    for sent, low, high in subscriber.sent.ids.pieces(first, last + 1):
        local.add_all(subscriber.owes.overlap(sent.start + low, sent.start + high))
    for delivery in deliveries.irregular_between(subscriber, first, last):
        if delivery.state is not State.SENT:
            continue
        if delivery.ingress is not None:
            at = delivery.ingress_position
            found.setdefault(delivery.ingress, IntervalSet()).add(at, at + 1)
        elif delivery.position >= 0:
            local.add(delivery.position, delivery.position + 1)
    for start, stop in local:
        for run, low, high in log.runs.pieces(start, stop):
            found.setdefault(run.ingress, IntervalSet()).add(run.position + low, run.position + high)
    for ingress, positions in found.items():
        deliveries.core.post.send_to(ingress, m.Reason(deliveries.address.name, list(positions), why))
