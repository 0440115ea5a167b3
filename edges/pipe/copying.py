"""One link that reads a pipe, with distribution-mode copy, from a position on. docs/wire.md describes its properties.

A link is a task that sends while there is credit and something to read; links that read the same place share the
encoded frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from amqp10.errors import INVALID_FIELD
from amqp10.outcomes import Error
from amqp10.sender import SenderLink
from amqp10.types import Described, Symbol, Timestamp
from edges.pipe.log import PipeLog
from edges.pipe.messages import (
    CONTROL,
    CONTROL_BYTE,
    END,
    ENTRIES,
    FROM,
    GONE_ERROR,
    GONE_FIRST,
    IF_GONE,
    PIPE_DROPPED,
    PIPE_RESET,
    RESUMED,
    control_message,
    encode_entry,
)
from onceway.base.waits import READER_ROOM
from onceway.client.bodies import without_format

if TYPE_CHECKING:
    from edges.pipe.listener import Session


class Refused(Exception):
    """What an attach asks for cannot be given."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


class Reading:
    """One link that reads a pipe."""

    def __init__(
        self,
        session: Session,
        link: SenderLink,
        pipe: PipeLog,
        first: int,
        settled: bool,
        properties: Mapping[str, Any],
    ) -> None:
        self.link = link
        self.pipe = pipe
        self.wake = pipe.changes  # shared: everything that may let a link go on is rare beside what it sends
        self._session = session
        self._settled = settled
        self._control = bool(properties.get(CONTROL))
        self._entries = bool(properties.get(ENTRIES))
        self._skip = properties.get(IF_GONE) == GONE_FIRST
        self._cursor = first
        pipe.cursors[self] = first

    def forget(self) -> None:
        old = self.pipe.cursors.pop(self) < self.pipe.state.start
        if old:
            self.pipe.trim_soon()

    async def run(self) -> None:
        link, pipe, carrier = self.link, self.pipe, self._session.carrier
        while not link.detached:
            if self._cursor < pipe.state.dropped:
                self._dropped()
                continue
            if self._cursor >= pipe.visible or not link.capacity() or carrier.paused:
                if link.drain and link.credit and self._cursor >= pipe.visible:
                    link.drained()
                    carrier.write()
                await READER_ROOM(self.wake).until(self._may_go_on)
                continue
            chunk = await pipe.chunk(self._cursor)
            room = 0 if link.detached else link.capacity()
            if not chunk.payloads:
                self._cursor = max(self._cursor, await pipe.first())
            if self._cursor < pipe.state.dropped:
                continue
            begin = max(self._cursor, chunk.first)
            end = min(chunk.end, begin + room, pipe.visible)
            if begin < end:
                self._send(chunk, begin, end)
                self._cursor = end
                pipe.cursors[self] = end
                carrier.write()
            await asyncio.sleep(0)

    def _may_go_on(self) -> bool:
        link = self.link
        if link.detached or self._cursor < self.pipe.state.dropped:
            return True
        if self._session.carrier.paused:
            return False
        if self._cursor < self.pipe.visible:
            return link.capacity() > 0
        return link.drain and link.credit > 0

    def _dropped(self) -> None:
        """What comes next is gone."""
        if self._skip:
            self._cursor = self.pipe.cursors[self] = self.pipe.state.start
            return
        gone = dropped(self.pipe, self._cursor)
        self.link.detach(Error(Symbol(gone.condition), gone.description))
        self._session.carrier.write()

    def _send(self, chunk: Any, begin: int, end: int) -> None:
        tags = chunk.tags[begin - chunk.first : end - chunk.first]
        payloads = chunk.payloads[begin - chunk.first : end - chunk.first]
        link = self.link
        if self._entries:
            epoch = self.pipe.state.epoch
            entries = self.pipe.entries(begin, payloads)
            link.send(
                tags, [encode_entry(epoch, at, each) for at, each in enumerate(entries, begin)], settled=self._settled
            )
            return
        if chunk.plain:
            hint = begin & 0xFFFFFFFF  # so readers have the same delivery-ids, and share frames
            link.send(tags, payloads, settled=self._settled, id_hint=hint, shared=(chunk.blocks, begin))
            return
        kept = []
        for position, record in enumerate(payloads, begin):
            if record[0] != CONTROL_BYTE:
                kept.append((tags[position - begin], *without_format(record)))
            elif self._control:
                kept.append((tags[position - begin], control_message(record, position), 0))
        for message_format, run in groupby(kept, itemgetter(2)):
            alike = list(run)
            link.send(
                [tag for tag, _, _ in alike], [payload for _, payload, _ in alike],
                settled=self._settled, message_format=message_format,
            )  # fmt: skip


def filters_of(filters: Mapping[str, Any] | None) -> dict[str, Any]:
    """The filters that are known here; AMQP wants each described."""
    found = {}
    for key in (FROM, RESUMED, CONTROL, IF_GONE):
        if filters and key in filters:
            value = filters[key]
            found[key] = value.value if isinstance(value, Described) else value
    return found


async def start_of(pipe: PipeLog, properties: Mapping[str, Any]) -> int:
    """The position that a link begins with."""
    wanted = properties.get(FROM)
    start = pipe.state.start
    if wanted is None:
        return start
    if wanted == END:
        return max(start, pipe.visible)
    if isinstance(wanted, Timestamp):
        return await pipe.position_at(int(wanted) * 1000)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 0:
        raise Refused(INVALID_FIELD, f"{FROM}: a position, a timestamp or {END!r}, not {wanted!r:.60}")
    wanted = int(wanted)
    resumed = bool(properties.get(RESUMED))
    if wanted >= start:
        return wanted
    if resumed and wanted >= max(await pipe.first(), pipe.state.dropped):
        return wanted
    if properties.get(IF_GONE, GONE_ERROR if resumed else GONE_FIRST) == GONE_FIRST:
        return start
    if wanted < pipe.state.dropped:
        raise dropped(pipe, wanted)
    raise Refused(PIPE_RESET, f"position {wanted} was removed by a reset; the pipe begins at {start}")


def dropped(pipe: PipeLog, position: int) -> Refused:
    """What a link is told whose next position retention has dropped."""
    return Refused(PIPE_DROPPED, f"position {position} was dropped by retention; the pipe begins at {pipe.state.start}")
