"""`python -m bench [compare|unsettled|memory|spark|wal] [options]`; compare when none is named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from bench import compare, memory, spark, unsettled


def _wal(arguments: Sequence[str]) -> int:
    from bench import wal  # needs pyarrow

    return wal.main(arguments)


PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "compare": compare.main,
    "unsettled": unsettled.main,
    "memory": memory.main,
    "spark": spark.main,
    "wal": _wal,
}


def main() -> int:
    arguments = sys.argv[1:]
    if arguments and arguments[0] in PROGRAMS:
        return PROGRAMS[arguments[0]](arguments[1:])
    return compare.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
