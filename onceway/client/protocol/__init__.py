"""The client's half of the protocol (PROTOCOL 15), sans-IO.

`endpoint` is one client over whichever connection it has; `publishing` and `subscribing` are its links, which outlive
connections; `link` is what both have in common; `holdings` is what a subscriber has in hand.  They know the engine
(`amqp10`) and the journal's interface, and neither sockets, clocks nor disks.
"""
