"""What sessions of MQTT take beside messages, in octets, as `router.core.holding` counts it.

A session lives on without its client, with its filters and its will; so who makes sessions and leaves them would
otherwise take all there is. Messages are counted by the core, and by `router.mqtt.messages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqtt import Will
    from router.mqtt.filters import Filter

SESSION: Final = 8 << 10  # octets of a session without filters, with its ports and what the core knows of it, about
FILTER: Final = 1 << 10  # octets of a filter beside its text: its levels in the tree, mostly
PAIR: Final = 200  # octets of a user property beside its texts


def octets_of_filter(one: Filter) -> int:
    return FILTER + 2 * len(one.form) * len(one.addresses)


def octets_of_will(will: Will | None) -> int:
    if will is None:
        return 0
    texts = sum(len(name) + len(value) + PAIR for name, value in will.properties.user_properties)
    data = will.properties.correlation_data or b""
    others = (will.properties.content_type or "", will.properties.response_topic or "")
    return len(will.topic) + len(will.payload) + len(data) + sum(map(len, others)) + texts
