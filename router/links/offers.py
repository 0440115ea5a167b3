"""What a router tells each client in the open, and grants it: by its user, and by the scheme of the listener."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from amqp10.encoder import encode_value
from amqp10.sasl import Offer, ServerMechanisms, server_mechanisms
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol, UShort
from router.config import Limits, RouterConfig
from router.links.limits import Admission
from router.policies import ANONYMOUS

FAILOVER_BYTES: Final = 300  # of open, which may have 512 before the client has said more (AMQP 2.4.1)


class Place(NamedTuple):
    """Where clients of another router connect to."""

    router: str
    listeners: Mapping[str, tuple[str, int]]  # host and port by the scheme of URLs: amqp, amqps, ws, wss


class Offers:
    def __init__(self, config: RouterConfig, admission: Admission, sasl: ServerMechanisms | None) -> None:
        self._config = config
        self._admission = admission
        self._settings = ConnectionSettings(
            container_id=config.name,
            handshake_timeout_s=config.limits.handshake_timeout_s,
            offered_capabilities=("ANONYMOUS-RELAY",),
            properties={Symbol("product"): "onceway", Symbol("router"): config.name},
            sasl=sasl or server_mechanisms(),  # by default everybody, as ANONYMOUS or without a SASL layer
        )
        self._limits: dict[str, Limits] = {}  # by user; "" for all users without limits of their own
        self._by_user: dict[tuple[str, str], ConnectionSettings] = {}  # by scheme and user, as above
        self._places: list[Place] = []  # of other routers

    def reconfigure(self, config: RouterConfig) -> None:
        self._config = config
        self._settings = replace(self._settings, handshake_timeout_s=config.limits.handshake_timeout_s)
        self._limits.clear()
        self._by_user.clear()

    def set_failover(self, places: Sequence[Place]) -> None:
        """The open of every connection from now on names these listeners, as far as it has room for them."""
        self._places = list(places)
        self._by_user.clear()

    def settings(self, scheme: str, sasl: Offer | None, anonymous: bool) -> ConnectionSettings:
        """Those of a new connection, whose user is not known. sasl: what it is offered; None: what the router was made
        with. anonymous: it need not begin with SASL."""
        settings = replace(self._settings, per_user=partial(self.settings_of, scheme))
        return settings if sasl is None else replace(settings, sasl=sasl, allow_no_sasl=anonymous)

    def limits_of(self, user: str | None) -> Limits:
        """The limits of this user's connections, with the network's settings where the listener has none."""
        name = self._limited_as(user)
        limits = self._limits.get(name)
        if limits is None:
            limits, config = self._admission.limits_of(user or ANONYMOUS), self._config
            limits = self._limits[name] = replace(
                limits,
                max_frame_size=limits.max_frame_size or config.max_frame_size,
                max_message_size=limits.max_message_size or config.max_message_size,
                unsettled_window=limits.unsettled_window or config.unsettled_window,
                idle_timeout_s=limits.idle_timeout_s or config.idle_timeout_s,
            )
        return limits

    def settings_of(self, scheme: str, user: str | None) -> ConnectionSettings:
        """The settings of this user's connections; the engine asks when the SASL exchange is complete."""
        key = scheme, self._limited_as(user)
        settings = self._by_user.get(key)
        if settings is None:
            limits = self.limits_of(user)
            assert limits.max_frame_size is not None
            assert limits.max_message_size is not None
            bounded = self._admission.limits_of(user or ANONYMOUS).max_message_size is not None  # protocol 6.12.1
            properties = {**(self._settings.properties or {}), Symbol("failover-server-list"): self._failover(scheme)}
            settings = self._by_user[key] = replace(
                self._settings,
                properties=properties,
                channel_max=limits.sessions - 1,
                handle_max=limits.links - 1,
                max_frame_size=limits.max_frame_size,
                max_message_size=limits.max_message_size,
                window_bytes=self._config.stream_share if self._config.stream_above and not bounded else 0,
                idle_timeout_s=limits.idle_timeout_s,
            )
        return settings

    def _failover(self, scheme: str) -> list[dict[Symbol, object]]:
        """What clients of a listener with this scheme are told: those without WebSocket of the others without, with
        their schemes; those with one of the same kind."""
        schemes = ("amqp", "amqps") if scheme in ("amqp", "amqps") else (scheme,)
        entries: list[dict[Symbol, object]] = []
        for each in schemes:
            for place in self._places:
                if each not in place.listeners:
                    continue
                host, port = place.listeners[each]
                entry: dict[Symbol, object] = {Symbol("network-host"): host, Symbol("port"): UShort(port)}
                if each == "amqps":
                    entry[Symbol("scheme")] = Symbol(each)
                if len(encode_value([*entries, entry])) > FAILOVER_BYTES:
                    return entries
                entries.append(entry)
        return entries

    def _limited_as(self, user: str | None) -> str:
        name = user or ANONYMOUS
        return name if name in self._admission.users else ""
