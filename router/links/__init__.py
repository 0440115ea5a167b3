"""AMQP links of clients onto the core's ports. Read `client_connection`, then the two links and `negotiation`."""
