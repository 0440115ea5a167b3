"""`onceway conformance`: whether a client keeps the client's half of exactly once, as its router sees it.

The program plays a router on a port of 127.0.0.1 (`playing`), starts the client under test as a child process, and
tells it by lines what to do (`child`; docs/write-a-client.md has the contract). Each rule is one check, by name:
`publishers` and `subscribers` have them, `checks` what they have in common, `run` runs them one after the other, each
with a client that knows nothing yet. The router that is played has no memory of its own: a check says what it answers.
"""
