"""How clients come in at a router's listeners: with which TLS, and who says who they are."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from onceway.access.authentication import Authentication, ClientSasl, everybody
from onceway.base import waits
from onceway.base.websocket import ListenerWebSocket
from onceway.serve.clients import FRAMES_AT_ONCE, ClientCarrier, Shares
from onceway.topology.listeners import BY_KEY

if TYPE_CHECKING:
    from amqp10.sasl import Step
    from onceway.access.tls import ListenerContext
    from onceway.serve.server import RouterServer
    from onceway.serve.transport import Carried
    from router.links.client_connection import ClientConnection
    from router.mqtt.connection import Authenticate, MqttConnection

SUBPROTOCOLS: Final = ("amqp", "AMQPWSB10")  # the second is the drafts' name, which Azure's clients still use


class Listening:
    """Of connections that are made from now on.

    Attributes:
        authentication: None: clients need not say who they are.
    """

    def __init__(self, server: RouterServer) -> None:
        self._server = server
        self.tls: ListenerContext | None = None
        self.authentication: Authentication | None = None
        self._shares: Shares | None = None

    async def listen(self) -> list[asyncio.Server]:
        server = self._server
        shares = self._shares = Shares(server.loop.call_soon, server.loop.call_later, server.turn_times.histogram)
        listeners = []
        for scheme, (host, port) in server.topology.routers[server.name].for_clients().items():
            accept = partial(self._accept, scheme, shares)
            listeners.append(await waits.LISTEN(server.loop.create_server(accept, host, port, backlog=1024)))
        return listeners

    @property
    def waiting(self) -> int:
        """Returns how many clients wait for their turn."""
        return len(self._shares or ())

    def _accept(self, scheme: str, shares: Shares) -> ClientCarrier:
        server = self._server
        tls = self.tls if BY_KEY[scheme].secure else None
        spoken = (*SUBPROTOCOLS, "mqtt") if server.router.config.mqtt_topics else SUBPROTOCOLS
        websocket = None
        if BY_KEY[scheme].websocket:
            hosts = server.hosts | (tls.names if tls is not None else frozenset())
            websocket = ListenerWebSocket(spoken, server.topology.origins, hosts)
        return ClientCarrier(server, shares, scheme, tls, websocket)

    def connect(self, carrier: ClientCarrier) -> Carried:
        """A client has come in."""
        if BY_KEY[carrier.scheme].protocol == "MQTT":
            return self.connect_mqtt(carrier)
        router, own = self._server.router, self.authentication
        now, scheme = self._server.time(), carrier.scheme
        connection: ClientConnection
        if own is None:
            connection = router.connect(now, carrier.peer, scheme=scheme)
        else:

            def later(step: Step) -> None:
                self._logged_in(carrier, connection, step)

            carrier.login = sasl = ClientSasl(own, carrier.peer, carrier.tls, later, carrier.end_after)
            connection = router.connect(now, carrier.peer, scheme=scheme, sasl=sasl, anonymous=own.anonymous)
        connection.connection.reader.budget = FRAMES_AT_ONCE
        carrier.client = connection
        return connection

    def connect_mqtt(self, carrier: ClientCarrier) -> MqttConnection:
        own = self.authentication
        authenticate: Authenticate = everybody
        if own is not None:

            def later(step: Step) -> None:
                self._logged_in(carrier, connection, step)

            carrier.login = ClientSasl(own, carrier.peer, carrier.tls, later, carrier.end_after)
            authenticate = carrier.login.by_password
        now, secure = self._server.time(), carrier.tls is not None
        connection = self._server.router.connect_mqtt(now, carrier.peer, secure=secure, authenticate=authenticate)
        carrier.client = connection
        return connection

    def _logged_in(self, carrier: ClientCarrier, connection: ClientConnection | MqttConnection, step: Step) -> None:
        """It is known who the client is."""
        server = self._server
        now = server.time()
        server.router.border.input(connection, connection.authenticated, step, now)
        carrier.go_on()
        server.after_read()
        carrier.took(server.clock() - now, "a login")
