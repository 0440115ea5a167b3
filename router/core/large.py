"""Large deliveries, which pass through while they arrive (protocol 6.12): what an egress keeps of one.

These are the parts that a subscription here has not been sent yet. An ingress keeps no payload, only how much it has
passed on and how much each home has taken (`router.core.publisher.Sending`). The rules are in `router.core.records` and
`router.core.deliveries`.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

from router.core.irregular import Irregular
from router.core.ports import Outcome

STREAM_IDLE_S: Final = 30.0
"""How long a link waits in the middle of one for more of it. Then its publisher has to attach again, or, where nobody
sends it, the link gives it up."""
DIGEST_SIZE: Final = 16


class Body:
    """The payload of a large delivery at an egress: the parts from `start` on."""

    __slots__ = ("bare_at", "moved_at", "complete", "end", "_freed", "head", "parts", "start", "told")

    def __init__(self, head: bytes, *, whole: bool = False) -> None:
        self.moved_at = 0.0  # when more of it last came, or went out here
        self.head = head  # the first part: all sections before the message's body
        self.bare_at = 0  # where the bare message begins in it, once a client here resumes it
        self.parts: deque[bytes] = deque((head,))
        self.start = 0
        self.end = len(head)
        self.complete = whole
        self.told = 0  # how much the ingress knows to be taken
        self._freed: blake2b | None = None  # of the bare message before `start`, where a client here resumes it

    @property
    def held(self) -> int:
        return self.end - self.start

    @property
    def is_digested(self) -> bool:
        return self._freed is not None

    def begin_digest(self, bare_at: int) -> None:
        """A client here resumes it: what goes out of its bare message is to be told from that of another message."""
        assert not self.start, "its beginning is freed"
        self.bare_at, self._freed = bare_at, blake2b(digest_size=DIGEST_SIZE)

    def add(self, payload: bytes, last: bool) -> None:
        if payload:
            self.parts.append(payload)
            self.end += len(payload)
        self.complete = last

    def read(self, offset: int, most: int) -> bytes:
        """Returns the bytes at this offset, of one part, at most so many."""
        at = self.start
        for part in self.parts:
            if offset < at + len(part):
                low = offset - at
                return part if not low and len(part) <= most else part[low : low + most]
            at += len(part)
        return b""

    def free(self, offset: int) -> int:
        """Frees the parts before this offset. Returns how many bytes these were."""
        before = self.start
        while self.parts and self.start + len(self.parts[0]) <= offset:
            part = self.parts.popleft()
            if self._freed is not None:
                self._freed.update(part[max(self.bare_at - self.start, 0) :])
            self.start += len(part)
        return self.start - before

    def digest(self, offset: int) -> bytes:
        """Returns the digest of the bare message up to this offset, before which not all is freed."""
        assert self._freed is not None
        assert offset >= self.start
        digest, at = self._freed.copy(), self.start
        for part in self.parts:
            start = max(self.bare_at - at, 0)
            digest.update(part[start : max(offset - at, start)])  # compiled, a slice that ends before its start raises
            at += len(part)
        return digest.digest()


class Partial:
    """The large delivery that a subscription's link is in the middle of.

    `delivery`: it is known by tag. `early`: the client's outcome before it had all of it, whether it settled, and
    whether it said something beside it.
    `resumes`: the client may have had it before this link. Such a one is *open* when nobody sends it, because its
    publisher's ingress is lost (protocol 6.12.12).
    """

    __slots__ = (
        "_digest", "_seen", "_sent", "body", "delivery", "delivery_id", "early", "offset", "open_since",
        "position", "resumes", "rest", "tag",
    )  # fmt: skip

    def __init__(
        self,
        tag: bytes,
        body: Body,
        position: int,
        delivery: Irregular | None,
        delivery_id: int,
        offset: int,
        resumes: bool,
    ) -> None:
        self.tag = tag
        self.body: Body | None = body
        self.position = position  # of the arrival log; -1 where a SYNC has brought it
        self.delivery = delivery
        self.delivery_id = delivery_id
        self.offset = offset  # of `body`: what is before it needs nobody to send it
        self.resumes = resumes
        self.early: tuple[Outcome, bool, bool] | None = None
        self.rest = b""  # of the sections before the bare message: those of the copy that has begun it
        self.open_since = 0.0
        self._sent = 0  # octets of the bare message that had gone out by then
        self._digest = b""  # of these
        self._seen: blake2b | None = None  # of those of the next copy, while they are compared

    def lose(self, now: float) -> None:
        """Nobody sends it any more."""
        body = self.body
        assert body is not None
        if self._seen is None:  # else nothing of this copy has gone out
            self.rest += body.head[min(self.offset, body.bare_at) : body.bare_at]
            self._sent = max(self.offset - body.bare_at, 0)
            self._digest = body.digest(self.offset)
        self.body, self.position, self.open_since = None, -1, now

    def find(self, body: Body, position: int) -> None:
        """It comes again."""
        assert self.body is None
        self.body, self.position, self.offset = body, position, body.bare_at
        self._seen = blake2b(digest_size=DIGEST_SIZE)

    def skip(self) -> bool:
        """Compares what has come again with what has gone out. Says whether all of that has come.

        Raises:
            AnotherMessage: They are not the same.
        """
        body, seen = self.body, self._seen
        if seen is None:
            return True
        assert body is not None
        stop = body.bare_at + self._sent
        while self.offset < stop:
            piece = body.read(self.offset, stop - self.offset)
            seen.update(piece)
            self.offset += len(piece)
            if not piece:
                if body.complete:
                    raise AnotherMessage
                return False
        if seen.digest() != self._digest:
            raise AnotherMessage
        self._seen = None
        return True


class AnotherMessage(Exception):
    """What comes with the tag of an open delivery does not begin with what its link has been sent."""
