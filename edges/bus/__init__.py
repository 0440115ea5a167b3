"""The HTTP event bus: publishers push events over HTTP, subscribers are called back over HTTP (docs/event-bus.md).

`rules` says what a request may hold, `core` decides what is sent to whom and when, `edge` joins them with the network,
the store and the HTTP of `server` and `sender`. Subscribers may use `onceway.bus.Drain`.
"""
