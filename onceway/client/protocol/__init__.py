"""The client's half of the protocol (protocol 15), sans-IO.

`endpoint` is one client, over one connection after another; `publishing` and `subscribing` are its links, which outlive
connections; `link` is their common base; `holdings` are the deliveries that a subscriber has not settled.  These
modules use the engine (`amqp10`) and the journal's interface, and no sockets, clocks or disks.
"""
