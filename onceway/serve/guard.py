"""Who may come in at a listener of an edge, as a topology file says it: TLS, users, policies and limits.

Nothing here is a second way: contexts are those of `listener_tls`, users those of `authentication`, whose guesses are
bounded by `guesses`, connections are counted by `router.links.limits`, and `check_allowed` asks the policies.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from amqp10.sasl import Step
from onceway.access import authentication, files
from onceway.access.authentication import Authentication, ClientSasl, logins_of, users_gone
from onceway.access.files import Files
from onceway.access.readers import Access
from onceway.access.tls import profile_context
from onceway.base.descriptors import Descriptors, raise_limit
from onceway.base.logs import Log
from onceway.base.private import check_private
from onceway.errors import UsageError
from onceway.state.checked_file import load_kept, not_reloaded
from onceway.topology import ConfigError, Topology
from onceway.topology.admin import AdminRules
from router.config import RouterConfig
from router.links.limits import POLICIES, Admission
from router.links.negotiation import Unauthorized, check_allowed
from router.policies import Direction, Identity

if TYPE_CHECKING:
    from onceway.access.tls import ListenerContext
    from onceway.serve.transport import Carrier


class Guard:
    """One listener's.

    Args:
        name: Of the edge: what `${router}` stands for in the profile.
        log: Told of certificates that end, and of what was read again.
        file: A topology file; None: everyone may come in, without TLS.
        profile: Which of its profiles the listener has; empty: none.

    Attributes:
        tls: Of connections that are made from now on.
        authentication: None: nobody has to say who they are.
        config: The policies and limits are in it.
        admin, admin_tls: What the file says of those who read metrics, and who may act.
        hosts: Of the file.
        readers: The middleware for these.

    Raises:
        ConfigError: The topology file cannot be used.
        UsageError: Another file cannot be used.
    """

    def __init__(
        self, name: str, log: Log, file: str | None = None, profile: Callable[[Topology], str] = lambda _: ""
    ) -> None:
        self.name = name
        self.tls: ListenerContext | None = None
        self.authentication: Authentication | None = None
        self.config = RouterConfig(name)
        self.admin = AdminRules()
        self.admin_tls: ListenerContext | None = None
        self.hosts: frozenset[str] = frozenset()
        self.readers = Access(lambda: self.admin, lambda: self.authentication, log)
        self._log = log
        self._file = file
        self._profile = profile
        if file is not None:
            self._read(file)
        self.admission = Admission(self.config.limits, dict(self.config.users))
        raise_limit()
        self.admission.room = Descriptors(log)

    def _read(self, file: str) -> None:
        topology = load_kept(file)
        tls = profile_context(topology, self._profile(topology), self.name, self._log)
        admin_tls = profile_context(topology, topology.admin.tls, self.name, self._log)
        self.authentication = authentication.load(topology, self.authentication)
        check_private(authentication.secret_files(topology))
        self.tls, self.admin_tls = tls, admin_tls
        self.config, self.admin, self.hosts = topology.settings, topology.admin, topology.hosts

    def read_again(self, now: float) -> Callable[[Carrier, Identity], Identity | None]:
        """Follows the files, as `onceway reload` does: connections that are there stay, but those that have begun to
        log in where others may now. A broken file changes nothing. Returns what says who a client is now; None: its
        user is gone."""
        if self._file is None:
            return lambda carrier, who: who
        before = self._files
        try:
            self._read(self._file)
        except (ConfigError, UsageError) as error:
            not_reloaded(self._log, Path(self._file), error)
            return lambda carrier, who: who
        self.admission.limits, self.admission.users = self.config.limits, dict(self.config.users)
        lines = files.difference(before, self._files)
        self._log.info("reloaded", "follows {file}, changes: {count}", file=self._file, count=len(lines), changes=lines)
        if logins_of(before.authentication) != logins_of(self.authentication):
            self.admission.end_half_open(now)
        gone, own = users_gone(before.authentication, self.authentication), self.authentication

        def who_now(carrier: Carrier, who: Identity) -> Identity | None:
            if own is None or carrier.login is None or carrier.login.has_token:
                return who
            return None if who.user in gone else Identity(who.user, own.users.groups(who.user))

        return who_now

    @property
    def _files(self) -> Files:
        return Files((self.tls, self.admin_tls), self.authentication)

    # --- one connection

    def login(
        self, carrier: Carrier, later: Callable[[Step], None], ends: Callable[[float], None]
    ) -> ClientSasl | None:
        """What is offered to a client; later, ends: as of `ClientSasl`. None: it need not say who it is."""
        own = self.authentication
        carrier.login = None if own is None else ClientSasl(own, carrier.peer, carrier.tls, later, ends)
        return carrier.login

    def tls_failed(self, peer: str, reason: str) -> None:
        self._log.warning("tls_failed", "no TLS with {peer}: {reason}", peer=peer, reason=reason)

    def check(self, who: Identity, direction: Direction, address: str) -> None:
        """Raises `Unauthorized`, and counts that, unless the policies let this client do it."""
        try:
            check_allowed(self.config, who, direction, address)
        except Unauthorized:
            self.admission.count_refusal(POLICIES)
            raise
