"""Ways to make it hard to believe that the guarantee is wrong: simulation, live processes under faults, a judge.

Sees every other package; only tests import it.
"""
