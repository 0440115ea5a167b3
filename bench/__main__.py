"""`python -m bench [compare|unsettled|memory|spark] [options]`; compare when none is named."""

from __future__ import annotations

import sys

from bench import compare, memory, spark, unsettled

PROGRAMS = {"compare": compare.main, "unsettled": unsettled.main, "memory": memory.main, "spark": spark.main}


def main() -> int:
    arguments = sys.argv[1:]
    if arguments and arguments[0] in PROGRAMS:
        return PROGRAMS[arguments[0]](arguments[1:])
    return compare.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
