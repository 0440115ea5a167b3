"""One chaos run: a network of router processes, client processes on it, faults over time, and the history of it all.

`Run(schedule, directory, seed).run()` gives a judgement; every line of what happens goes to stderr.  Decides nothing
about right and wrong, that is `judge`'s, which reads only the history; `faults` says what is hit when.
"""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from chaos import commit
from chaos.judge.history import Writer
from chaos.live.connections import Connections
from chaos.live.faults import Faults, describe, link_name, proxied, trunk_name
from chaos.live.netns import Namespaces
from chaos.live.ports import free_port
from chaos.live.processes import Client, Network, Router, check_clients
from chaos.live.schedule import SETTLE, Publisher, Schedule
from interrouter.neighbours import dials
from onceway import topology as topologies
from onceway.client.protocol.contact import margin_s
from onceway.demo.secure import Secure
from onceway.errors import OncewayError, UsageError
from onceway.topology import Topology

TICK_S: Final = 0.02
READY_WITHIN_S: Final = 120.0
CLOSE_WITHIN_S: Final = 60.0
LOOK_FOR_LEFTOVERS_S: Final = 0.5
LEAST_ROOM: Final = 1 << 20

Say = Callable[[str], None]


class NotStarted(OncewayError):
    """A router or client was not ready in time, before any fault."""


