"""What both kinds of link share: names, handles, attach and detach. SKELETON: signatures are final."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amqp10.performatives import Attach, Coordinator, DeliveryState, Error, Source, Target
    from amqp10.session import Session


class Link:
    """One attachment of a link; subclasses SenderLink and ReceiverLink. Attached again, it is a new Link."""

    name: str
    session: Session
    context: Any                       # free for the owner
    is_sender: bool                    # we send
    local_attach: Attach | None        # what we sent
    remote_attach: Attach | None       # what the peer sent
    snd_settle_mode: int               # in force: the peer's word where it has spoken last (2.6.8?), see attach
    rcv_settle_mode: int
    attached: bool                     # both attaches have gone by, no detach has
    detached: bool                     # over: a detach was sent or received, or session or connection are over
    remote_max_message_size: int | None

    def attach(
        self,
        *,
        source: Source | None,
        target: Target | Coordinator | None,
        unsettled: Mapping[bytes, DeliveryState | None] | None = None,
        incomplete_unsettled: bool = False,
        properties: Mapping[str, Any] | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        initial_delivery_count: int = 0,
        max_message_size: int | None = None,
        offered_capabilities: Sequence[str] = (),
        desired_capabilities: Sequence[str] = (),
    ) -> None:
        """Send our attach, as the first one or in answer to the peer's (modes None: the peer's, else mixed / first).
        FrameTooLarge (a LocalProtocolError) if it exceeds the peer's max-frame-size: nothing has been sent then."""
        raise NotImplementedError

    def split_unsettled(
        self, unsettled: Mapping[bytes, DeliveryState | None], **attach: Any
    ) -> list[dict[bytes, DeliveryState | None]]:
        """The map in parts, each of which fits an attach with these arguments into the peer's max-frame-size (2.7.3
        incomplete-unsettled). The owner sends all but the last with incomplete_unsettled=True."""
        raise NotImplementedError

    def refuse(self, condition: str, description: str, info: Mapping[str, Any] | None = None) -> None:
        """Answer the peer's attach with a null terminus, then detach it, closed, with this error (2.6.3)."""
        raise NotImplementedError

    def detach(self, error: Error | None = None, closed: bool = True) -> None:
        """Send detach (after the attach, if the peer's is still unanswered). Nothing happens on a detached link."""
        raise NotImplementedError
