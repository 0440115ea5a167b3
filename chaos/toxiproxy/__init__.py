"""A server of Toxiproxy's HTTP API: TCP proxies whose connections can be slowed, cut, sliced and reset.

It answers what `chaos.live` asks.  Facts (paths, defaults, status codes, what each toxic does) follow Shopify's
Toxiproxy 2.12; the code is its own and knows nothing of AMQP.  Runs as `python -m chaos.toxiproxy`; a real Toxiproxy
takes its place where TOXIPROXY_URL names one.  `api` answers HTTP, `proxies` listens and connects, `stream` is one
direction of one connection as a chain of stages, `toxics` is what a stage may do.

Told apart from the original: reset_peer also resets connections that were there before the toxic (the original closes
those in the ordinary way), and a slicer without sizes cuts single bytes (the original does not survive it).
"""

from chaos.toxiproxy.api import application

__all__ = ["application"]
