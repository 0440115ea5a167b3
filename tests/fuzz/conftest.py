"""Two profiles: the tests' own, the same each time and done in seconds; and `FUZZ=big`, which looks further."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile(
    "fuzz", derandomize=True, database=None, max_examples=30, deadline=None, suppress_health_check=_CHECKS
)
settings.register_profile(
    "fuzz-big",
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20000")),
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=_CHECKS,
    phases=[Phase.generate, Phase.shrink],
)
PROFILE = settings.get_profile("fuzz-big" if os.environ.get("FUZZ") == "big" else "fuzz")
