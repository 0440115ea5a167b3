"""Whole worlds as tuples of numbers: the situations of their processes, what is under way between them, what is left
of faults and time.

The world is `World`'s, event by event, with the same names: a path of events that is found here happens in a `Small`
world, too, through real networks between real routers (`smallest.py`), and must look the same there. What processes do
is asked of `Locals`; here is only what is between them: connections, inboxes, trunks, the checker. A state is a tuple
of numbers, in this order: situations of routers (-1: dead), inboxes, situations of clients, connections, the checker,
the rest of it. `MutableState` is one taken apart, to be changed.

It simplifies `World` in two ways, which hide nothing:

- Unread bytes of a dead router (or of one that has dropped the connection) are lost at once. A client that reads them
  later does the same as one that had read them just before the crash: neither can tell, and nothing that it says
  arrives. That it reads some of them is the same fault a little later.
- Time passes only when nothing else can happen: timers are long compared with everything else. Then it passes for
  everybody, `TURN_S` at a time. Wall clocks stop but for one microsecond at each connection that is made, so
  that terms are in the order of connections.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from chaos.simulation.exhaustive.checkers import Checkers, Found
from chaos.simulation.exhaustive.processes import STEP_S, Cid, Locals, Said
from chaos.simulation.exhaustive.smallest import FAULTS, TURN_S, Setting, View, incarnation_of
from chaos.simulation.world.checker import Checker, Violation
from chaos.simulation.world.clients import MEMORY, RECOVERING
from chaos.simulation.world.pipes import kind_of
from chaos.simulation.world.publishers import Publisher
from chaos.simulation.world.queue_checker import QueueChecker
from chaos.simulation.world.subscribers import Subscriber
from chaos.simulation.world.world import Event

UP, DOWN = 0, 1  # in inboxes, beside the numbers of messages
State = tuple[int, ...]


class Channel(NamedTuple):
    """One client connection. c2r, r2c: the frames under way, by their numbers."""

    client: int
    number: int
    router: int
    life: int
    c2r: tuple[int, ...]
    r2c: tuple[int, ...]
    c_open: bool
    r_open: bool


class Rest(NamedTuple):
    budget: tuple[int, ...]  # faults left, in the order of FAULTS
    lives: tuple[int, ...]  # of routers: how often each has started
    numbers: tuple[int, ...]  # of clients: how often each has connected
    broken: bool  # the trunk
    turns: int  # of time


class Product:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.names = list(setting.names)
        publishers, subscribers = setting.clients()
        self.who: list[Publisher | Subscriber] = [*publishers, *subscribers]
        self.places = {client.name: place for place, client in enumerate(self.who)}
        self.kinds = [client.kind for client in self.who]
        self.clocked = any(kind != RECOVERING for kind in self.kinds)
        self.locals = Locals(self.names, setting.address, self.who, setting.config)
        self.n, self.m = len(self.names), len(self.who)
        self.pair = {  # (x, y): the place of x's inbox from y
            pair: place for place, pair in enumerate((x, y) for x in range(self.n) for y in range(self.n) if x != y)
        }
        self.pairs = len(self.pair)
        self.values: list[Any] = [None, None]  # places 0 and 1 stand for UP and DOWN in inboxes
        self.pool: dict[Any, int] = {}
        self.checkers = Checkers(
            QueueChecker(setting.strict, consumers=len(subscribers), groups_stay=True)
            if setting.queue
            else Checker(setting.strict)
        )
        self.router_names = {name: place for place, name in enumerate(self.names)}

    def one(self, value: Any) -> int:
        """Its number; equal values have the same."""
        number = self.pool.get(value)
        if number is None:
            number = self.pool[value] = len(self.values)
            self.values.append(value)
        return number

    # ------------------------------------------------------------------ beginning
    def begin(self) -> tuple[State, list[Event]]:
        """Every router has started and every client has attached where it begins; what happened until then, also
        where it ends with Found (`begun`)."""
        rest = Rest(
            tuple(self.setting.faults.get(fault, 0) for fault in FAULTS), (1,) * self.n, (0,) * self.m, False, 0
        )
        draft = MutableState.__new__(MutableState)
        draft.sites = [self.locals.start(name, incarnation_of(name, 1), True, 0.0, 0).number for name in self.names]
        draft.inboxes = [(UP,)] * self.pairs
        draft.clients = [self.locals.first[client.name] for client in self.who]
        draft.channels, draft.checker, draft.rest = [], self.checkers.first, rest
        self.begun: list[Event] = []
        state = self.quiet(self.packed(draft))
        for name, place in self.setting.placed():
            state = self.quiet(self.then(state, ("connect", name, place)))
            if isinstance(self.who[self.places[name]], Publisher):
                state = self.quiet(self.then(state, ("show", name)))
        return state, self.begun

    def then(self, state: State, event: Event) -> State:
        self.begun.append(event)
        return self.step(state, event)

    def quiet(self, state: State) -> State:
        """Everything has happened that happens by itself, but for applications that send."""
        while True:
            events = [e for e in self.progress(state) if e[0] not in ("send", "connect")]
            if not events:
                return state
            state = self.then(state, events[0])

    # ------------------------------------------------------------------ what can happen
    def progress(self, state: State) -> list[Event]:
        """What happens by itself, and what applications do next; clients connect, routers start again."""
        draft = MutableState(self, state)
        events: list[Event] = []
        names = self.names
        for (x, y), place in self.pair.items():
            inbox = draft.inboxes[place]
            if inbox:
                if inbox[0] == UP:
                    events.append(("up", names[x], names[y]))
                elif inbox[0] != DOWN:
                    events.append(("msg", names[y], names[x]))
                if DOWN in inbox:
                    events.append(("down", names[x], names[y]))
        for channel in draft.channels:
            cid = (self.who[channel.client].name, channel.number)
            if channel.r_open:
                if channel.c2r:
                    events.append(("c2r", cid))
                if not channel.c_open:
                    events.append(("rnotice", cid))
            if channel.c_open:
                if channel.r2c:
                    events.append(("r2c", cid))
                elif not channel.r_open:
                    events.append(("cnotice", cid))
        for client, number in zip(self.who, draft.clients, strict=True):
            offers = self.locals.offers(number)
            if offers.send:
                events.append(("send", client.name))
            if offers.settle:
                events.append(("settle", client.name))
            if offers.accept:
                events.append(("accept", client.name, 0))
            if offers.off:
                events += [
                    ("connect", client.name, name) for name, site in zip(names, draft.sites, strict=True) if site >= 0
                ]
        events += [("restart", name) for name, site in zip(names, draft.sites, strict=True) if site < 0]
        if draft.rest.broken:
            events.append(("heal",))
        return events

    def faults(self, state: State) -> list[Event]:
        draft = MutableState(self, state)
        crashes, cdrops, rdrops, cuts, restarts, closes = draft.rest.budget
        events: list[Event] = []
        if crashes:
            alive = [name for name, site in zip(self.names, draft.sites, strict=True) if site >= 0]
            events += [("crash", name) for name in alive if name in self.setting.mortal]
        for channel in draft.channels:
            cid = (self.who[channel.client].name, channel.number)
            if cdrops and channel.c_open and channel.r_open:  # else it is what happens anyhow
                events.append(("cdrop", cid))
            if rdrops and channel.r_open and channel.c_open:
                events.append(("rdrop", cid))
        if cuts and not draft.rest.broken and min(draft.sites) >= 0:
            events.append(("cut", *self.names[:2]))
        if restarts:
            events += [("srestart", c.name) for c in self.who if isinstance(c, Subscriber)]
        if closes:
            offers = [self.locals.offers(number) for number in draft.clients]
            events += [("close", c.name) for c, offered in zip(self.who, offers, strict=True) if offered.close]
        return events

    # ------------------------------------------------------------------ letting it happen
    def step(self, state: State, event: Event) -> State:
        """Raises Found."""
        draft = MutableState(self, state)
        kind = event[0]
        if kind in FAULTS:
            budget = list(draft.rest.budget)
            budget[FAULTS.index(kind)] -= 1
            draft.rest = draft.rest._replace(budget=tuple(budget))
        trunk = self.trunk(draft)
        do = getattr(self, "do_" + kind, None)
        if do is not None:
            do(draft, *event[1:])
        else:  # what a client does, as its application wants or because it loses its connection
            cid_or_name = event[1]
            self.at_client(draft, cid_or_name if isinstance(cid_or_name, str) else cid_or_name[0], kind, *event[2:])
        if trunk != (now := self.trunk(draft)):
            for x, y in self.pair:
                if draft.sites[x] >= 0:
                    self.receive(draft, x, y, UP if now else DOWN)
        draft.channels = sorted(channel for channel in draft.channels if channel.c_open or channel.r_open)
        return self.packed(draft)

    def trunk(self, draft: MutableState) -> bool:
        return not draft.rest.broken and min(draft.sites) >= 0

    def packed(self, draft: MutableState) -> State:
        one = self.one
        return (
            *draft.sites,
            *map(one, draft.inboxes),
            *draft.clients,
            one(tuple(draft.channels)),
            draft.checker,
            one(draft.rest),
        )

    def clock(self, draft: MutableState) -> int:
        return sum(draft.rest.numbers) if self.clocked else 0

    def now(self, draft: MutableState) -> float:
        return time_after(draft.rest.turns)

    def receive(self, draft: MutableState, x: int, y: int, item: int) -> None:
        place = self.pair[x, y]
        draft.inboxes[place] = (*draft.inboxes[place], item)

    def at_router(self, draft: MutableState, x: int, *given: Any) -> None:
        said = self.locals.router(draft.sites[x], given, self.now(draft), self.clock(draft))
        self.router_said(draft, x, said)

    def router_said(self, draft: MutableState, x: int, said: Said) -> None:
        if said.failure is not None:
            raise Found(said.failure)
        draft.sites[x] = said.number
        for peers, data in said.messages:
            item = self.one(data)
            for peer in peers:
                y = self.router_names[peer]
                inbox = draft.inboxes[self.pair[x, y]]
                if UP not in inbox and DOWN not in inbox:  # else the session is over already
                    self.receive(draft, y, x, item)
        for cid, frames in said.frames:
            place, channel = self.channel(draft, cid)
            if channel.c_open:
                draft.channels[place] = channel._replace(r2c=channel.r2c + tuple(map(self.one, frames)))
        for cid in said.closed:
            place, channel = self.channel(draft, cid)
            draft.channels[place] = channel._replace(r_open=False)

    def at_client(self, draft: MutableState, name: str, *given: Any) -> None:
        place = self.places[name]
        said = self.locals.client(draft.clients[place], given, self.now(draft))
        if said.told:
            draft.checker = self.checkers.tell(draft.checker, said.told)
        if said.failure is not None:
            raise Found(said.failure)
        draft.clients[place] = said.number
        if not said.frames and not said.closed:
            return
        for i, channel in enumerate(draft.channels):
            if channel.client == place and channel.c_open:
                if said.frames and channel.r_open:
                    channel = channel._replace(c2r=channel.c2r + tuple(map(self.one, said.frames[0][1])))
                if said.closed:
                    channel = channel._replace(c_open=False, r2c=())
                draft.channels[i] = channel

    def would_tell(self, draft: MutableState, event: Event) -> tuple[tuple[Any, ...], ...]:
        """What the checker would hear of this event of a client."""
        kind, where = event[0], event[1]
        name, given = (where[0], ()) if kind in ("r2c", "cnotice") else (where, event[2:])
        place = self.places[name]
        if kind == "r2c":
            _, channel = self.channel(draft, where)
            given = (self.head(channel)[1],)
        elif kind == "connect":
            given = (event[2], incarnation_of(event[2], draft.rest.lives[self.router_names[event[2]]]))
        kind = "cdrop" if kind == "cnotice" else kind
        return self.locals.client(draft.clients[place], (kind, *given), self.now(draft)).told

    def head(self, channel: Channel) -> tuple[int, bytes]:
        """What the client reads next: how many frames, and these. What begins a connection is read with the attach."""
        count = 1
        while count < len(channel.r2c) and begins(self.values[channel.r2c[count - 1]]):
            count += 1
        return count, b"".join(self.values[each] for each in channel.r2c[:count])

    def channel(self, draft: MutableState, cid: Cid) -> tuple[int, Channel]:
        client, number = self.places[cid[0]], cid[1]
        for place, channel in enumerate(draft.channels):
            if channel.client == client and channel.number == number:
                return place, channel
        raise LookupError(f"no connection {cid}")

    # ------------------------------------------------------------------ events, in World's words
    def do_up(self, draft: MutableState, x: str, y: str) -> None:
        place = self.pair[self.router_names[x], self.router_names[y]]
        draft.inboxes[place] = draft.inboxes[place][1:]
        self.at_router(draft, self.router_names[x], "up", y)

    def do_msg(self, draft: MutableState, y: str, x: str) -> None:
        place = self.pair[self.router_names[x], self.router_names[y]]
        item, *others = draft.inboxes[place]
        draft.inboxes[place] = tuple(others)
        self.at_router(draft, self.router_names[x], "msg", y, self.values[item])

    def do_down(self, draft: MutableState, x: str, y: str) -> None:
        place = self.pair[self.router_names[x], self.router_names[y]]
        inbox = draft.inboxes[place]
        end = inbox.index(DOWN)
        draft.inboxes[place] = inbox[end + 1 :]
        if UP not in inbox[:end]:
            self.at_router(draft, self.router_names[x], "down", y)

    def do_crash(self, draft: MutableState, name: str) -> None:
        x = self.router_names[name]
        draft.sites[x] = -1
        for (a, _), place in self.pair.items():
            if a == x:
                draft.inboxes[place] = ()
        for i, channel in enumerate(draft.channels):
            if channel.router == x and channel.r_open:
                draft.channels[i] = channel._replace(r_open=False, c2r=(), r2c=())
        if not any(site >= 0 and self.locals.established(site) for site in draft.sites):
            excused = [client.name for client in self.who if isinstance(client, Publisher) and client.kind == MEMORY]
            draft.checker = self.checkers.tell(draft.checker, (("excuse", *excused),))

    def do_restart(self, draft: MutableState, name: str) -> None:
        x = self.router_names[name]
        lives = list(draft.rest.lives)
        lives[x] += 1
        draft.rest = draft.rest._replace(lives=tuple(lives))
        incarnation = incarnation_of(name, lives[x])
        self.router_said(draft, x, self.locals.start(name, incarnation, False, self.now(draft), self.clock(draft)))

    def do_cut(self, draft: MutableState, a: str, b: str) -> None:
        draft.rest = draft.rest._replace(broken=True)

    def do_heal(self, draft: MutableState) -> None:
        draft.rest = draft.rest._replace(broken=False)

    def do_connect(self, draft: MutableState, name: str, router: str) -> None:
        place, x = self.places[name], self.router_names[router]
        numbers = list(draft.rest.numbers)
        numbers[place] += 1
        draft.rest = draft.rest._replace(numbers=tuple(numbers))
        life = draft.rest.lives[x]
        draft.channels.append(Channel(place, numbers[place], x, life, (), (), True, True))
        self.at_client(draft, name, "connect", router, incarnation_of(router, life))

    def do_c2r(self, draft: MutableState, cid: Cid) -> None:
        place, channel = self.channel(draft, cid)
        draft.channels[place] = channel._replace(c2r=channel.c2r[1:])
        self.at_router(draft, channel.router, "c2r", cid, self.values[channel.c2r[0]])

    def do_r2c(self, draft: MutableState, cid: Cid) -> None:
        place, channel = self.channel(draft, cid)
        count, data = self.head(channel)
        draft.channels[place] = channel._replace(r2c=channel.r2c[count:])
        self.at_client(draft, cid[0], "r2c", data)

    def do_rnotice(self, draft: MutableState, cid: Cid) -> None:
        place, channel = self.channel(draft, cid)
        draft.channels[place] = channel._replace(r_open=False, c2r=(), r2c=())
        self.at_router(draft, channel.router, "rnotice", cid)

    def do_rdrop(self, draft: MutableState, cid: Cid) -> None:
        self.do_rnotice(draft, cid)

    def do_cnotice(self, draft: MutableState, cid: Cid) -> None:
        self.at_client(draft, cid[0], "cdrop")

    def do_pause(self, draft: MutableState) -> None:
        for x, site in enumerate(draft.sites):
            if site >= 0:
                self.at_router(draft, x, "tick", TURN_S)
        draft.rest = draft.rest._replace(turns=draft.rest.turns + 1)
        for client, number in zip(self.who, draft.clients, strict=True):
            if self.locals.offers(number).beats:
                self.at_client(draft, client.name, "hb")

    # ------------------------------------------------------------------ looking
    def left_over(self, state: State) -> list[str]:
        draft = MutableState(self, state)
        left = [text for number in draft.clients for text in self.locals.offers(number).left]
        for name, site in zip(self.names, draft.sites, strict=True):
            left += [f"{name}: {text}" for text in self.locals.router_left_over(site)]
        return left

    def not_closed(self, state: State, names: Iterable[str]) -> list[str]:
        clients = MutableState(self, state).clients
        open_ones = [name for name in names if not self.locals.offers(clients[self.places[name]]).closed]
        return [f"{name} is not closed" for name in open_ones]

    def remembered(self, state: State) -> list[str]:
        sites = zip(self.names, MutableState(self, state).sites, strict=True)
        return [f"{name} remembers {text}" for name, site in sites for text in self.locals.remembered(site)]

    def view(self, state: State) -> View:
        """What must look the same in the whole world."""
        draft, names, values = MutableState(self, state), self.names, self.values
        inboxes = {
            (names[x], names[y]): tuple(
                "up" if i == UP else "down" if i == DOWN else values[i] for i in draft.inboxes[place]
            )
            for (x, y), place in self.pair.items()
            if draft.sites[x] >= 0
        }
        pipes = {
            (self.who[c.client].name, c.number): (
                names[c.router], incarnation_of(names[c.router], c.life), tuple(values[i] for i in c.c2r),
                tuple(values[i] for i in c.r2c), c.c_open, c.r_open,
            )
            for c in draft.channels
        }  # fmt: skip
        return View(inboxes, pipes, sorted(self.left_over(state)) if min(draft.sites) >= 0 else [])

    def check_quiescent(self, state: State) -> None:
        """Raises Found."""
        draft = MutableState(self, state)
        alive = {(name, incarnation_of(name, life)) for name, life in zip(self.names, draft.rest.lives, strict=True)}
        try:
            self.checkers.load(draft.checker).quiescent(alive)
        except Violation as violation:
            raise Found(violation) from None


class MutableState:
    def __init__(self, product: Product, state: State) -> None:
        values = product.values
        n, pairs, m = product.n, product.pairs, product.m
        self.sites = list(state[:n])
        self.inboxes = [values[each] for each in state[n : n + pairs]]
        self.clients = list(state[n + pairs : n + pairs + m])
        self.channels: list[Channel] = list(values[state[-3]])
        self.checker = state[-2]
        self.rest: Rest = values[state[-1]]


def time_after(turns: int) -> float:
    """Added up as `World.advance` does, so that clocks agree to the last bit."""
    now = 0.0
    for _ in range(turns):
        end = now + TURN_S
        while now < end:
            now = min(end, now + STEP_S)
    return now


def begins(frame: bytes) -> bool:
    return kind_of(frame) in ("open", "begin")
