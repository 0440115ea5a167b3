"""A client under test that has a fault: `python -m tests.conformance.faulty FAULT`.

It is examples/conformance/library_client.py with what it writes or reads changed on the way: `out` has the frames that
the client sends, `into` those that it gets, `says` its lines.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amqp10 import performatives
from amqp10.connection import Connection
from amqp10.frames import encode_frame
from amqp10.outcomes import ACCEPTED, Accepted, Rejected, Released
from amqp10.performatives import Attach, Detach, Disposition, Flow, Transfer
from onceway.client.protocol import link
from onceway.conformance.playing import pieces
from router.names import BORN, EPOCH, INCARNATION

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "examples" / "conformance" / "library_client.py"


class Client:
    """The client as it should be, and what a fault needs to remember."""

    def __init__(self) -> None:
        self.connections = 0
        self.first: dict[str, Any] = {}

    def out(self, frame: Any, payload: bytes) -> Iterator[tuple[Any, bytes]]:
        yield frame, payload

    def into(self, frame: Any) -> None:
        pass

    def says(self, line: str) -> list[str]:
        return [line]


class ModeFirst(Client):
    def out(self, frame, payload):
        if isinstance(frame, Attach):
            frame.rcv_settle_mode = 0
        yield frame, payload


class OneEpoch(Client):
    """Attaches always with the epoch of its first attach."""

    def out(self, frame, payload):
        if isinstance(frame, Attach):
            frame.properties[EPOCH] = self.first.setdefault(EPOCH, frame.properties[EPOCH])
        yield frame, payload


class OwnClock(Client):
    """Does not go beyond the epoch of a refusal."""

    def out(self, frame, payload):
        if isinstance(frame, Attach):
            self.first[EPOCH] = self.first.get(EPOCH, frame.properties[EPOCH] - 1) + 1
            frame.properties[EPOCH] = self.first[EPOCH]
        yield frame, payload


class OneLife(Client):
    """Keeps incarnation and born when they are over."""

    def out(self, frame, payload):
        for name in (INCARNATION, BORN):
            if isinstance(frame, Attach) and name in frame.properties:
                frame.properties[name] = self.first.setdefault(name, frame.properties[name])
        yield frame, payload


class Mute(Client):
    """Answers no echo."""

    def out(self, frame, payload):
        if not (isinstance(frame, Flow) and frame.handle is not None):
            yield frame, payload


class Deaf(Client):
    """Does not see that a flow has echo."""

    def into(self, frame):
        if isinstance(frame, Flow):
            frame.echo = False


class KeepsCredit(Client):
    def out(self, frame, payload):
        if not (isinstance(frame, Flow) and frame.handle is not None and frame.drain):
            yield frame, payload


class TooMany(Client):
    """Sends without credit."""

    def out(self, frame, payload):
        yield frame, payload
        if isinstance(frame, Transfer):
            yield Transfer(frame.handle, frame.delivery_id + 1, b"another", 0), payload


class OneTag(Client):
    def out(self, frame, payload):
        if isinstance(frame, Transfer):
            frame.delivery_tag = b"tag"
        yield frame, payload


class SettlesEarly(Client):
    """Settles before the outcome has come."""

    def out(self, frame, payload):
        yield frame, payload
        if isinstance(frame, Transfer):
            yield Disposition(False, frame.delivery_id, None, True), b""


class NeverSettles(Client):
    def out(self, frame, payload):
        if not (isinstance(frame, Disposition) and not frame.role):
            yield frame, payload


class TellsAccepted(Client):
    """Takes rejected for accepted."""

    def says(self, line):
        return [line.replace("rejected", "accepted")]


class ForgetsMap(Client):
    def out(self, frame, payload):
        if isinstance(frame, Attach):
            frame.unsettled = None
        yield frame, payload


class HalfMap(Client):
    """Leaves out of its map what it has accepted, and all but the first of what is undecided."""

    def out(self, frame, payload):
        if isinstance(frame, Attach) and frame.unsettled:
            frame.unsettled = {tag: state for tag, state in frame.unsettled.items() if state is None}
            frame.unsettled = dict(list(frame.unsettled.items())[:1])
        yield frame, payload


class KeepsMap(Client):
    """Presents for ever what it has presented once."""

    def out(self, frame, payload):
        if isinstance(frame, Attach):
            kept = self.first.setdefault("map", {})
            kept.update(frame.unsettled or {})
            frame.unsettled = dict(kept) if frame.unsettled is not None else None
        yield frame, payload


class NullMap(Client):
    """Says null where its map is empty."""

    def out(self, frame, payload):
        if isinstance(frame, Attach):
            frame.unsettled = frame.unsettled or None
        yield frame, payload


class WholeMap(Client):
    """Says of a part that it is the whole."""

    def out(self, frame, payload):
        if isinstance(frame, Attach):
            frame.incomplete_unsettled = False
        yield frame, payload


class RenamesTags(Client):
    """Sends again with other tags."""

    def out(self, frame, payload):
        if isinstance(frame, Transfer) and self.connections > 1:
            frame.delivery_tag = b"again" + frame.delivery_tag
        yield frame, payload


class Resumes(Client):
    """Sends again with resume = true."""

    def out(self, frame, payload):
        if isinstance(frame, Transfer) and self.connections > 1:
            frame.resume = True
        yield frame, payload


class SendsTwice(Client):
    """Sends again what was accepted."""

    def out(self, frame, payload):
        if isinstance(frame, Disposition) and not frame.role:
            yield frame, payload
            yield Transfer(0, frame.first + 1, self.first["tag"], 0), self.first["payload"]
            return
        if isinstance(frame, Transfer):
            self.first.update(tag=frame.delivery_tag, payload=payload)
        yield frame, payload


class NoJournal(Client):
    def __init__(self) -> None:
        super().__init__()
        state = Path(os.environ["ONCEWAY_STATE"])
        shutil.rmtree(state)
        state.mkdir()


class NeverMind(Client):
    """Says nothing of what has gone wrong."""

    def says(self, line):
        return [] if line.split()[0] in ("gave-up", "undecided", "missed") else [line]


class TakesLess(Client):
    """Does not look at the guarantee."""

    def __init__(self) -> None:
        super().__init__()
        link.less = lambda given, asked: False


class Closes(Client):
    def out(self, frame, payload):
        if isinstance(frame, Detach):
            frame.closed = True
        yield frame, payload


class AcceptsSettled(Client):
    """Settles when it accepts."""

    def out(self, frame, payload):
        if isinstance(frame, Disposition) and frame.role:
            frame.settled = True
        yield frame, payload


class AcceptsTwice(Client):
    def out(self, frame, payload):
        yield frame, payload
        if isinstance(frame, Disposition) and frame.role:
            yield frame, payload


class AcceptsAtOnce(Client):
    """Accepts what comes before its application has."""

    def into(self, frame):
        if isinstance(frame, Transfer) and not frame.aborted:
            self.first.setdefault("came", []).append(frame.delivery_id)

    def out(self, frame, payload):
        yield frame, payload
        if isinstance(frame, Flow):
            for number in self.first.pop("came", []):
                yield Disposition(True, number, None, False, ACCEPTED), b""


class AcceptsAll(Client):
    """Says accepted, whatever its application says."""

    def out(self, frame, payload):
        if isinstance(frame, Disposition) and isinstance(frame.state, Rejected):
            frame.state = ACCEPTED
        yield frame, payload


class SaysOnce(Client):
    """Says its word on the first connection only."""

    def out(self, frame, payload):
        if not (isinstance(frame, Disposition) and self.connections > 1 and isinstance(frame.state, Accepted)):
            yield frame, payload


class ReleasesNothing(Client):
    def out(self, frame, payload):
        if not (isinstance(frame, Disposition) and isinstance(frame.state, Released)):
            yield frame, payload


class HandsAgain(Client):
    """Hands what it holds to its application again after a loss."""

    def into(self, frame):
        if isinstance(frame, Attach):
            self.first["again"] = self.connections > 1

    def out(self, frame, payload):
        if isinstance(frame, Disposition) and frame.role and self.first.get("again"):
            print("received m1", flush=True)
        yield frame, payload


class TakesHalves(Client):
    """Takes a delivery that is aborted for a whole one, as rhea does."""

    def into(self, frame):
        if isinstance(frame, Transfer):
            frame.aborted = False


class TakesAnswerForWhole(Client):
    """Does not look at incomplete-unsettled."""

    def into(self, frame):
        if isinstance(frame, Attach):
            frame.incomplete_unsettled = False


FAULTS: dict[str, type[Client]] = {fault.__name__: fault for fault in Client.__subclasses__()}


@dataclass
class Frames:
    """Octets as frames, changed on the way."""

    change: Callable[[Any, bytes], Iterator[tuple[Any, bytes]]]
    rest: bytes = b""

    def through(self, data: bytes) -> bytes:
        data = self.rest + data
        done, changed = 0, []
        for start, stop, channel in pieces(data):
            if start == stop:
                changed.append(data[done:stop])
            else:
                frame, payload = performatives.decode_performative(data, start, stop)
                for other, octets in self.change(frame, data[payload:stop]):
                    changed.append(encode_frame(0, channel, (other.encode(), octets)))
            done = stop
        self.rest = data[done:]
        return b"".join(changed)


def main(name: str) -> None:
    client = FAULTS[name]() if name != "none" else Client()
    receive_data, data_to_send, opening = Connection.receive_data, Connection.data_to_send, Connection.open
    frames: dict[Connection, tuple[Frames, Frames]] = {}

    def changed(frame: Any, payload: bytes) -> Iterator[tuple[Any, bytes]]:
        client.into(frame)
        yield frame, payload

    def begin(self: Connection) -> None:
        client.connections += 1
        frames[self] = Frames(client.out), Frames(changed)
        opening(self)

    def say(*words: str, flush: bool = True) -> None:
        for line in client.says(" ".join(words)):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    Connection.open = begin
    Connection.data_to_send = lambda self: frames[self][0].through(data_to_send(self))
    Connection.receive_data = lambda self, data, now: receive_data(self, frames[self][1].through(data), now)
    runpy.run_path(str(CLIENT), {"print": say}, "__main__")


if __name__ == "__main__":
    main(sys.argv[1])