class Run:
    def __init__(self, schedule: Schedule, directory: Path, seed: int, say: Say, security: str = "plain") -> None:
        """security: one of `onceway.demo.secure.MODES`."""
        self.schedule = schedule
        self._security = security
        self.directory = directory
        self.seed = seed
        self.cut = False  # by Ctrl-C
        self._say = say
        self._began = time.monotonic()
        self._left: list[str] = []  # what should not be so at the end
        self._history = Writer(directory / "run.jsonl")
        self._connections: Connections | None = None
        self._namespaces: Namespaces | None = None
        self._network: Network | None = None
        self._clients: dict[str, Client] = {}
        self._told_to_end: set[str] = set()  # publishers

    def run(self) -> None:
        """Writes the history; raises NotStarted, UsageError, ConfigError, OSError."""
        check_clients(self.schedule.clients)
        try:
            self._set_up()
            self._strike_until_over()
            self._drain()
        except KeyboardInterrupt:
            self.say("cut short")
            self.cut = True
            self._history.write("end", drained=False, left=["cut short"], cut=True)
        finally:
            self._tear_down()

    def say(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:8.3f} {text}")

    def _set_up(self) -> None:
        schedule = self.schedule
        trunks, links = proxied(schedule)
        routers = [Router(name, "127.0.0.1", free_port(), free_port(), free_port()) for name in schedule.routers]
        if schedule.needs_namespaces:
            pairs = [(a, b) if dials(a, b) else (b, a) for a, b, _ in schedule.links]
            self._namespaces = Namespaces(schedule.routers, pairs)
            for one in routers:
                one.host, one.prefix = self._namespaces.host(one.name), self._namespaces.prefix(one.name)
            self.say(f"a network namespace for each of {len(routers)} routers, interfaces for {len(pairs)} trunks")
        if any(client.client == "mqtt" for client in schedule.clients):
            for one in routers:
                one.mqtt = free_port()
        by_name = {router.name: router for router in routers}
        via: dict[tuple[str, str], str] = {}
        at: dict[tuple[str, str], str] = {}
        if trunks or links:
            self._connections = Connections(self.seed)
            for a, b in trunks:
                far = by_name[b if dials(a, b) else a]
                via[a, b] = self._connections.proxy(trunk_name(a, b), f"{far.host}:{far.interrouter}")
            kinds = {client.name: client.client for client in schedule.clients}
            for name, router in links:
                place = _place(by_name[router], kinds[name])
                at[name, router] = self._connections.proxy(link_name(name, router), place)
            self.say(f"toxiproxy at {self._connections.server}: {len(trunks)} trunks, {len(links)} links through it")
        path = self.directory / "topology.yaml"
        document, secure = _document(schedule, by_name, via), self._secure(routers)
        if secure is not None:
            document = secure.secured(document, [free_port() for _ in routers])
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        topology = topologies.load(path)
        self._network = Network(self.directory, path, routers, self._router_changed)
        self._declare(topology)
        for name in schedule.routers:
            self._network.start(name, fresh=True)
        self._wait("the routers", lambda: self._network is not None and self._network.all_ready)
        timeout_s = topology.settings.address(schedule.address).subscription_timeout_s
        for what in schedule.clients:
            order = schedule.routers.index(what.at)
            names = (*schedule.routers[order:], *schedule.routers[:order])
            urls = [at.get((what.name, name), _place(by_name[name], what.client)) for name in names]
            shown = ",".join(f"{'amqp' if secure is None else 'amqps'}://{url}" for url in urls)
            client = Client(what, self.directory, shown, schedule.address, timeout_s, secure)
            client.everybody = {
                "publishers": [one.name for one in schedule.publishers],
                "subscribers": [one.name for one in schedule.subscribers],
            }
            self._clients[what.name] = client
        for publishes in (False, True):  # whoever subscribes later has missed something rightly
            chosen = [client for client in self._clients.values() if client.publishes is publishes]
            for client in chosen:
                client.start()
            names_shown = ", ".join(client.name for client in chosen)
            self._wait(names_shown, lambda chosen=chosen: all(client.ready for client in chosen))  # type: ignore[misc]
            self.say(f"ready: {names_shown}")

    def _secure(self, routers: list[Router]) -> Secure | None:
        """Certificates, users and policies of this run, if it has any."""
        if self._security == "plain":
            return None
        if any(one.client == "rhea-exactly-once" for one in self.schedule.clients):
            raise UsageError("rhea-exactly-once clients have no TLS: give --client onceway, or --security plain")
        hosts = dict.fromkeys(["localhost", "127.0.0.1", *(router.host for router in routers)])
        clients = [one.name for one in self.schedule.clients]
        directory = (self.directory / "pki").absolute()
        address = f"{self.schedule.address}*" if self.schedule.has_edges else self.schedule.address
        secure = Secure(directory, self._security, self.schedule.routers, clients, list(hosts), address)
        secure.make()
        self.say(f"certificates of {len(routers)} routers and {len(clients)} clients, mode {self._security}")
        return secure

    def _declare(self, topology: Topology) -> None:
        schedule = self.schedule
        address = topology.settings.address(schedule.address)
        publishers, subscribers = [], []
        for what in schedule.clients:
            one: dict[str, Any] = {"name": what.name, "client": what.client, "guarantee": SETTLE[what.settle]}
            if isinstance(what, Publisher):
                publishers.append({**one, "timeout_s": _counted_s(address.publisher_expires_s)})
            else:
                ordered = what.client != "queue"
                timeout_s = _counted_s(address.subscription_timeout_s)
                subscribers.append({**one, "deduplicates": True, "ordered": ordered, "timeout_s": timeout_s})
        self._history.write(
            "run",
            schedule=schedule.name,
            shows=schedule.shows,
            seed=self.seed,
            commit=commit(),
            topology={"routers": list(schedule.routers), "links": [list(link) for link in schedule.links]},
            publishers=publishers,
            subscribers=subscribers,
        )

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + READY_WITHIN_S
        while not condition():
            self._look()
            if self._left:
                raise NotStarted("; ".join(self._left))
            if time.monotonic() > end:
                raise NotStarted(f"not ready within {READY_WITHIN_S:g} s: {what}; logs are in {self.directory}")
            time.sleep(TICK_S)

    def _strike_until_over(self) -> None:
        assert self._network is not None
        began = time.monotonic()
        for client in self._clients.values():
            if isinstance(client.what, Publisher) and client.what.duration_s is not None:
                client.until = began + client.what.duration_s
        rng = random.Random(self.seed)
        faults = Faults(
            self.schedule, self._network, self._clients, self._connections, self._namespaces, rng, self._struck
        )
        faults.begin(began)
        self.say(f"faults: {describe(self.schedule.faults)}")
        latest = began + self.schedule.length_s + self.schedule.drain_s
        while True:
            now = time.monotonic()
            faults.act(now)
            self._look()
            if faults.over:
                self._end_endless()
            if faults.over and (self._publishers_done() or now > latest):
                break
            latest = max(latest, now + self.schedule.drain_s) if not faults.over else latest
            due = faults.next_at
            time.sleep(TICK_S if due is None else max(0.0, min(TICK_S, due - time.monotonic())))

    def _end_endless(self) -> None:
        """Each is told once, when it hears: SIGTERM is the death of a process that has only just been brought back."""
        for name, client in self._clients.items():
            if client.is_endless and client.ready and client.running and name not in self._told_to_end:
                self._told_to_end.add(name)
                client.terminate()

    def _publishers_done(self) -> bool:
        return all(client.done for client in self._clients.values() if client.publishes)

    def _struck(self, kind: str, target: str, now: float, until: float | None) -> None:
        self._history.write("fault", kind=kind, target=target, until=until)
        lasts = "" if until is None or until <= now else f" for {until - now:.3f} s"
        self.say(f"{kind} {target}{lasts}")

    def _router_changed(self, router: Router, how: str) -> None:
        if how.startswith("died"):
            self._left.append(f"router {router.name} {how}")
            self._history.write("note", text=f"router {router.name} {how}")
        if how != "started":
            state = "ready" if how == "ready" else "gone"
            self._history.write(
                "router", name=router.name, state=state, pid=router.process.pid if router.process else 0
            )
        if router.starts > 1 or how.startswith("died"):
            self.say(f"router {router.name} {how}")

    def _look(self) -> None:
        assert self._network is not None
        self._network.look()
        for client in self._clients.values():
            process = client.process
            if process is None or client.abandoned or process.poll() in (None, -9):
                continue
            if process.returncode != 0 or not client.publishes:
                self._check_room()
                self._left.append(f"client {client.name} ended with {process.returncode}")
                self.say(self._left[-1])
                client.abandoned = True

    def _check_room(self) -> None:
        """Somebody ended by itself: where there was no room for what it wrote, that says nothing of the network."""
        disk = os.statvfs(self.directory)
        if disk.f_bavail * disk.f_frsize < LEAST_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.directory))

    def _drain(self) -> None:
        """Faults are over: everything has to come to its end by itself."""
        assert self._network is not None
        network = self._network
        began = time.monotonic()
        end = began + self.schedule.drain_s
        self.say("faults are over, everything drains")
        looked = 0.0
        open_ends = ["not looked yet"]
        while open_ends and time.monotonic() < end:
            self._look()
            if time.monotonic() - looked > LOOK_FOR_LEFTOVERS_S:
                open_ends = self._open_ends()
                looked = time.monotonic()
            time.sleep(TICK_S)
        if open_ends:
            for router in network.running:
                status = json.dumps(router.status(), indent=1)
                (self.directory / f"status-{router.name}.json").write_text(status)
        self.say(
            f"drained after {time.monotonic() - began:.3f} s" if not open_ends else f"left: {'; '.join(open_ends)}"
        )
        subscribers = [client for client in self._clients.values() if not client.publishes and client.running]
        for client in subscribers:
            client.cont()
            client.abandoned = True  # its end is ours from here
            client.terminate()
        for client in subscribers:
            assert client.process is not None
            try:
                if code := client.process.wait(CLOSE_WITHIN_S):
                    open_ends.append(f"client {client.name} ended with {code}")
            except subprocess.TimeoutExpired:
                open_ends.append(f"client {client.name} did not close within {CLOSE_WITHIN_S:g} s")
        self._left += open_ends
        self._history.write("end", drained=not self._left, left=self._left)

    def _open_ends(self) -> list[str]:
        assert self._network is not None
        clients = self._clients.values()
        open_ends = [f"publisher {c.name} is not done" for c in clients if c.publishes and not c.done]
        open_ends += [
            f"subscriber {c.name} is not ready" for c in clients if not c.publishes and c.running and not c.ready
        ]
        return open_ends or self._network.leftovers()

    def _tear_down(self) -> None:
        for client in self._clients.values():
            client.close()
        if self._network is not None:
            self._network.close()
        if self._connections is not None:
            self._connections.close()
        if self._namespaces is not None:
            self._namespaces.close()
        self._history.close()


