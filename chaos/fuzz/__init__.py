"""Fuzzing of everything that reads bytes from strangers: the engine on both sides, the router's client connections.

`python -m chaos.fuzz` mutates recorded conversations, guided by coverage; tests/fuzz generates performatives. Both feed
the targets of targets.py, which say what must never happen. Next: targets.py, then mutator.py and __main__.py.
"""
