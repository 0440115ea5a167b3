"""The types of packets (MQTT 5, table 2-1), and WILL for the properties of a will, which are no packet's own."""

(
    WILL, CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK,
    PINGREQ, PINGRESP, DISCONNECT, AUTH,
) = range(16)  # fmt: skip
