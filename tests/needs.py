"""What some tests need and a machine may lack; scripts/bootstrap.sh has said how to get it.

Where it is missing those tests are reported as skipped, each with this reason.
"""

from __future__ import annotations

from importlib.util import find_spec

PROTON = "python-qpid-proton is not installed: it is compiled with gcc, Python's headers, pkg-config, libssl-dev"

PROMTOOL = "promtool is neither in .venv/bin nor installed: it is in Debian's package prometheus"

CHROMIUM = "Chromium is not installed: it is Debian's package chromium"


def has_proton() -> bool:
    return find_spec("proton") is not None and find_spec("cproton_ffi") is not None
