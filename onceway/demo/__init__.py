"""`onceway demo`: a network, publishers and subscribers, a killed router, and the ledger.

`ledger` judges from what the applications saw and knows nothing of routers; `applications` are the publishers and
subscribers, ordinary users of `onceway.connect`; `story` starts everything, kills, waits and tells.
"""
