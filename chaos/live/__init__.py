"""Live runs: router and client processes on a network under faults, and the report. Read `run`, then `faults`."""
