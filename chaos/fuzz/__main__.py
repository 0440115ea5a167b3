"""`python -m chaos.fuzz [--seconds S] [--seed N] [--target T]`: exit 0 nothing found, 1 something, 2 bad options.
`python -m chaos.fuzz --cost [--case TEXT]` counts what input costs (cost.py).

The corpus is tests/fuzz/corpus, one file for each conversation, its target in its name. With --keep DIR what reached
new lines is written there. A find is made smaller, printed as a bytes literal, and can be run again by its own command.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from chaos import commit
from chaos.fuzz import cost
from chaos.fuzz.cases import cases
from chaos.fuzz.mutator import ROOT, Edge, covered, failure, mutated, smaller
from chaos.fuzz.running import TARGETS

CORPUS = ROOT / "tests" / "fuzz" / "corpus"


def load(directory: Path = CORPUS) -> dict[str, dict[str, bytes]]:
    """target -> name -> input; `server--proton-publishes.bin` is for the target server."""
    corpus: dict[str, dict[str, bytes]] = {target: {} for target in TARGETS}
    for path in sorted(directory.glob("*.bin")):
        target, _, name = path.stem.partition("--")
        if target in corpus and name:
            corpus[target][name] = path.read_bytes()
    return corpus


def report(target: str, data: bytes) -> None:
    """Everything that somebody needs to see it again."""
    data = smaller(target, data)
    error = failure(target, data)
    print(f"found at {target}: {type(error).__name__}: {error}")
    if error is not None:
        print("".join(traceback.format_exception(error)[-4:]).rstrip())
    print(f"input: {data!r}")
    print(f"rerun: python -m chaos.fuzz --target {target} --hex {data.hex()}")


def fuzz(wanted: Sequence[str], seconds: float, seed: int, keep: Path | None) -> int:
    rng = random.Random(seed)
    corpus = {target: [*inputs.values()] for target, inputs in load().items() if target in wanted}
    seen: dict[str, set[Edge]] = {target: set() for target in corpus}
    for target, inputs in corpus.items():
        for data in [*inputs, b""]:
            if failure(target, data) is not None:
                report(target, data)
                return 1
            seen[target] |= covered(target, data)
    began = time.monotonic()
    runs, fresh, last = 0, 0, began
    while (now := time.monotonic()) - began < seconds:
        target = rng.choice([*corpus])
        inputs = corpus[target]
        data = mutated(rng.choice(inputs or [b""]), rng.choice(inputs or [b""]), rng)
        runs += 1
        if failure(target, data) is not None:
            report(target, data)
            return 1
        edges = covered(target, data)
        if not edges <= seen[target]:
            seen[target] |= edges
            inputs.append(data)
            fresh += 1
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{target}--{seed}-{fresh:04}.bin").write_bytes(data)
        if now - last > 10:
            last = now
            print(f"{now - began:.0f} s, {runs} runs, {fresh} reached something new", file=sys.stderr)
    reached = ", ".join(f"{target} {len(edges)}" for target, edges in seen.items())
    print(f"held: {runs} runs in {seconds:.0f} s, {fresh} of them reached something new; edges: {reached}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.fuzz", description="Coverage-guided fuzzing by bytes.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--target", choices=TARGETS, action="append", help="all of them, unless given")
    parser.add_argument("--keep", type=Path, default=None, help="where to write inputs that reached something new")
    parser.add_argument("--cost", action="store_true", help="count what input costs as it grows, in place of all else")
    parser.add_argument("--case", default="", help="with --cost: those whose name has this in it")
    parser.add_argument("--octets", type=int, default=1 << 20, help="with --cost: how large inputs grow")
    parser.add_argument("--hex", default=None, help="run this one input only")
    options = parser.parse_args(arguments)
    if options.cost:
        seed = options.seed or 0
        print(
            f"seed {seed}, {options.seconds:.0f} s, inputs up to {options.octets} bytes, commit {commit()}", flush=True
        )
        chosen = [case for case in cost.mixed(cases(), seed) if options.case in case.name]
        return 1 if cost.run(chosen, options.octets, options.seconds) else 0
    wanted = options.target or list(TARGETS)
    if options.hex is not None:
        try:
            data = bytes.fromhex(options.hex)
        except ValueError:
            parser.error("--hex takes pairs of hexadecimal digits")
        found = [target for target in wanted if failure(target, data) is not None]
        for target in found:
            report(target, data)
        if not found:
            print(f"held: {len(data)} bytes at {', '.join(wanted)}")
        return 1 if found else 0
    seed = options.seed if options.seed is not None else int.from_bytes(random.SystemRandom().randbytes(4), "big")
    print(f"seed {seed}, {options.seconds:.0f} s, targets {', '.join(wanted)}, commit {commit()}", flush=True)
    result = fuzz(wanted, options.seconds, seed, options.keep)
    if result:
        targets = " ".join(f"--target {target}" for target in options.target or ())
        print(f"rerun all: python -m chaos.fuzz --seed {seed} --seconds {options.seconds:.0f} {targets}".rstrip())
    return result


if __name__ == "__main__":
    sys.exit(main())
