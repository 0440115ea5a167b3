"""AMQP 1.0 on the wire, sans-IO: codec, frames, SASL, connection, session, link, recovery.

Bytes in, events out, bytes out, without sockets or clocks. It knows the protocol and no addresses. Read connection.py
first; types.py and performatives.py describe values and frames in Python.
"""

from amqp10.connection import Connection
from amqp10.errors import (
    AmqpError,
    DecodeError,
    EncodeError,
    FrameTooLarge,
    LocalProtocolError,
    RemoteProtocolError,
)
from amqp10.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    SessionBegun,
    SessionEnded,
    SessionFlow,
)
from amqp10.link import Link
from amqp10.outcomes import ACCEPTED, RELEASED, Accepted, DeliveryState, Error, Modified, Received, Rejected, Released
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_MIXED, SND_SETTLED, SND_UNSETTLED
from amqp10.receiver import ReceiverLink
from amqp10.recovery import ABSENT, Action, resume_action
from amqp10.runs import Dispositions, LinkFlow, ResumedTransfer, TransferPart, Transfers
from amqp10.sender import SenderLink
from amqp10.session import Session
from amqp10.settings import ConnectionSettings
from amqp10.termini import Coordinator, Source, Target

__all__ = [
    "ABSENT",
    "ACCEPTED",
    "RCV_FIRST",
    "RCV_SECOND",
    "RELEASED",
    "SND_MIXED",
    "SND_SETTLED",
    "SND_UNSETTLED",
    "Accepted",
    "Action",
    "AmqpError",
    "Connection",
    "ConnectionClosed",
    "ConnectionOpened",
    "ConnectionSettings",
    "Coordinator",
    "DecodeError",
    "DeliveryState",
    "Dispositions",
    "EncodeError",
    "Error",
    "Event",
    "FrameTooLarge",
    "Link",
    "LinkAttached",
    "LinkAttaching",
    "LinkDetached",
    "LinkFlow",
    "LocalProtocolError",
    "Modified",
    "Received",
    "ReceiverLink",
    "Rejected",
    "Released",
    "RemoteProtocolError",
    "ResumedTransfer",
    "SenderLink",
    "Session",
    "SessionBegun",
    "SessionEnded",
    "SessionFlow",
    "Source",
    "Target",
    "TransferPart",
    "Transfers",
    "resume_action",
]
