"""What users may do, and whose names are whose.

A `Policy` is one entry of `policies` in a topology file; `router.links` asks the entries when a link attaches, and
`router.router` when the file has changed. `owned` makes names of different users different: the network knows a
container-id only together with its user, so that nobody can take, or find out, a subscription or publisher of another
user by its name (protocol 1.12).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

Direction = Literal["send", "receive"]

ANONYMOUS: Final = "anonymous"
"""The user of clients without an identity: with SASL ANONYMOUS or without a SASL layer."""
EVERYONE: Final = "*"
"""Among the users of an entry: all, the one without a name included."""
USER: Final = "${user}"
SEPARATOR: Final = "|"


class Identity(NamedTuple):
    """Who a client is."""

    user: str = ANONYMOUS
    groups: tuple[str, ...] = ()


NOBODY: Final = Identity()


@dataclass(frozen=True, slots=True)
class Policy:
    """What some users may do. `send` and `receive` are addresses, or prefixes that end in `*`, with `${user}` for the
    name of the user; `dynamic`: make dynamic nodes, and send to those of others; `anonymous`: also on links without an
    address, of which each message names one."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    send: tuple[str, ...] = ()
    receive: tuple[str, ...] = ()
    dynamic: bool = False
    anonymous: bool = True

    def concerns(self, who: Identity) -> bool:
        return who.user in self.users or EVERYONE in self.users or any(group in self.groups for group in who.groups)

    def allows(self, user: str, direction: Direction, address: str) -> bool:
        """Whether this entry lets a user whom it concerns use an address that is no dynamic node."""
        patterns = self.send if direction == "send" else self.receive
        return any(matches(pattern, user, address) for pattern in patterns)

    def __str__(self) -> str:
        parts = [(key, getattr(self, key)) for key in ("users", "groups", "send", "receive")]
        text = ", ".join(f"{key}: [{', '.join(names)}]" for key, names in parts if names)
        dynamic, anonymous = ", dynamic: true" * self.dynamic, ", anonymous: false" * (not self.anonymous)
        return f"{{{text}{dynamic}{anonymous}}}"


def matches(pattern: str, user: str, address: str) -> bool:
    """Whether the address is one of the pattern's for this user.

    A name in which the character after `${user}` occurs matches nothing: with `box/${user}/*` the user `a` would
    otherwise have what is of the user `a/b`.
    """
    prefix = pattern.endswith("*")
    literal = pattern[:-1] if prefix else pattern
    before, found, after = literal.partition(USER)
    if found:
        if after and after[0] in user:
            return False
        literal = f"{before}{user}{after}"
    return address.startswith(literal) if prefix else address == literal


def owned(user: str, container: str) -> str:
    """The container-id by which the network knows a client of this user: `alice|spark`. Different users never have the
    same one. Clients without a user keep theirs; one in which `|` occurs gets another in front."""
    if user != ANONYMOUS:
        return f"{_escaped(user)}{SEPARATOR}{container}"
    return f"{SEPARATOR}{container}" if SEPARATOR in container else container


def is_own(user: str, container: str) -> bool:
    """Whether a container-id that `owned` has made is of this user."""
    if user == ANONYMOUS:
        return not has_owner(container)
    return container.startswith(f"{_escaped(user)}{SEPARATOR}")


def owner_of(container: str) -> str:
    """The user of a container-id that `owned` has made."""
    user = container.partition(SEPARATOR)[0] if has_owner(container) else ANONYMOUS
    return user.replace("%7C", SEPARATOR).replace("%25", "%")


def has_owner(container: str) -> bool:
    """Whether a container-id that `owned` has made is of a user with a name."""
    return container.find(SEPARATOR) > 0


def concerning(policies: Iterable[Policy], who: Identity, *, anonymous: bool = False) -> tuple[Policy, ...]:
    """The entries for this client. anonymous: on a link without an address."""
    return tuple(each for each in policies if each.concerns(who) and (each.anonymous or not anonymous))


def allowed(policies: Iterable[Policy], who: Identity, direction: Direction, address: str, *, dynamic: bool) -> bool:
    """Whether one of the entries, which concern this client, lets it use this address. dynamic: it is a dynamic
    node."""
    return any(policy.dynamic if dynamic else policy.allows(who.user, direction, address) for policy in policies)


def _escaped(user: str) -> str:
    return user.replace("%", "%25").replace(SEPARATOR, "%7C")
