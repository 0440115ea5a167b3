"""Two hosts under fire; `two_hosts` says how, and runs by itself with more faults."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.running import ROOT
from tests.spark.two_hosts import reason_not_to


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.skipif(reason_not_to() is not None, reason=str(reason_not_to()))
def test_nothing_is_lost_doubled_or_disordered_on_two_hosts_whatever_is_killed_frozen_or_cut_off(
    tmp_path: Path,
) -> None:
    """Each fault once.  Its own JVMs, six of them: not in `make test`."""
    done = subprocess.run([sys.executable, "-m", "tests.spark.two_hosts", str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == 0
