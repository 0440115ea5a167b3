"""Measurements against other peers, as programs: `python -m bench.compare`, `bench.unsettled`, `bench.memory`."""
