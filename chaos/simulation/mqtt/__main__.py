"""Plays random schedules of MQTT clients: `python -m chaos.simulation.mqtt --seeds 0-999`, or `--seed N` with events.

Exit code 0: every guarantee held; 1: one was violated.
"""

from __future__ import annotations

import argparse
import sys

from chaos.simulation.mqtt.explore import explore


def main() -> int:
    parser = argparse.ArgumentParser("python -m chaos.simulation.mqtt")
    parser.add_argument("--seeds", default="0-999", metavar="A-B")
    parser.add_argument("--seed", type=int, metavar="N", help="this one, with all that happens")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last) + 1) if options.seed is None else [options.seed]
    events = violations = 0
    for seed in seeds:
        net, violation = explore(seed)
        events += len(net.history)
        if options.seed is not None:
            print(*(" ".join(map(str, event)) for event in net.history), sep="\n")
        if violation is not None:
            violations += 1
            print(f"seed {seed}: {violation}\nrerun: python -m chaos.simulation.mqtt --seed {seed}")
    print(f"{len(seeds)} schedules, {events} events, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
