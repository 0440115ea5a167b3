"""`python -m chaos.live.clients publish|subscribe OPTIONS`: one client process."""

from __future__ import annotations

import sys

from chaos.judge.history import Writer
from chaos.live.clients.options import parse
from chaos.live.schedule import EDGES
from onceway.host.parent import die_with


def main() -> None:
    args = parse(*sys.argv[1:])
    if args.parent is not None:
        die_with(args.parent)
    with Writer(args.history) as history:
        history.write("start", **{"p" if args.what == "publish" else "s": args.name})
        if args.client == "proton":
            from chaos.live.clients import careful_proton

            careful_proton.run(args, history)
        elif args.client in EDGES and (args.what, args.client) != ("publish", "pipe"):  # a push is a publication
            from chaos.live.clients import edges

            edges.run(args, history)
        else:
            from chaos.live.clients import ours

            ours.run(args, history)


if __name__ == "__main__":
    main()
