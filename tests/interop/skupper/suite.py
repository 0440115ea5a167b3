"""One of skupper-router's system tests against routers of Onceway: `python -m tests.interop.skupper.suite NAME`.

scripts/skupper.sh calls it. Changed are how the tests see that two routers are joined, and what
they tidy up of TCP. What takes longer than TEST_S (a test, or setting up its class) fails: some would wait without end.
"""

from __future__ import annotations

import signal
import sys
import unittest

import system_test

TEST_S = 60


def is_router_connected(self: system_test.Qdrouterd, router_id: str, **_: object) -> bool:
    """Theirs reads `router.node/ID`, then asks that router through this one; a router of Onceway answers for itself."""
    answer = self.management.query(type="io.skupper.router.router.node", attribute_names=["id"])
    return any(row[0] == router_id for row in answer.results)


def run_for_a_time(self: unittest.TestCase, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
    signal.alarm(TEST_S)
    result = run(self, result)
    signal.alarm(TEST_S)  # for what is set up or torn down next
    return result


def too_long(*_: object) -> None:
    raise TimeoutError(f"it took longer than {TEST_S} s")


signal.signal(signal.SIGALRM, too_long)
signal.alarm(TEST_S)
run, unittest.TestCase.run = unittest.TestCase.run, run_for_a_time
system_test.Qdrouterd.is_router_connected = is_router_connected
system_test.Qdrouterd.wait_connectors = lambda self, **_: None  # a router of Onceway has no connectors to ask for
system_test.SkManager.delete_all_entities = lambda self, _: None  # of TCP, which a router of Onceway has nothing for
system_test.SkManager.delete_adaptor_connections = lambda self: True
unittest.main(module=sys.argv.pop(1), verbosity=2)
