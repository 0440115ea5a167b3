"""What `azure-servicebus` and `azure-eventhub` for Python expect of a peer, beside whole lists (`amqp10.whole_lists`).

They name themselves in their open. Event Hubs' client of `$management` does not: whoever attaches to `$cbs` is taken for
it. Who uses these packages cannot tell them to do otherwise:

- They name an address by a URL, `amqps://HOST/ADDRESS`; Event Hubs' with a consumer group and a partition, too.
- They ask for mode second and never settle what they send; they get mode first. From 7.15 on Service Bus's await that
  what they receive is settled, with what they have said of it. Event Hubs' never settle it: they get it settled, and
  without their filters, which are of offsets.
- They put a token at `$cbs` before they attach anything else, and Event Hubs' ask `$management` for partitions, of
  which there is one. The token is not looked at: who a client is SASL has said, and what it may the policies.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from amqp10.outcomes import Rejected
from amqp10.performatives import RCV_FIRST, SND_SETTLED, Attach
from amqp10.runs import Dispositions
from amqp10.sections import MOST_READ, AmqpValue, Message, Properties
from amqp10.types import Array, Int, Timestamp
from amqp10.whole_lists import PRODUCTS
from router.links.base import BaseConnection
from router.links.management_link import ManagementLink
from router.links.negotiation import CBS, MANAGEMENT, Unauthorized
from router.links.outcomes import terminal_outcome
from router.links.subscriber_link import SubscriberLink
from router.policies import concerning

if TYPE_CHECKING:
    from amqp10.performatives import Open

NODES: Final = (CBS, MANAGEMENT)
UNNAMED: Final = ""
EVENT_HUBS: Final = PRODUCTS[0]
_URL: Final = re.compile(r"amqps?://[^/]*/(.+?)((/ConsumerGroups/[^/]*)?/Partitions/[^/]*)?", re.DOTALL)


def product_of(open_: Open) -> str | None:
    """Which of them has sent this; None: somebody else."""
    product = (open_.properties or {}).get("product")
    return str(product) if product in PRODUCTS else None


def adapt(attach: Attach, product: str) -> None:
    """Makes of an attach what it means here."""
    terminus: Any = attach.source if attach.role else attach.target
    found = _URL.fullmatch(str(getattr(terminus, "address", "")))
    if found is None:
        return
    terminus.address = found[1]
    attach.rcv_settle_mode = RCV_FIRST
    if attach.role and product == EVENT_HUBS:
        attach.snd_settle_mode = SND_SETTLED
        terminus.filter = None


def check_concerned(connection: BaseConnection) -> None:
    """Raises Unauthorized unless some policy concerns this client: there is nothing here for others."""
    policies, who = connection.config.policies, connection.identity
    if policies is not None and not concerning(policies, who):
        raise Unauthorized(who, "send", CBS)


class AzureSubscriber(SubscriberLink):
    """A receiving link. What its client says of a delivery is settled at once, and confirmed."""

    __slots__ = ()

    def on_dispositions(self, event: Dispositions, now: float) -> None:
        if not event.settled and terminal_outcome(event.state) is not None:
            event.settled = True
            # an error would say that it could not be done
            state = Rejected() if isinstance(event.state, Rejected) else event.state
            self.link.dispose(event.first_id, event.last_id, state, True)
            self.connection.output_ready()
        super().on_dispositions(event, now)


class AzureNode(ManagementLink):
    """A sending link to one of NODES. Requests have no reply-to: the answer goes to the receiving link from there."""

    __slots__ = ()

    def _ask(self, payload: bytes) -> None:
        check_concerned(self.connection)
        asked = Message.decode(payload, MOST_READ)
        properties, said = asked.properties or Properties(), asked.application_properties or {}
        terminus: Any = self.link.remote_attach and self.link.remote_attach.target
        node, status, text, body = terminus.address, 202, "accepted: what the login may, and no more", None
        if node == MANAGEMENT and properties.reply_to:
            super()._ask(payload)  # it asks as others do
            return
        if node == MANAGEMENT:
            status, text = 501, "only event hubs can be read"
        if node == MANAGEMENT and (said.get("operation"), said.get("type")) == ("READ", "com.microsoft:eventhub"):
            status, text = 200, "OK"
            body = {"name": str(said.get("name")), "created_at": Timestamp(0), "partition_ids": Array("string", ("0",))}
        told = Message(
            AmqpValue(body),
            properties=Properties(correlation_id=properties.message_id),
            application_properties={"status-code": Int(status), "status-description": text},
        )
        self._answer(self._reply_address(properties.reply_to or node), told.encode(), self.connection.now)
