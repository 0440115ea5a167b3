"""Who may read an admin listener: users with a password (Basic) or a token (Bearer), or with a certificate.

They are those of `sasl` in the topology file, and guessing is bounded as it is for clients. `/healthz` and `/readyz`
are open to all, since those who watch processes have no passwords. What is answered is for no other page: it cannot be
framed, and no browser keeps it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from base64 import b64decode
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from amqp10.errors import EncodeError
from amqp10.sasl import Failure
from amqp10.scram import prepare
from onceway.access.accepting import LOGGER, Accepting, Handler, address_of, application, bounded
from onceway.access.authentication import Authentication, fetch, user_of
from onceway.access.tls import ListenerContext
from onceway.access.tokens import Holder, Tokens
from onceway.base import waits
from onceway.topology import HostPort
from onceway.topology.admin import AdminRules
from onceway.topology.listeners import BY_KEY
from router.reporting import Log

OPEN: Final = (BY_KEY["admin"].live, BY_KEY["admin"].ready)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_ASK: Final = {"WWW-Authenticate": 'Basic realm="onceway", charset="UTF-8", Bearer'}


@web.middleware
async def closed_to_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """No page of another site gets anything of an answer."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        error.headers.update(HEADERS)
        raise
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


class Pages:
    """A listener for those who watch a process: it only reads. `await start()`, then until `await stop()`. names: by
    which they come, beside those of the certificate that is shown."""

    def __init__(self, names: Callable[[], Collection[str]], middlewares: Sequence[Middleware] = ()) -> None:
        self._given_names = names
        self._middlewares = middlewares
        self._tls: ListenerContext | None = None
        self._runner: web.AppRunner | None = None
        self._accepting: Accepting | None = None

    def pages(self) -> list[web.RouteDef]:
        raise NotImplementedError

    def _names(self) -> Collection[str]:
        return {*self._given_names(), *(self._tls.names if self._tls is not None else ())}

    async def start(self, address: HostPort, tls: ListenerContext | None = None) -> HostPort:
        """Listens, and returns the bound address (port 0: the system chooses). OSError if it cannot be bound."""
        self._tls = tls
        pages = application(self._names, closed_to_pages, *self._middlewares)
        pages.add_routes(self.pages())
        self._runner = web.AppRunner(pages, access_log=None, logger=LOGGER, shutdown_timeout=waits.HTTP_STOP.s)
        await waits.LISTEN(self._runner.setup())
        assert self._runner.server is not None
        self._accepting = Accepting(bounded(self._runner.server))
        return await self._accepting.start(address, tls)

    def show(self, tls: ListenerContext | None) -> None:
        """Connections that are made from now on have this TLS."""
        self._tls = tls
        if self._accepting is not None:
            self._accepting.show(tls)

    async def stop(self) -> None:
        if self._accepting is not None:
            self._accepting.stop()
        if self._runner is not None:
            await waits.HTTP_STOP(self._runner.cleanup())


class Access:
    """The middleware of one listener. rules, authentication: as the topology file has them now."""

    def __init__(
        self, rules: Callable[[], AdminRules], authentication: Callable[[], Authentication | None], log: Log
    ) -> None:
        self._rules = rules
        self._authentication = authentication
        self._log = log

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        rules, own = self._rules(), self._authentication()
        if rules.closed and request.path not in OPEN:
            if own is None:
                raise web.HTTPForbidden(text="nobody can say who they are here\n")
            who = await self._who(request, own)
            if who is None:
                raise web.HTTPUnauthorized(text="say who you are, as a user of this network\n", headers=_ASK)
            if not rules.allows(*who):
                self._refused(request, f"user {who[0]!r:.60} may not read here")
                raise web.HTTPForbidden(text=f"user {who[0]!r:.60} may not read here\n")
        return await handler(request)

    async def _who(self, request: web.Request, own: Authentication) -> tuple[str, tuple[str, ...]] | None:
        """User and groups. None: nobody, or it is wrong."""
        scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            shown_tls = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
            certificate = shown_tls.getpeercert() if isinstance(shown_tls, ssl.SSLObject) else None
            user = user_of(certificate, own.sasl.certificates) if certificate else None
            return None if user is None else (user, own.users.groups(user))
        address, now = address_of(request), time.monotonic()
        claimed, reason, found = "", "no way to say who one is", None
        if scheme.lower() == "bearer" and own.tokens is not None:
            holder = await _holder(own.tokens, shown.strip())
            if isinstance(holder, Failure):
                reason = holder.reason
            else:
                found = holder.user, holder.groups
        elif scheme.lower() == "basic" and own.sasl.users is not None:
            claimed, password = _basic(shown)
            reason = f"wrong user or password for {claimed!r:.60}"
            if own.guesses.refuses(address, claimed, now):
                own.guesses.counts["refused"] += 1
                return None  # nothing is looked at for a while, nor logged
            if await own.checks.start(address, partial(own.users.matches, claimed, password)):
                found = claimed, own.users.groups(claimed)
        if found is not None:
            own.guesses.succeeded(address, found[0])
            return found
        self._refused(request, reason)
        await asyncio.sleep(own.guesses.failed(address, claimed, now))
        return None

    def _refused(self, request: web.Request, reason: str) -> None:
        text = "the admin listener refuses {peer}: {reason}"
        self._log.warning("admin_refused", text, peer=address_of(request), reason=reason)


def _basic(shown: str) -> tuple[str, str]:
    """User and password (RFC 7617); empty if they are none."""
    try:
        user, _, password = b64decode(shown, validate=True).decode().partition(":")
        return prepare(user), password
    except (ValueError, EncodeError):
        return "", ""


async def _holder(tokens: Tokens, token: str) -> Holder | Failure:
    if tokens.wants_keys(token, time.monotonic()):
        await fetch(tokens)
    return tokens.verify(token)
