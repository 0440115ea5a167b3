"""MQTT 3.1.1 and 5 on the wire, sans-IO: octets in, packets out, and back.

It knows the form of packets and what one connection remembers; no session, no router and no address. Read packets.py
first, then reader.py and connection.py; errors.py has the reason codes.
"""

from mqtt.connection import ServerConnection
from mqtt.encoder import encode
from mqtt.errors import EncodeError, LocalProtocolError, MqttError, Reason, RemoteProtocolError
from mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqtt.properties import NO_PROPERTIES, Properties
from mqtt.reader import PacketReader
from mqtt.topics import filter_fault, is_servers, matches, name_fault
from mqtt.tree import TopicTree

__all__ = [
    "NO_PROPERTIES",
    "Acknowledgement",
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "EncodeError",
    "LocalProtocolError",
    "MqttError",
    "Packet",
    "PacketReader",
    "Pingreq",
    "Pingresp",
    "Properties",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Reason",
    "RemoteProtocolError",
    "ServerConnection",
    "Suback",
    "Subscribe",
    "Subscription",
    "TopicTree",
    "Unsuback",
    "Unsubscribe",
    "Will",
    "encode",
    "filter_fault",
    "is_servers",
    "matches",
    "name_fault",
]
