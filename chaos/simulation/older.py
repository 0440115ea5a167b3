"""`python -m chaos.simulation.older TREE --family NAME --seeds A-B`: today's random schedules, with an older product.

TREE has the packages of a release, such as v0.9.0 (`tests/releases.py` takes it from the history). So a family that was
written after a fault had been mended shows that it finds the fault. Prints each seed that fails. Exit 1 if one did.

What the schedules ask of the product and v0.9.0 has not is put in here: versions of the wire between routers, which
this module of today has and the old routers never see, and names that have moved since. A dial is then the kernel's
(`chaos/simulation/world/dials.py`).
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

VERSIONS = "router.versions"
ROOT = Path(__file__).parents[2]


def use(tree: Path) -> None:
    """From now on the product is that of the tree; nothing of it may have been imported."""
    assert "router" not in sys.modules, "this tree's product is imported already"
    sys.path.insert(0, str(tree))
    # an editable installation finds here what the tree has not
    sys.meta_path[:] = [
        each for each in sys.meta_path if not getattr(each, "__module__", "").startswith("__editable__")
    ]
    if importlib.util.find_spec(VERSIONS) is not None:
        return
    spec = importlib.util.spec_from_file_location(VERSIONS, ROOT / "router" / "versions.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[VERSIONS] = versions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(versions)
    without_versions()
    under_todays_names()


def under_todays_names() -> None:
    """What the schedules import from where it is now."""
    from router.core import directory, reports

    sys.modules["router.core.naming"] = directory
    looks: Any = reports
    looks.of_publisher = lambda address, publisher: publisher.status()
    looks.of_subscriber = lambda subscriber: subscriber.report()


def without_versions() -> None:
    """Routers and networks that know of no versions are told of none, and what neighbours send is one part. What they
    begin with is one argument each today, which the old ones took one by one."""
    from interrouter import network as networks_of
    from interrouter.events import PeerUp
    from interrouter.network import Network
    from router import config
    from router.core.address import Address
    from router.core.core import Core
    from router.router import Router

    of_then = networks_of.Hello

    def hello_of(network: str, name: str, incarnation: int, versions: object = None) -> Any:
        return of_then(network, name, incarnation)

    class Timers(NamedTuple):
        heartbeat_s: float
        dead_after_s: float
        probe_after_s: float | None

    class Life(NamedTuple):
        incarnation: int
        now: float
        fresh: bool

    class Attached(NamedTuple):
        all: Any

    networks: Any = Network
    routers: Any = Router
    begin, live, peer_up = networks.__init__, routers.__init__, routers.peer_up
    connect: Any = networks.connect

    def begins(self: Network, hello: Any, peers: object, *, timers: Timers, **named: Any) -> None:
        begin(self, hello.name, hello.incarnation, peers, network=hello.network, **timers._asdict(), **named)

    def lives(self: Router, config: object, life: Life, **named: Any) -> None:
        live(self, config, **life._asdict(), **named)

    def is_up(self: Router, peer: str, now: float, began: float, version: object) -> None:
        peer_up(self, peer, now, began)

    networks.__init__, routers.__init__, routers.peer_up = begins, lives, is_up
    networks.connect = lambda network, now, *, neighbour: connect(
        network, now, server=neighbour is None, neighbour=neighbour
    )
    networks.work = property(lambda network: network)
    cores: Any = Core
    routers.turn = routers.buffers = property(lambda router: router)
    cores.memory = cores.recovery = property(lambda core: core)
    addresses: Any = Address
    addresses.attached = property(lambda address: Attached(address.ingress.attached))
    networks.more = property(lambda network: network.sessions.events)
    session: Any = PeerUp
    session.version = None
    vars(networks_of).update(Hello=hello_of, Timers=Timers)
    vars(config).update(Life=Life)


def main() -> int:
    parser = argparse.ArgumentParser("python -m chaos.simulation.older", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--family", required=True)
    parser.add_argument("--seeds", required=True, metavar="A-B")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    use(options.tree)
    from chaos.simulation.random.explore import explore

    began, failed = time.process_time(), 0
    for seed in range(int(first), int(last or first) + 1):
        _, failure = explore(seed, options.family)
        if failure is not None:
            failed += 1
            print(f"seed {seed} ({options.family}): {str(failure).partition(chr(10))[0][:200]}", flush=True)
    print(f"{seed + 1 - int(first)} schedules, {failed} violations, {time.process_time() - began:.0f} s of CPU")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
