"""The eventual shared queue: members of a group enqueue elements, and each element is dequeued by one of them.

The rules are in docs/shared-queue.md, the contract in docs/contracts/shared-queue.md. `lamport` and `paxos` are two
protocols for the same queue, `group` says who is there and who leads. None of them knows sockets or clocks: messages
and `now` come in, messages and results go out. `member` brings them onto the network. Read `messages` first, then
`elements`, then one of the protocols.
"""

from edges.queue.member import Member

__all__ = ["Member"]
