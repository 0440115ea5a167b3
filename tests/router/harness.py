"""A mesh of protocol cores in memory, with ports that note what they are told: virtual time, no engine, no network.

`Mesh.run()` lets everything happen that is not held: messages between routers in FIFO order per pair, flushes, and what
the ends (`ends`) do by themselves.  A pair (a, b) in `held` keeps back what a sends to b.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from router.config import AddressConfig, Life, RouterConfig
from router.core.core import Core
from router.core.messages import Message
from router.core.ports import Outcome, PublisherAttach, SubscriberAttach
from router.core.reports import of_all
from router.peers.wire import decode, encode
from tests.router.ends import PublisherEnd, SubscriberEnd

TOPIC = "topic"
SHORT = AddressConfig(subscription_timeout_s=8.0, publisher_timeout_s=20.0)


class Mesh:
    """Routers that see each other, all booted and established unless told otherwise."""

    def __init__(
        self,
        names: str = "a",
        *,
        fresh: bool = True,
        joined: bool = True,
        address: AddressConfig | None = None,
        **config: Any,
    ) -> None:
        self.names = names
        self.now = 100.0
        self.config = config
        self.address = address or AddressConfig()
        self.cores: dict[str, Core] = {}
        self.wires: dict[tuple[str, str], deque[bytes]] = {}
        self.held: set[tuple[str, str]] = set()
        self.waiting: deque[Callable[[], object]] = deque()
        self.incarnations = 0
        for name in names:
            self.start(name, fresh=fresh)
        if joined:
            for i, a in enumerate(names):
                for b in names[i + 1 :]:
                    self.join(a, b)
            self.run()

    def start(self, name: str, *, fresh: bool = False) -> Core:
        self.incarnations += 1
        config = RouterConfig(name, tuple(self.names), defaults=self.address, **self.config)

        def send(peers: tuple[str, ...], message: Message) -> None:
            data = encode(message)
            for peer in peers:
                wire = self.wires.get((name, peer))
                if wire is not None:  # else it has died, and this router has not noticed yet
                    wire.append(data)

        core = Core(config, Life(self.incarnations, self.now, fresh), send, self.clock_us)
        self.cores[name] = core
        return core

    def clock_us(self) -> int:
        return int(self.now * 1_000_000)

    def join(self, a: str, b: str) -> None:
        self.wires[a, b] = deque()
        self.wires[b, a] = deque()
        self.cores[a].peer_up(b, self.now)
        self.cores[b].peer_up(a, self.now)

    def part(self, a: str, b: str) -> None:
        """Both notice that the session is over."""
        for x, y in ((a, b), (b, a)):
            self.wires.pop((x, y), None)
            if x in self.cores and y in self.cores[x].members.up:
                self.cores[x].peer_down(y, self.now)

    def crash(self, name: str) -> None:
        """It dies, and the others notice."""
        del self.cores[name]
        for other in self.names:
            if other != name and other in self.cores:
                self.part(other, name)

    def later(self, action: Callable[[], object]) -> None:
        self.waiting.append(action)

    def run(self) -> None:
        busy = True
        while busy:
            busy = False
            while self.waiting:
                self.waiting.popleft()()
                busy = True
            for core in list(self.cores.values()):
                core.flush(self.now)
            for (a, b), wire in list(self.wires.items()):
                if wire and (a, b) not in self.held and b in self.cores:
                    self.cores[b].peer_message(a, decode(wire.popleft()), self.now)
                    busy = True
        for core in self.cores.values():
            core.check_invariants()

    def pending(self, a: str, b: str) -> list[str]:
        """What a has sent to b and b has not read yet."""
        return [type(decode(data)).__name__ for data in self.wires[a, b]]

    def pass_time(self, seconds: float) -> None:
        """In steps, with every router's timers."""
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + max(seconds / 20, 0.001))
            for core in list(self.cores.values()):
                core.tick(self.now)
            self.run()

    def publisher(
        self, router: str, container: str = "p", *, run: bool = True, proves: bool = True, **attach: Any
    ) -> PublisherEnd:
        end = PublisherEnd(self, router, container)
        end.proves = proves
        end.core.attach_publisher(end, PublisherAttach(container, "out", TOPIC, **attach), self.now)
        if run:
            self.run()
        return end

    def subscriber(
        self,
        router: str,
        container: str = "s",
        *,
        credit: int = 1_000,
        accepts: bool = True,
        fits: int = 10**9,
        run: bool = True,
        **attach: Any,
    ) -> SubscriberEnd:
        attach.setdefault("timeout_s", 60.0)
        attach.setdefault("expiry_policy", "link-detach")
        end = SubscriberEnd(self, router, container, credit)
        end.accepts = accepts
        end.fits = fits
        address = attach.pop("address", TOPIC)
        end.core.attach_subscriber(end, SubscriberAttach(container, "in", address, **attach), self.now)
        if run:
            self.run()
        return end

    def assert_settled(self) -> None:
        """No record, no delivery, no byte of payload is left anywhere."""
        left = {name: _leftovers(core) for name, core in self.cores.items()}
        assert not any(left.values()), left

    def assert_empty(self) -> None:
        for name, core in self.cores.items():
            assert not core.addresses, f"{name}: {of_all(core)}"
            assert not [*core.publishers, *core.subscribers], name


def _leftovers(core: Core) -> dict[str, object]:
    """What a router still keeps of deliveries, by name."""
    left: dict[str, object] = {"payload_bytes": core.memory.payload_bytes}
    for address in core.addresses.values():
        ingress, log = address.ingress, address.deliveries.log
        for name in ("undone", "settled", "kept"):
            left[f"records.{name}"] = getattr(address.records, name)
        left["records.refused"] = address.records.refused.by_position
        left["awaited"] = [home for home, tokens in address.records.awaited.items() if tokens]
        for publisher in ingress.publishers.values():
            container = f"publisher {publisher.brought.container}"
            for name in ("live", "undone", "unsettled", "undone_bytes", "tags", "repeats"):
                left[f"{container} {name}"] = getattr(publisher.sent, name)
            left[f"{container} held"] = publisher.held.batches
            left[f"{container} questions"] = publisher.questions.needed
        for name in ("alive", "open", "rejected"):
            left[f"arrivals.{name}"] = getattr(log, name)
        for name in ("accepts", "sync_accepts"):
            left[f"deliveries.{name}"] = getattr(address.deliveries, name)
        for each in address.deliveries.subscribers.values():
            for name in ("unsettled", "settled_on_wire", "rejected"):
                left[f"subscriber {each.name} {name}"] = getattr(each.sent, name)
            for name in dir(each.irregular):
                value = getattr(each.irregular, name)
                if not name.startswith("_") and not callable(value):
                    left[f"subscriber {each.name} {name}"] = value
            left[f"subscriber {each.name} presettled"] = each.presettled
            left[f"subscriber {each.name} owes"] = each.owes.overlap(0, log.end)
        for entry in address.subscriptions.entries.values():
            left[f"subscription {entry.name} syncing"] = entry.syncing
            left[f"subscription {entry.name} owed"] = entry.owed if entry.home is not None else None
    return {name: value for name, value in left.items() if value}


def undecided(*tags: str) -> dict[bytes, Outcome | None]:
    """A publisher's map."""
    return {tag.encode(): None for tag in tags}
