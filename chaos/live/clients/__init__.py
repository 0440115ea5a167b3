"""The publishers and subscribers of a chaos run, each a process: `python -m chaos.live.clients publish|subscribe ...`.

A client says READY on stdout once its first attach has been answered and writes its own history.  A publisher ends by
itself, saying DONE, when everything has its outcome, SIGTERM telling it to publish nothing more; a subscriber ends at
SIGTERM.  `ours` is our client with a journal,
`careful_proton` and rhea.js are what careful users of those libraries write.
"""
