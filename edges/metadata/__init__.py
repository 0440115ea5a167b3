"""Subscriptions by metadata: subscribers name the publishers that they want by a predicate.

The contract is in docs/contracts/metadata-pubsub.md, and docs/metadata.md is for users. Read these in this order:
`router.links.predicate` has what a predicate is, `registry` which publishers match which, and `exchange` what edges say
to each other. `wire` turns bytes into messages. Sockets and clocks are in `serve` and `client` only. Nothing is
imported here: the packages of the extra `metadata` may be missing.
"""
