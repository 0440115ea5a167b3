"""From sockets to protocols: the sockets, TLS and turns of one router, and the listeners of edges."""
