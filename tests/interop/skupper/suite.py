"""One of skupper-router's system tests against routers of Onceway: `python -m tests.interop.skupper.suite NAME`.

scripts/skupper.sh calls it. Changed are how the tests see that two routers are joined, and what
they tidy up of TCP.
"""

from __future__ import annotations

import sys
import unittest

import system_test


def is_router_connected(self: system_test.Qdrouterd, router_id: str, **_: object) -> bool:
    """Theirs reads `router.node/ID`, then asks that router through this one; a router of Onceway answers for itself."""
    answer = self.management.query(type="io.skupper.router.router.node", attribute_names=["id"])
    return any(row[0] == router_id for row in answer.results)


system_test.Qdrouterd.is_router_connected = is_router_connected
system_test.Qdrouterd.wait_connectors = lambda self, **_: None  # a router of Onceway has no connectors to ask for
system_test.SkManager.delete_all_entities = lambda self, _: None  # of TCP, which a router of Onceway has nothing for
system_test.SkManager.delete_adaptor_connections = lambda self: True
unittest.main(module=sys.argv.pop(1), verbosity=2)
