"""The node `$management` of a router: AMQP management (OASIS working draft 9) for any AMQP client.

`node` reads requests and writes answers, `entities` are what can be managed, and `foreign` has the names that the tools
of skupper-router and Qpid Dispatch ask for. The links are in `router.links.management_link`. Nothing is kept here:
entities are made from the router's reports, as `/status` is, or from its connections, when somebody asks.
"""
