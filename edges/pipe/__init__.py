"""The pipe: a distributed, ordered queue that keeps what is read (docs/pipe.md).

`push`, `pull` and `reset` are what programs call; `onceway pipe` is the same on the command line. `serve` is a store
process: `log` is one pipe in its store, `listener` what readers attach to, `reader` the other end of that.
"""

from edges.pipe.api import pull, push, reset
from edges.pipe.reader import PipeDropped, PipeWasReset, Reader, Received

__all__ = ["PipeDropped", "PipeWasReset", "Reader", "Received", "pull", "push", "reset"]
