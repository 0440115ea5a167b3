"""Two hosts under fire; `two_hosts` says how, and runs by itself with more faults."""

from __future__ import annotations

import subprocess
import sys
import tempfile

import pytest

pytest.importorskip("pyspark")

from tests.running import ROOT
from tests.spark.two_hosts import reason_not_to


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(reason_not_to() is not None, reason=str(reason_not_to()))
def test_nothing_is_lost_doubled_or_disordered_on_two_hosts_whatever_is_killed_frozen_or_cut_off() -> None:
    """Each fault once.  Its own JVMs, six of them: not in `make test`."""
    # tmp_path is below a directory that other users cannot enter, as the hosts' have to
    with tempfile.TemporaryDirectory(prefix="onceway-hosts-", ignore_cleanup_errors=True) as directory:
        done = subprocess.run([sys.executable, "-m", "tests.spark.two_hosts", directory], cwd=ROOT, check=False)
    assert done.returncode == 0
