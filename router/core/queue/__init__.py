"""Queues: each delivery is one consumer's, chosen by the ingress (protocol 16). Read `router.core.queue.records`."""
