"""Where a session is: a subscription of an internal address, which has no publishers.

Every router knows it, so a client identifier has one session in the network. When the session's client connects to
another router, that router attaches the subscription and this one is told that it is stolen: the client is
disconnected (0x8E). What the core calls born is the session's incarnation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.core.ports import MapState, SubscriberAnswer, SubscriberAttach
from router.mqtt.base import SESSIONS, BaseSession

NAME: Final = "session"


class Lease:
    """The core's SubscriberPort of one session."""

    __slots__ = ("attach", "detached", "resumed", "session")

    def __init__(self, session: BaseSession, epoch: int, born: int) -> None:
        self.session = session
        self.attach = SubscriberAttach(
            session.container, NAME, SESSIONS, epoch=epoch, born=born, timeout_s=session.absence.expiry_s,
            expiry_policy="link-detach", only_in_time=True,  # the state is discarded at its expiry (MQTT-4.1.0)
        )  # fmt: skip
        self.resumed = born != epoch
        self.detached = False

    def leave(self, now: float, *, closed: bool) -> None:
        """The session is over, or (not closed) goes on at another router."""
        if not self.detached:
            self.detached = True
            self.session.core.detach_subscriber(self, closed, now)

    # --- SubscriberPort: what the core says

    def capacity(self) -> int:
        return 0

    def link_credit(self) -> int:
        return 0

    def answer(self, answer: SubscriberAnswer) -> int:
        self.session.leased(self)
        return 0

    def send(
        self, tags: list[bytes], payloads: list[bytes], message_format: int, settled: bool, position: int,
        cache: dict[object, object],
    ) -> int:  # fmt: skip
        raise AssertionError("it has no capacity")

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        raise AssertionError("it has no capacity")

    def expired(self, payloads: list[bytes], message_format: int) -> list[int]:
        return []

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        raise AssertionError("it has no capacity")

    def settle(self, first_id: int, last_id: int, at_once: bool = False) -> None:
        raise AssertionError("nothing was sent")

    def answer_map_part(self) -> None:
        raise AssertionError("there are no maps in parts here")

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.detach(condition, description, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self.detached = True
        self.session.lease_lost(self, condition, description)
