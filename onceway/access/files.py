"""The files that a topology file names: what has changed in them, and what does not fit to it, in lines for people.

What changes in the topology file itself is in `onceway.topology.difference`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from onceway.access import authentication
from onceway.access.authentication import Authentication, groups_of
from onceway.access.network_key import read_trunk_key
from onceway.access.tls import listener_context, profile_context
from onceway.access.trunks import read_trunk_tls
from onceway.access.users import Users
from onceway.base.private import check_private
from onceway.errors import UsageError
from onceway.topology import Topology
from router.policies import ANONYMOUS, Identity, owner_of
from router.reporting import Log

if TYPE_CHECKING:
    from onceway.access.certificates import Content
    from onceway.access.tls import ListenerContext

MOST_NAMED: Final = 100  # users of one kind of change


@dataclass(frozen=True, slots=True)
class Files:
    """What was read: for listeners, None where they have no TLS, and for clients, None where they have no names."""

    contexts: tuple[ListenerContext | None, ...]
    authentication: Authentication | None

    @property
    def contents(self) -> list[Content]:
        found = [each for context in self.contexts if context is not None for each in context.contents]
        tokens = self.authentication.tokens if self.authentication is not None else None
        return [*found, tokens.content] if tokens is not None and tokens.content is not None else found


def difference(old: Files, new: Files) -> list[str]:
    """A line for each user that is another, and for each file that is read again; empty if nothing has changed."""
    known = old.contents
    files = {each.file for each in known}
    other = [each for each in new.contents if each.file in files and each not in known]
    before, after = old.authentication, new.authentication
    users = () if before is None or after is None else _users(before.users, after.users)
    return list(dict.fromkeys([*users, *(f"read again {each.file}, {each.what}" for each in other)]))


def _users(old: Users, new: Users) -> Iterator[str]:
    one, other = old.by_name, new.by_name
    both = sorted(one.keys() & other.keys())
    changed = [name for name in both if one[name].verifiers != other[name].verifiers]
    moved = [name for name in both if one[name].groups != other[name].groups]
    yield from _named("removed user", sorted(one.keys() - other.keys()))
    yield from _named("added user", sorted(other.keys() - one.keys()))
    yield from _named("changed password of user", changed)
    shown = [f"{name} {_groups(one[name].groups)} -> {_groups(other[name].groups)}" for name in moved]
    yield from _named("changed groups of user", shown)


def _groups(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "(none)"


def _named(what: str, names: list[str]) -> Iterator[str]:
    yield from (f"{what} {name}" for name in names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        yield f"{what}: {len(names) - MOST_NAMED} more"


def unusable(topology: Topology, names: Iterable[str], log: Log) -> list[str]:
    """Opens every file that these routers and the file's stores would open: a line for each that cannot be used, and
    for each package that is not installed. log: told of what does not keep a router from starting."""
    return _problems((*_of_routers(topology, names, log), *_of_stores(topology, log)))


def unusable_by(topology: Topology, names: Iterable[str], log: Log) -> list[str]:
    """The same of what these routers open."""
    return _problems(_of_routers(topology, names, log))


def _problems(steps: Iterable[Callable[[], object]]) -> list[str]:
    problems: dict[str, None] = {}
    for step in steps:
        try:
            step()
        except UsageError as error:
            problems[str(error)] = None
    return list(problems)


def _of_routers(topology: Topology, names: Iterable[str], log: Log) -> list[Callable[[], object]]:
    steps: list[Callable[[], object]] = [lambda: authentication.load(topology)]
    for name in names:
        steps += [
            partial(listener_context, topology, name, log),
            partial(profile_context, topology, topology.admin.tls, name, log),
            partial(read_trunk_tls, topology, name, log),
        ]
        if not topology.trunk_key.startswith("$"):  # the environment is another one than that of the router
            steps.append(partial(read_trunk_key, topology, name))
    steps.append(lambda: check_private(authentication.secret_files(topology)))
    return steps


def _of_stores(topology: Topology, log: Log) -> list[Callable[[], object]]:
    steps: list[Callable[[], object]] = []
    for pipe in topology.pipes.values():
        steps += [partial(profile_context, topology, pipe.tls, store, log) for store in pipe.stores]
        steps += [partial(_store_package, topology, store, place) for store, place in pipe.data.items()]
    return steps


def _store_package(topology: Topology, store: str, place: str) -> None:
    if place.startswith(("postgresql://", "postgres://")) and find_spec("psycopg") is None:
        raise UsageError(f"{topology.path}: store {store}: PostgreSQL needs psycopg: pip install 'onceway[postgresql]'")


def out_of_reach(topology: Topology, own: Authentication | None) -> list[str]:
    """A line for each declared subscription that nobody may have: publishers wait for it all the same."""
    lines = []
    for address in topology.addresses:
        for container, name in address.subscriptions:
            reason = _refused(topology, own, owner_of(container), address.match)
            if reason:
                lines.append(
                    f"address {address.match}: publishers wait for the declared subscription {container}/{name}, and "
                    f"{reason}: remove it from the file, or let the user have it again"
                )
    return lines


def _refused(topology: Topology, own: Authentication | None, user: str, address: str) -> str:
    """Why this user may not receive from the address; empty if the user may."""
    by_password = own is not None and own.tokens is None and not own.sasl.certificates
    if own is not None and by_password and user != ANONYMOUS and user not in own.users.by_name:
        return f"there is no user {user}"
    who = Identity(user, groups_of(own, topology.settings, user))
    return "" if topology.settings.allows(who, "receive", address) else f"no policy lets user {user} receive from it"