def _counted_s(timeout_s: float) -> float:
    """From when on a client may say by itself that it was away for too long (protocol 15.6)."""
    return timeout_s - margin_s(timeout_s)


def _place(router: Router, client: str) -> str:
    """Where such a client connects."""
    return f"{router.host}:{router.mqtt if client == 'mqtt' else router.amqp}"


def _document(schedule: Schedule, routers: dict[str, Router], via: dict[tuple[str, str], str]) -> dict[str, Any]:
    """The topology file."""
    document: dict[str, Any] = {"network": "chaos"}
    document["settings"] = {"ready_when_isolated": True, **(schedule.settings or {})}  # faults wait for ready routers
    if schedule.addresses:
        document["addresses"] = schedule.addresses
    document["routers"] = {
        router.name: {
            "host": router.host,
            "amqp": router.amqp,
            "interrouter": router.interrouter,
            "admin": router.admin,
            **({"mqtt": router.mqtt} if router.mqtt else {}),
        }
        for router in routers.values()
    }
    if any(router.mqtt for router in routers.values()):
        document["mqtt"] = {"topics": {"#": schedule.address}}
    links = []
    for a, b, cost in schedule.links:
        link: dict[str, Any] = {"between": [a, b], "cost": cost}
        if (a, b) in via:
            link["via"] = via[a, b]
        links.append(link)
    if links:
        document["links"] = links
    document["trunks"] = {"tls": "off"}  # namespaces have addresses of their own
    return document


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
