"""Topic names and topic filters (MQTT 5, 4.7 and 4.8.2): what is well formed, and which names a filter matches."""

from __future__ import annotations

from typing import Final

SHARE: Final = "$share/"
MOST_LEVELS: Final = 200
"""Levels of a topic filter, as in mosquitto: so what it takes to look for one is bounded, whatever topic names have."""


def name_fault(name: str) -> str | None:
    """Say what is wrong with a topic name, or None. It has a character and no wildcard [MQTT-4.7.3-1, 3.3.2-2]."""
    if not name:
        return "a topic name is empty"
    if "+" in name or "#" in name:
        return "a topic name has a wildcard"
    return None


def is_servers(name: str) -> bool:
    """Whether this is a topic of servers, where clients have nothing to say (4.7.2)."""
    return name.startswith("$SYS/")


def filter_fault(topic_filter: str, version: int) -> str | None:
    """Say what is wrong with a topic filter, or None [MQTT-4.7.1-1, 4.7.1-2, 4.8.2-1, 4.8.2-2].

    Args:
        topic_filter: As in SUBSCRIBE, with `$share/NAME/` where it is shared.
        version: 4 or 5: 3.1.1 knows no shared subscriptions, there `$share` is a level like others.
    """
    if version == 5 and is_shared(topic_filter):
        _, share, topic_filter = (*topic_filter.split("/", 2), "")[:3]
        if not share or "+" in share or "#" in share:
            return "the name of a shared subscription is empty or has a wildcard"
    if not topic_filter:
        return "a topic filter is empty"
    if "+" not in topic_filter and "#" not in topic_filter:
        return None
    levels = topic_filter.split("/")
    if any("+" in level and level != "+" for level in levels):
        return "'+' is not a whole level of a topic filter"
    if "#" in topic_filter and (levels[-1] != "#" or topic_filter.count("#") != 1):
        return "'#' is not the last level of a topic filter"
    return None


def is_shared(topic_filter: str) -> bool:
    """Whether this is the filter of a shared subscription (4.8.2)."""
    return topic_filter.startswith(SHARE)


def matches(topic_filter: str, name: str) -> bool:
    """Whether a filter without `$share` matches a topic name (4.7.1, 4.7.2)."""
    if name[0] == "$" and topic_filter[0] in "+#":  # [MQTT-4.7.2-1]
        return False
    levels = name.split("/")
    pattern = topic_filter.split("/")
    if pattern[-1] == "#":
        pattern.pop()  # "a/#" matches "a" too
        levels = levels[: len(pattern)]
    return len(levels) == len(pattern) and all(
        want in ("+", level) for want, level in zip(pattern, levels, strict=True)
    )
