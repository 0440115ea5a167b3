"""The whole network in one process and virtual time: the real engine and cores, scripted clients, faults by schedule.

`world.py` is what happens, on top of `routers.py`; `clients.py`, `publishers.py`, `subscribers.py` are who takes part;
`checker.py` is what may not happen. `scenarios` holds the named schedules of protocol 11, `explore.py` the random ones.
`python -m chaos.simulate` runs them.
"""
