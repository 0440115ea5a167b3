"""`python -m chaos.clients`: one client process."""

from __future__ import annotations

from chaos.clients.options import parse
from chaos.history import Writer
from onceway.parent import die_with


def main() -> None:
    args = parse(None)
    if args.parent is not None:
        die_with(args.parent)
    with Writer(args.history) as history:
        history.write("start", **{"p" if args.what == "publish" else "s": args.name})
        if args.client == "proton":
            from chaos.clients import careful_proton

            careful_proton.run(args, history)
        else:
            from chaos.clients import ours

            ours.run(args, history)


if __name__ == "__main__":
    main()
