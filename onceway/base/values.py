"""The forms of single values: durations, sizes, counts, hosts with ports, names.

Each reader takes the text and gives the value, or raises ValueError(what, remedy).
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DECIMAL_SIZES: Final = {"k": "KiB", "kb": "KiB", "kib": "KiB", "m": "MiB", "mb": "MiB", "mib": "MiB"} | {
    "g": "GiB",
    "gb": "GiB",
    "gib": "GiB",
    "b": "B",
}
_QUANTITY: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]*)")
_COUNT: Final = re.compile(r"-?(?=.{1,25}$)[0-9]+(_[0-9]+)*")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")
_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")


NO_PATTERN: Final = (re.error, OverflowError, RecursionError)
"""What `re.compile` raises of a text that is no regular expression, or a monstrous one."""


def read_duration(text: str) -> float:
    """`500ms`, `60s`, `5m`, `1h` as seconds."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is no duration', "write for example 500ms, 60s or 5m")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f'"{text}" has no unit', f"did you mean {number}s?")
    if unit not in _SECONDS:
        raise ValueError(f'"{text}" has no known unit', "units are ms, s, m and h")
    return float(number) * _SECONDS[unit]


def format_duration(seconds: float) -> str:
    """The shortest form that `read_duration` reads back."""
    if seconds == 0:
        return "0s"
    for unit, length in (("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= length and (seconds / length).is_integer():
            return f"{int(seconds / length)}{unit}"
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    return f"{seconds:g}s"


def read_size(text: str) -> int:
    """`64KiB`, `8MiB`, `512B` as bytes."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is no size', "write for example 64KiB or 8MiB")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f'"{text}" has no unit', "write B, KiB, MiB or GiB behind the number")
    if unit not in _BYTES:
        binary = _DECIMAL_SIZES.get(unit.lower())
        raise ValueError(
            f'"{text}" has no known unit', f"did you mean {number}{binary}?" if binary else "units are B, KiB, MiB, GiB"
        )
    return int(float(number) * _BYTES[unit])


def format_size(size: int) -> str:
    """The shortest form that `read_size` reads back."""
    unit, length = next(each for each in reversed(_BYTES.items()) if size % each[1] == 0 or each[1] == 1)
    return f"{size // length}{unit}" if size else "0B"


def read_count(text: str) -> int:
    """A whole number; bounds, which also refuse negative ones, are `read_quantity`'s."""
    if not _COUNT.fullmatch(text):
        raise ValueError(f'"{text}" is no whole number', "write for example 1000")
    return int(text)


def read_switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f'"{text}" is neither true nor false', "write true or false")
    return text.lower() == "true"


def read_name(text: str) -> str:
    """A network's or router's name: it appears in logs, URLs and metrics."""
    if not _NAME.fullmatch(text):
        raise ValueError(
            f'"{text}" is no name', "use up to 64 letters, digits, _ . -, beginning with a letter or digit"
        )
    return text


def read_host(text: str) -> str:
    labels = text.removesuffix(".").split(".")
    if not _HOST.fullmatch(text) or (":" not in text and not all(map(_LABEL.fullmatch, labels))):
        raise ValueError(f'"{text}" is no host', "write a host name or an IP address, without a port")
    return text


def read_port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= 65_535:
        raise ValueError(f'"{text}" is no port', "ports are 1 to 65535")
    return int(text)


def read_host_port(text: str, default_host: str) -> tuple[str, int]:
    """`5672`, `host:5672` or `[::1]:5672`."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return default_host, read_port(text)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f'"{text}" is ambiguous', f"write [{host}]:{port}")
    if not host:
        raise ValueError(f'"{text}" has no host', f"write {port}, or host:{port}")
    return read_host(host), read_port(port)


def format_host_port(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that it is written as; None: it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_unspecified(host: str) -> bool:
    """Whether it means every interface, and so is no address to connect to."""
    address = address_of(host)
    return address is not None and address.is_unspecified


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    address = address_of(host)
    return host.lower() == "localhost" if address is None else address.is_loopback
