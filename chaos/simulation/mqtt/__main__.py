"""Plays random schedules of MQTT clients: `python -m chaos.simulation.mqtt --seeds 0-999`, or `--seed N` with events.

Exit code 0: every guarantee held; 1: one was violated.
"""

from __future__ import annotations

import argparse
import sys
import time

from chaos.simulate import Progress, one_seed, seed_range
from chaos.simulation.mqtt.explore import explore


def main() -> int:
    parser = argparse.ArgumentParser("python -m chaos.simulation.mqtt")
    parser.add_argument("--seeds", type=seed_range, default=range(1_000), metavar="A-B", help="default: 0-999")
    parser.add_argument("--seed", type=one_seed, metavar="N", help="this one, with all that happens")
    options = parser.parse_args()
    events = violations = 0
    began, progress = time.monotonic(), Progress()
    for played, seed in enumerate(options.seed or options.seeds, 1):
        net, violation = explore(seed)
        events += len(net.history)
        if options.seed is not None:
            print(*(" ".join(map(str, event)) for event in net.history), sep="\n")
        if violation is not None:
            violations += 1
            print(f"seed {seed}: {violation}\nrerun: python -m chaos.simulation.mqtt --seed {seed}", flush=True)
        after_s = time.monotonic() - began
        told = f"{after_s:5.0f} s: {played} schedules, {violations} violations"
        progress.tell(after_s, lambda told=told: told)  # type: ignore[misc]
    progress.end()
    print(f"{played} schedules, {events} events, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
