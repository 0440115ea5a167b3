"""What the routers' cores wait for: their timers, and the questions that they ask each other.

The cores know no clocks. Each wait of theirs is a time that `next_deadline` tells, of a setting or of a constant; each
question is a message on a session, which is up or lost within `dead_after` (protocol 3.3): then the question is asked
anew in the next session, or is over with the other router. A test compares `TIMERS` and `PACES` with the constants of
the cores, and `QUESTIONS` with the messages that have answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amqp10.settings import CLOSE_TIMEOUT_S
from onceway.base import waits
from onceway.base.waits import TRUNK_DIAL, Wait
from router.core.feeding import LINGER_S
from router.core.large import STREAM_IDLE_S
from router.core.map_parts import KEPT_S
from router.links.draining import BACK_S, CALLS_S, GOODBYE_S, SUBSCRIBER_S, WITH_MEMORY_S
from router.mqtt.base import ORPHAN_S

SESSION: Final = (
    "`dead_after`: a session whose acknowledgements do not come is reset; a router that is gone is not asked"
)

CLAIM: Final = Wait(
    "every router in session, to note a publisher's claim (5.5)", SESSION, "it is asked anew", "`session_down`",
    ("dead_after",),
)  # fmt: skip
JOINING: Final = Wait(
    "every router in session, to note a subscription (7.3)", SESSION, "it is asked anew", "`session_down`",
    ("dead_after",),
)  # fmt: skip
QUESTION: Final = Wait(
    "an answer of another router: to CALL, FINISH, KEEP, RECALL, BROWSE or ASK", SESSION,
    "it is asked anew, or is over", "`session_down`", ("dead_after",),
)  # fmt: skip
ORPHANED: Final = Wait(
    "a subscription without a link", "`subscription_timeout`", "it is forgotten", "`subscription_expired`",
    ("subscription_timeout",),
)  # fmt: skip
HOMELESS: Final = Wait(
    "a publisher without a link", "`publisher_timeout`", "what it left is settled",
    '`onceway_dropped_messages_total{reason="publisher_lost"}`', ("publisher_timeout",),
)  # fmt: skip
RECOVERY: Final = Wait(
    "what others know, after a restart", "`subscription_timeout` and two margins", "the router is established",
    "`onceway_recovering_seconds`, `established`", ("subscription_timeout",),
)  # fmt: skip
DISCOVERY: Final = Wait(
    "HELLOs, before a router is booted", "`discovery`", "it is booted without them", "`established`", ("discovery",)
)
PROOF: Final = Wait(
    "a sign of life of a client, as its attach may have been late", "`proof_after`, for each frame",
    "it is asked again", "the client's link is attached late", ("proof_after",),
)  # fmt: skip
NEIGHBOUR: Final = Wait(
    "a sign of a neighbour", "`dead_after`", "it is lost", "`neighbour_lost`", ("dead_after", "heartbeat")
)
HANDSHAKE: Final = Wait(
    "a client, to open", "`handshake_timeout`", "it is disconnected",
    '`onceway_limit_reached_total{limit="handshake_timeout"}`', ("handshake_timeout",),
)  # fmt: skip
CLIENT: Final = Wait(
    "a sign of a client", "`idle_timeout`, or the keep alive of MQTT", "it is disconnected",
    "`onceway_idle_timeouts_total`", ("idle_timeout",),
)  # fmt: skip
CLOSE: Final = Wait("the other side's answer to a close", CLOSE_TIMEOUT_S, "the connection is closed", "`client_lost`")
LARGE: Final = Wait(
    "more of a large message", STREAM_IDLE_S, "its publisher has to attach again", "`link_detached`, with the reason"
)
MAP_PARTS: Final = Wait(
    "the rest of a map that comes in parts (7.7)", KEPT_S, "the parts are forgotten", "nothing: it is sent anew"
)
PRESETTLED: Final = Wait(
    "a consumer for pre-settled messages whose publisher has gone", LINGER_S, "they are dropped",
    "`onceway_dropped_messages_total`",
)  # fmt: skip
MQTT_OUTCOMES: Final = Wait(
    "outcomes of what a client of MQTT left", ORPHAN_S, "its publisher's link ends", "`link_ended`"
)
DRAIN_OUTCOMES: Final = Wait("outcomes for a subscriber, at a drain", SUBSCRIBER_S, "it is sent away", "`drain_cut`")
DRAIN_RESUMES: Final = Wait("the same, for one that resumes with its map", WITH_MEMORY_S, "the same", "`drain_cut`")
DRAIN_BACK: Final = Wait("its subscription, to be back elsewhere", BACK_S, "the drain goes on", "`drain_ends`")
DRAIN_CALLS: Final = Wait("the last router to hear of that", CALLS_S, "the drain goes on", "`drain_ends`")
DRAIN_GOODBYE: Final = Wait("the client's close, at a drain", GOODBYE_S, "its connection is closed", "`client_closed`")

TABLE: Final = tuple(row for row in waits.rows(vars()) if row not in waits.TABLE)

TIMERS: Final[Mapping[str, Wait]] = {
    "amqp10/settings.py CLOSE_TIMEOUT_S": CLOSE,
    "interrouter/dialing.py ATTEMPT_LEAST_S": TRUNK_DIAL,
    "interrouter/dialing.py ATTEMPT_MOST_S": TRUNK_DIAL,
    "router/core/feeding.py LINGER_S": PRESETTLED,
    "router/core/large.py STREAM_IDLE_S": LARGE,
    "router/core/map_parts.py KEPT_S": MAP_PARTS,
    "router/links/draining.py BACK_S": DRAIN_BACK,
    "router/links/draining.py CALLS_S": DRAIN_CALLS,
    "router/links/draining.py GOODBYE_S": DRAIN_GOODBYE,
    "router/links/draining.py SUBSCRIBER_S": DRAIN_OUTCOMES,
    "router/links/draining.py WITH_MEMORY_S": DRAIN_RESUMES,
    "router/mqtt/base.py ORPHAN_S": MQTT_OUTCOMES,
}
"""The row of each constant that is a bound."""
PACES: Final = frozenset({
    "interrouter/dialing.py DIAL_EAGERLY_S",
    "interrouter/dialing.py DIAL_FIRST_S",
    "interrouter/dialing.py DIAL_MOST_S",
    "router/core/agenda.py DEADLINE_SCAN_S",
    "router/core/counters.py BOUNDS_S",
    "router/core/counters.py MARK_EVERY_S",
    "router/core/egress.py LONGEST_S",
    "router/core/ports.py NEVER_EXPIRES_S",
    "router/core/queue/assigning.py PACE_S",
    "router/core/rejections.py EVERY_S",
    "router/core/subscription_directory.py LONGEST_S",
    "router/core/waiting.py TOLD_AFTER_S",
    "router/links/draining.py SPREAD_S",
    "router/links/draining.py STEP_S",
    "router/links/limits.py RECOUNT_EACH_S",
    "router/links/limits.py RECOUNT_S",
    "router/links/turn.py OUTPUT_DELAY_S",
    "router/mqtt/conversion.py LONGEST_EXPIRY_S",
    "router/suspects.py REFUSED_S",
})  # fmt: skip
"""Those for which nothing waits: how often something is done, and the largest values."""
QUESTIONS: Final[Mapping[str, Wait]] = {
    "Pub": CLAIM, "Join": JOINING, "Call": QUESTION, "Finish": QUESTION, "Keep": QUESTION, "Recall": QUESTION,
    "Browse": QUESTION, "Ask": QUESTION,
}  # fmt: skip
"""The row of each message that another router answers, by its class in `router.core.messages`."""
