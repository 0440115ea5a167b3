"""Deliberate defects: rules of the protocol taken away from the real router and client, by what they are about.

A rule is taken away by putting another body in the place of one small method (rarely two or three, where a rule is
checked in as many places). `TAKEN` names the schedule that is there for it (`chaos/simulation/scenarios/`), so does
`EASY_TO_LOSE`, of conditions within a rule; `AT_RANDOM` names a family of random schedules. The comments say why the
violation must come. `chaos/simulation/defects/mutations.py` tries them all.
"""
