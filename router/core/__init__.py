"""What one router decides: addresses, subscriptions, delivery records.

Read `core`, then `address`, which names the parts of an address.
"""
