"""What `azure-servicebus` and `azure-eventhub` for Python expect of a peer, beside whole lists (`amqp10.whole_lists`).

They name themselves in their open. Event Hubs' client of `$management` does not: whoever attaches to `$cbs` is taken
for it. Who uses these packages cannot tell them to do otherwise:

- They name an address by a URL, `amqps://HOST/ADDRESS`; Event Hubs' with a consumer group and a partition, too.
- They ask for mode second and never settle what they send: they get mode first. From 7.15 on Service Bus's await that
  what they receive is settled, with what they have said of it. Event Hubs' never settle it: they get it settled, and
  without their filters, which are of offsets.
- They put a token at `$cbs` before they attach anything else, and Event Hubs' ask `$management` for partitions, of
  which there is one. The token is not looked at: who a client is SASL has said, and what it may the policies.
"""

from __future__ import annotations

import re
from typing import Any, Final

from amqp10.outcomes import Rejected
from amqp10.performatives import RCV_FIRST, SND_SETTLED, Attach
from amqp10.runs import Dispositions
from amqp10.sections import MOST_READ, AmqpValue, Message, Properties
from amqp10.types import Array, Int, Timestamp
from amqp10.whole_lists import EVENT_HUBS
from router.links.management_link import ManagementLink
from router.links.negotiation import CBS, MANAGEMENT
from router.links.outcomes import terminal_outcome
from router.links.subscriber_link import SubscriberLink

NODES: Final = (CBS, MANAGEMENT)
_URL: Final = re.compile(r"amqps?://[^/]*/(.+?)((/ConsumerGroups/[^/]*)?/Partitions/[^/]*)?", re.DOTALL)


def adapt(attach: Attach, product: str) -> None:
    """Makes of their attach what it means here."""
    terminus: Any = attach.source if attach.role else attach.target
    found = _URL.fullmatch(str(getattr(terminus, "address", "")))
    if found is not None:
        terminus.address = found[1]
        attach.rcv_settle_mode = RCV_FIRST
        if attach.role and product == EVENT_HUBS:
            attach.snd_settle_mode, terminus.filter = SND_SETTLED, None


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
    """A sending link to one of NODES. Their requests have no reply-to: answers go to the receiving link from there."""

    __slots__ = ()

    def _ask(self, payload: bytes) -> None:
        asked = Message.decode(payload, MOST_READ)
        properties, said = asked.properties or Properties(), asked.application_properties or {}
        status, text, body = 202, "accepted: what the login may, and no more", None
        if self._node_of == MANAGEMENT:
            status, text = 501, "only event hubs can be read"
        if self._node_of == MANAGEMENT and said.get("type") == "com.microsoft:eventhub":
            status, text = 200, "OK"
            body = {"name": str(said.get("name")), "created_at": Timestamp(0), "partition_ids": Array("string", ("0",))}
        told = Message(
            AmqpValue(body),
            properties=Properties(correlation_id=properties.message_id),
            application_properties={"status-code": Int(status), "status-description": text},
        )
        self._answer(self._reply_address(properties.reply_to or self._node_of), told.encode(), self.connection.now)
