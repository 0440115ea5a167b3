"""Queues: each delivery is one consumer's (protocol 16). Read `router.core.queue.distribution`."""
