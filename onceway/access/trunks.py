"""TLS between routers: each side shows a certificate that names its router, and both are looked at.

The authority's signature says that the other side is one of the network's routers, the name in the certificate says
which one. Addresses are not compared: a router is who its certificate says, wherever it runs. The name is a dNSName of
the subjectAltName, or the subject's common name where a certificate has no subjectAltName. It must equal the router's:
patterns such as `*` mean nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onceway.access.tls import ListenerContext, trunk_context, warn_of_end
from onceway.topology import Topology
from router.reporting import Log


@dataclass(frozen=True, slots=True)
class TrunkTls:
    """For trunks that are connected from now on."""

    listens: ListenerContext
    dials: ListenerContext


def read_trunk_tls(topology: Topology, name: str, log: Log) -> TrunkTls | None:
    """What router `name` needs for its trunks, its files read now; None: they have no TLS.

    Raises:
        UsageError: A file cannot be used.
    """
    if not topology.trunk_tls:
        return None
    place, profile = f"{topology.path}: tls.{topology.trunk_tls}", topology.tls_profile(topology.trunk_tls, name)
    found = TrunkTls(trunk_context(place, profile, dials=False), trunk_context(place, profile, dials=True))
    warn_of_end(found.listens, log)
    return found


def certified_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The routers that a certificate names, as `ssl` gives it."""
    if "subjectAltName" in certificate:
        return frozenset(value for kind, value in certificate["subjectAltName"] if kind == "DNS")
    pairs = (pair for rdn in certificate.get("subject", ()) for pair in rdn)
    return frozenset(value for key, value in pairs if key == "commonName")
