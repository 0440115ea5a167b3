"""QoS caches at the reader, by key: how much of what was written is kept, and how a crashed writer's last is repaired.

The contract is in docs/contracts/qos-caches.md. `cache` is the cache and `repair` what readers say to each other about
a writer that is suspected; neither knows sockets or clocks. `live` brings them onto the network.
"""

from edges.caches.cache import Sample
from edges.caches.live import Reader, Writer

__all__ = ["Reader", "Sample", "Writer"]
