"""`settings` of a topology file: timers and sizes, the same for all routers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onceway.base.values import format_duration
from onceway.topology.document import Entry, Item
from onceway.topology.forms import Count, Duration, Scope, Size, Switch
from onceway.topology.table import Given, Row, Section, Table, When, fields_of
from router.config import AddressConfig, Limits, RouterConfig, UserLimits

_MOST: Final = float(1 << 40)

# Settings that an address may have of its own.
TIMEOUT_ROWS: Final = (
    Row("subscription_timeout", Duration(0.05, 30 * 86_400), When.NEW_LINKS,
        "the longest that the network waits for a subscription without a link", "subscription_timeout_s"),
    Row("publisher_timeout", Duration(0.05, 60 * 86_400), When.NEW_LINKS,
        "how long a publisher without a link is remembered; must exceed `subscription_timeout` plus two margins "
        "([below](#addresses))", "publisher_timeout_s", effective="publisher_expires_s",
        default="subscription_timeout + 60s"),
)  # fmt: skip
SETTINGS: Final = Section(
    "settings",
    "a mapping of settings",
    (
        Row("heartbeat", Duration(0.01, 60), When.AT_ONCE, "how often neighbours send something", "heartbeat_s"),
        Row("dead_after", Duration(0.05, 600), When.AT_ONCE,
            "a neighbour that sends nothing for that long is down (a closed socket counts at once)", "dead_after_s"),
        Row("discovery", Duration(0.01, 600), When.NEXT_START,
            "how long a starting router waits for the HELLO of the others", "discovery_s"),
        Row("idle_timeout", Duration(0.1, 86_400), When.NEW_CONNECTIONS,
            "a client that sends nothing for that long is disconnected; the router's open announces half of it as "
            "idle-time-out", "idle_timeout_s"),
        Row("proof_after", Duration(0.01, 600), When.AT_ONCE,
            "the longest assumed delay of a frame on a client's connection ([guarantees](guarantees.md#limits))",
            "proof_after_s"),
        Row("window_messages", Count(1, 1 << 20), When.AT_ONCE,
            "at most so many messages of one publisher wait for a subscriber to accept them; more get no credit"),
        Row("window_bytes", Size(1, _MOST), When.AT_ONCE, "the same in bytes"),
        Row("unsettled_window", Count(1, 1 << 24), When.AT_ONCE,
            "at most so many messages of one publisher are accepted and not yet settled by it; a failover presents "
            "all of them again, so its time grows with them"),
        Row("max_message_size", Size(1, _MOST), When.NEW_CONNECTIONS,
            "larger messages are refused. Where it is not set, those that pass through (`stream_above`) may be of "
            "any size"),
        Row("max_frame_size", Size(512, (1 << 32) - 1), When.NEW_CONNECTIONS,
            "told to clients; holds an unsettled map of about 150,000 entries"),
        Row("stream_above", Size(0, _MOST), When.NEW_CONNECTIONS,
            "topics, clients in rcv-settle-mode second: a message of which so much has come passes through while the "
            "rest arrives, of any size; 0MiB, as where `max_message_size` is set: none does ([large "
            "messages](decisions/large-messages.md))"),
        Row("memory_limit", Size(1 << 20, _MOST), When.AT_ONCE,
            "payload in one router; above it publishers get no credit and their sessions' incoming windows close"),
        Row("presettled_queue", Count(1, 1 << 24), When.AT_ONCE,
            "at-most-once messages that wait for one subscriber, above which the oldest are dropped and counted, or of "
            "one publisher at a queue, above which the newest are"),
        Row("strip_addresses", Switch(), When.NEW_LINKS,
            "whether `/a`, `a/`, `a.`, `amqp:/a`, `amqp://host/a` and `//host/a` of a client of AMQP mean `a` "
            "([which names](#names-that-clients-say))", since="1.0"),
        Row("ready_when_isolated", Switch(), When.AT_ONCE,
            "whether a router that has neighbours and reaches none of them is ready "
            "([watching](operating/monitor.md))"),
        Row("done_bytes", Size(0, _MOST), When.AT_ONCE,
            "payload that every subscriber has accepted and its publisher has not settled, at most a quarter of "
            "`memory_limit`; above it the oldest is freed early ([guarantees](guarantees.md#limits))"),
        *TIMEOUT_ROWS,
    ),
    (RouterConfig, AddressConfig),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """Fields of RouterConfig, and of AddressConfig for addresses that don't say otherwise."""

    of_routers: Mapping[str, Any]
    of_addresses: Mapping[str, Any]


def _make(given: Given, scope: Scope) -> Settings:
    values = fields_of(RouterConfig, given.values)
    entries = given.entries
    if "max_message_size" in entries and "stream_above" not in entries:
        values["stream_above"] = 0  # who says what the largest message is means all of them
    trial = RouterConfig(name="", **values)
    if trial.dead_after_s < 2 * trial.heartbeat_s:
        item = entries.get("dead_after") or entries["heartbeat"]
        item.problem(
            f"dead_after {format_duration(trial.dead_after_s)} leaves no room for two heartbeats of "
            f"{format_duration(trial.heartbeat_s)}",
            f"make dead_after at least {format_duration(2 * trial.heartbeat_s)}",
        )
    if trial.max_message_size > trial.memory_limit:
        item = entries.get("max_message_size") or entries["memory_limit"]
        item.problem("max_message_size exceeds memory_limit: such a message could never pass", "raise memory_limit")
    of_addresses = fields_of(AddressConfig, given.values)
    check_timeouts(AddressConfig(**of_addresses), given)
    return Settings(values, of_addresses)


FORM: Final = Table(SETTINGS, _make)


def check_timeouts(address: AddressConfig, given: Given) -> None:
    """No delivery may be forgotten while a subscription may still hold it in doubt (protocol 12.4)."""
    least = address.subscription_timeout_s + 2 * address.margin_s
    if address.publisher_expires_s > least:
        return
    item: Item | Entry = (
        given.entries.get("publisher_timeout") or given.entries.get("subscription_timeout") or given.item
    )
    item.problem(
        f"publisher_timeout {format_duration(address.publisher_expires_s)} must exceed subscription_timeout + 2 margin"
        f" = {format_duration(least)}",
        f"make publisher_timeout more than {format_duration(least)}, "
        f"or leave it out for {format_duration(address.subscription_timeout_s + 60)}",
    )


def longest_sign_of_life_s(settings: RouterConfig, limits: Sequence[Limits | UserLimits]) -> float:
    """Seconds until a publisher that is back, sends nothing and answers no echo has proved twice that it is there, by
    heartbeats later than `proof_after` (protocol 5.2).
    """
    idle_s = max([settings.idle_timeout_s, *(one.idle_timeout_s or 0.0 for one in limits)])
    return 2 * (idle_s / 2 + settings.proof_after_s)


def check_sign_of_life(address: AddressConfig, item: Item, sign_of_life_s: float) -> None:
    """Warns; publishers that bring epochs, as ours do, are not concerned."""
    if address.publisher_expires_s > sign_of_life_s:
        return
    item.warn(
        f"publisher_timeout {format_duration(address.publisher_expires_s)} is not more than publishers without epochs"
        f" may need to show that they live (idle_timeout + 2 proof_after = {format_duration(sign_of_life_s)}): such"
        " ones that come back may be told that they have expired",
        f"make publisher_timeout several times {format_duration(sign_of_life_s)}, or idle_timeout shorter",
    )
