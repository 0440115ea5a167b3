"""Who is there, and who leads (rules 4.x of docs/shared-queue.md).

A view is an opinion: a member that is slow or cut off is taken for dead, and comes back. No safety rule of the queue
depends on it. `paxos` is led by whom the view names, and is slower while members disagree, not wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

from edges.queue.messages import Alive, Leave, Message, Outdated


@dataclass(frozen=True, slots=True)
class Joined:
    """A member has come, or come back."""

    member: str


@dataclass(frozen=True, slots=True)
class Left:
    """A member said that it goes."""

    member: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A member was silent for too long, or has started again."""

    member: str


@dataclass(frozen=True, slots=True)
class NewLeader:
    """The first of the view, in the order of names, is another member than before."""

    member: str


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """The view has changed; epochs of one member count from 1."""

    epoch: int
    view: tuple[str, ...]


Event = Joined | Left | Failed | NewLeader | NewEpoch


class Group:
    """One member's opinion of the group.

    Args:
        name: this member's.
        life: a number higher than that of every earlier process of this name.
        now: seconds of a clock that never goes back.
        heartbeat_s: how often this member says that it is there.
        suspect_s: how long another may be silent.
    """

    def __init__(self, name: str, life: int, now: float, *, heartbeat_s: float = 1.0, suspect_s: float = 5.0) -> None:
        assert 0 < heartbeat_s < suspect_s
        self.name = name
        self.epoch = 0
        self._life = life
        self._heartbeat_s = heartbeat_s
        self._suspect_s = suspect_s
        self._heard: dict[str, float] = {}  # member: when it was last heard
        self._lives: dict[str, int] = {}  # member: its latest life that is known
        self._gone: dict[str, int] = {}  # member: the life in which it left
        self._leader: str | None = None
        self._beat_at = now + heartbeat_s
        self._messages: list[Message] = [Alive(life, joining=True)]
        self._events: list[Event] = []
        self._has_left = False
        self.outdated: int | None = None  # the later life in which others know this member (rule 4.6)
        self._changed(Joined(name))

    @property
    def view(self) -> tuple[str, ...]:
        """The members that this one takes to be there, in the order of names; itself among them until it leaves."""
        return tuple(sorted([*self._heard] + ([] if self._has_left else [self.name])))

    @property
    def leader(self) -> str | None:
        """The first of the view (rule 4.4); None once this member has left."""
        return self._leader

    def messages(self) -> list[Message]:
        """What to say to all other members; then it is forgotten here."""
        messages, self._messages = self._messages, []
        return messages

    def events(self) -> list[Event]:
        """What has happened since this was last asked."""
        events, self._events = self._events, []
        return events

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Another member says this. Whatever it says, it is there (rule 4.2), unless it has left."""
        if self._has_left:
            return
        if isinstance(message, Leave):
            self._gone[sender] = max(message.life, self._gone.get(sender, 0))
            if message.life >= self._lives.get(sender, 0) and self._heard.pop(sender, None) is not None:
                self._changed(Left(sender))
            return
        if isinstance(message, Outdated):
            if (message.member, message.life) == (self.name, self._life):
                self.outdated = message.known
            return
        if isinstance(message, Alive) and not self._note_life(sender, message):
            return
        if sender not in self._lives or self._gone.get(sender, -1) >= self._lives[sender]:
            return  # nothing is known of its present life; it will say so
        new = sender not in self._heard
        self._heard[sender] = now
        if new:
            self._changed(Joined(sender))

    def tick(self, now: float) -> None:
        """Time has passed: say that this member is there, and suspect those who did not (rule 4.3)."""
        if self._has_left:
            return
        if now >= self._beat_at:
            self._beat_at = now + self._heartbeat_s
            self._messages.append(Alive(self._life))
        for member in [member for member, heard in self._heard.items() if now - heard > self._suspect_s]:
            del self._heard[member]
            self._changed(Failed(member))

    def leave(self) -> None:
        """Say that this member goes. Nothing more is said or heard afterwards."""
        if not self._has_left:
            self._has_left = True
            self._messages.append(Leave(self._life))
            self._changed(Left(self.name))

    def _note_life(self, sender: str, message: Alive) -> bool:
        """False if it is what an earlier process of this name said, which comes late."""
        known = self._lives.get(sender)
        latest = max(known or 0, self._gone.get(sender, -1) + 1)
        if message.life < latest:
            if message.joining:
                self._messages.append(Outdated(sender, message.life, latest))
            return False
        self._lives[sender] = message.life
        if known is not None and message.life > known and self._heard.pop(sender, None) is not None:
            self._changed(Failed(sender))
        if message.joining:
            self._messages.append(Alive(self._life))
        return True

    def _changed(self, event: Event) -> None:
        self.epoch += 1
        self._events += [event, NewEpoch(self.epoch, self.view)]
        leader = None if self._has_left else self.view[0]
        if leader != self._leader:
            self._leader = leader
            if leader is not None:
                self._events.append(NewLeader(leader))
