"""What comes before open: protocol headers (AMQP 2.2) and the SASL layer (AMQP 5.3).

Knows both sides of the negotiation. Its output is separate, so that a client may write its open before the server has
answered. Frames after the handshake: connection.py. The SASL mechanisms: sasl.py.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from struct import Struct
from typing import Any, Final, cast

from amqp10.counting import check_values
from amqp10.errors import (
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_IMPLEMENTED,
    UNAUTHORIZED_ACCESS,
    DecodeError,
    RemoteProtocolError,
)
from amqp10.frames import (
    AMQP_HEADER,
    HEADER_SIZE,
    MIN_MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    encode_frame,
    parse_frame_header,
)
from amqp10.performatives import (
    SASL_AUTH,
    SASL_OK,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslPerformative,
    SaslResponse,
    decode_performative,
)
from amqp10.sasl import Challenge, ClientChoice, ClientMechanism, Offer, Pending, ServerMechanism, Step, Success
from amqp10.settings import BEFORE_LOGIN, VALUES_BEFORE_LOGIN, ConnectionSettings

_unpack_size: Final = Struct(">I").unpack_from


class HandshakeFailed(RemoteProtocolError):
    """The connection fails before open; what has to be written is in the output.

    local: this side refused."""

    def __init__(self, condition: str, description: str, *, local: bool) -> None:
        super().__init__(condition, description)
        self.local = local


class Phase(Enum):
    HEADER = auto()  # waits for the peer's first protocol header
    INIT = auto()  # server: sasl-init
    RESPONSE = auto()  # server: sasl-response
    PENDING = auto()  # server: the result of a step that takes time
    MECHANISMS = auto()  # client: sasl-mechanisms
    OUTCOME = auto()  # client: sasl-challenge or sasl-outcome
    AMQP_HEADER = auto()  # after SASL: the peer's second protocol header
    DONE = auto()


class Handshake:
    """`receive` takes bytes up to the end of the last protocol header; `output` is to be written before frames."""

    __slots__ = (
        "_choice",
        "_held",
        "_mechanism",
        "_octets",
        "_phase",
        "groups",
        "output",
        "product",
        "ready",
        "server",
        "settings",
        "user",
    )

    def __init__(self, settings: ConnectionSettings, *, server: bool) -> None:
        self.settings = settings
        self.server = server
        self.output: list[bytes] = []
        self.ready = False
        """Our AMQP header is written (or in `output`): frames may follow."""
        self.user: str | None = None
        self.groups: tuple[str, ...] = ()
        self.product: str | None = None
        """Of a peer that reads fields by number: what goes out to it is written again (whole_lists.py)."""
        self._phase = Phase.HEADER
        self._mechanism: ServerMechanism | None = None
        self._choice: ClientMechanism | None = None  # the one that this client has taken
        self._held = b""  # what has arrived while a step is pending
        self._octets = 0  # of the frames so far

    @property
    def done(self) -> bool:
        """Both AMQP headers have been exchanged."""
        return self._phase is Phase.DONE

    def regroup(self, groups: tuple[str, ...]) -> None:
        """The user is in these groups now."""
        self.groups = groups

    def start(self) -> None:
        """Client: write the first header, or everything if nothing has to be waited for."""
        assert not self.server
        if self.settings.sasl is None:
            self._write_amqp_header()
            return
        self.output.append(SASL_HEADER)
        if self.settings.pipelined:
            self._write_init()
            self._write_amqp_header()

    def receive(self, data: bytes) -> int:
        """Process complete headers and frames; return how many bytes they were. HandshakeFailed ends the connection."""
        offset = 0
        while self._phase is not Phase.DONE:
            if self._phase is Phase.PENDING:
                self._held += data[offset:]
                self._bound(len(self._held))
                return len(data)
            if self._phase in (Phase.HEADER, Phase.AMQP_HEADER):
                header = data[offset : offset + HEADER_SIZE]
                if len(header) < HEADER_SIZE:
                    break
                offset += HEADER_SIZE
                self._received_header(header)
            else:
                if len(data) - offset < HEADER_SIZE:
                    break
                size = _unpack_size(data, offset)[0]
                most = self._offer().largest_frame if self.server else MIN_MAX_FRAME_SIZE
                if size > most:  # AMQP 5.3.1
                    raise HandshakeFailed(
                        FRAMING_ERROR, f"a SASL frame of {size} bytes is larger than {most}", local=True
                    )
                if len(data) - offset < size:
                    break
                self._octets += size
                self._bound(0)
                self._received_frame(data, offset, offset + size)
                offset += size
        return offset

    def _bound(self, held: int) -> None:
        if self.server and self._octets + held > BEFORE_LOGIN:
            raise HandshakeFailed(FRAMING_ERROR, "too much input before authentication", local=True)

    def _received_header(self, header: bytes) -> None:
        sasl = self.settings.sasl
        if self.server and self._phase is Phase.HEADER:
            if header == SASL_HEADER and sasl is not None:
                self.output.append(SASL_HEADER)
                self._write(SaslMechanisms(self._offer().names))
                self._phase = Phase.INIT
                return
            if header == AMQP_HEADER and (self.settings.allow_no_sasl or sasl is None):
                self._write_amqp_header()
                self._phase = Phase.DONE
                return
            wanted = SASL_HEADER if sasl is not None else AMQP_HEADER
        elif self._phase is Phase.HEADER and sasl is not None:
            if header == SASL_HEADER:
                self._phase = Phase.MECHANISMS
                return
            wanted = SASL_HEADER
        else:
            if header == AMQP_HEADER:
                if self.server:
                    self._write_amqp_header()
                self._phase = Phase.DONE
                return
            wanted = AMQP_HEADER
        if self.server:
            self.output.append(wanted)  # AMQP 2.2: answer with a header that we support, then close
        condition = FRAMING_ERROR if header[:4] != b"AMQP" else NOT_IMPLEMENTED
        raise HandshakeFailed(
            condition, f"the peer's protocol header is {header!r}, ours {wanted!r}", local=self.server
        )

    def _received_frame(self, data: bytes, offset: int, stop: int) -> None:
        try:
            size, doff, frame_type, _ = parse_frame_header(data, offset)
            if frame_type != SASL_FRAME:
                raise DecodeError(FRAMING_ERROR, f"a frame of type {frame_type} is no SASL frame", offset + 5)
            if size == doff * 4:
                raise DecodeError(FRAMING_ERROR, "an empty SASL frame", offset)
            if self.server:
                check_values(data, offset + doff * 4, stop, VALUES_BEFORE_LOGIN)
            performative, end = decode_performative(data, offset + doff * 4, stop)
            if end != stop:
                raise DecodeError(FRAMING_ERROR, f"{stop - end} bytes follow the performative", end)
        except DecodeError as error:
            raise HandshakeFailed(error.condition, error.description, local=True) from None
        handler = _HANDLERS.get((self._phase, performative.__class__))
        if handler is None:
            raise HandshakeFailed(
                ILLEGAL_STATE, f"{type(performative).__name__} is unexpected in the SASL exchange", local=True
            )
        handler(self, performative)

    # Server ---------------------------------------------------------------------------------------------------------

    def _on_init(self, init: SaslInit) -> None:
        self._mechanism = self._offer().begin(init.mechanism)
        if self._mechanism is None:
            self._refuse(f"SASL mechanism {init.mechanism!r:.60} is not offered")
        self._step(init.initial_response)

    def _on_response(self, response: SaslResponse) -> None:
        self._step(response.response)

    def _step(self, data: bytes | None) -> None:
        assert self._mechanism is not None
        self._take(self._mechanism.step(data))

    def resolve(self, step: Step) -> bytes:
        """The result of a step that was pending; returns what has arrived meanwhile. HandshakeFailed ends the
        connection."""
        assert self._phase is Phase.PENDING
        held, self._held = self._held, b""
        self._take(step)
        return held

    @property
    def pending(self) -> bool:
        """The result of a step is waited for."""
        return self._phase is Phase.PENDING

    def _take(self, step: Step) -> None:
        if isinstance(step, Challenge):
            self._write(SaslChallenge(step.data))
            self._phase = Phase.RESPONSE
        elif isinstance(step, Pending):
            self._phase = Phase.PENDING
        elif isinstance(step, Success):
            self.user, self.groups = step.identity, step.groups
            self._write(SaslOutcome(SASL_OK, step.additional_data))
            self._phase = Phase.AMQP_HEADER
        else:
            self._refuse(step.reason)

    def _refuse(self, reason: str) -> None:
        self._write(SaslOutcome(SASL_AUTH))
        raise HandshakeFailed(UNAUTHORIZED_ACCESS, reason, local=True)

    # Client ---------------------------------------------------------------------------------------------------------

    def _on_mechanisms(self, mechanisms: SaslMechanisms) -> None:
        names = mechanisms.sasl_server_mechanisms
        offered = ", ".join(names) or "none"
        sasl = self.settings.sasl
        if isinstance(sasl, ClientChoice):
            self._choice = sasl.choose(names)
            if self._choice is None:
                raise HandshakeFailed(UNAUTHORIZED_ACCESS, sasl.why_none(names), local=True)
        elif self._client_mechanism().name not in names:
            raise HandshakeFailed(
                UNAUTHORIZED_ACCESS,
                f"the server does not offer {self._client_mechanism().name}, but {offered}",
                local=True,
            )
        if not self.ready:
            self._write_init()
        self._phase = Phase.OUTCOME

    def _on_challenge(self, challenge: SaslChallenge) -> None:
        if self.ready:
            raise HandshakeFailed(ILLEGAL_STATE, "a challenge in a mechanism of one step", local=True)
        try:
            response = self._client_mechanism().step(challenge.challenge)
        except RemoteProtocolError as error:
            raise HandshakeFailed(error.condition, error.description, local=True) from None
        self._write(SaslResponse(response))

    def _on_outcome(self, outcome: SaslOutcome) -> None:
        if outcome.code != SASL_OK:
            raise HandshakeFailed(
                UNAUTHORIZED_ACCESS, f"the server refused {self._client_mechanism().name}: code {outcome.code}",
                local=False,
            )  # fmt: skip
        try:
            self._client_mechanism().finish(outcome.additional_data)
        except RemoteProtocolError as error:
            raise HandshakeFailed(error.condition, error.description, local=True) from None
        if not self.ready:
            self._write_amqp_header()
        self._phase = Phase.AMQP_HEADER

    def _client_mechanism(self) -> ClientMechanism:
        if self._choice is None:
            self._choice = cast(ClientMechanism, self.settings.sasl)
        return self._choice

    def _offer(self) -> Offer:
        return cast(Offer, self.settings.sasl)

    def _write_init(self) -> None:
        mechanism = self._client_mechanism()
        self._write(SaslInit(mechanism.name, mechanism.start(), self.settings.hostname))

    def _write(self, performative: SaslPerformative) -> None:
        self.output.append(encode_frame(SASL_FRAME, 0, performative.encode()))

    def _write_amqp_header(self) -> None:
        self.output.append(AMQP_HEADER)
        self.ready = True


_HANDLERS: Final[dict[tuple[Phase, type], Callable[[Handshake, Any], None]]] = {
    (Phase.INIT, SaslInit): Handshake._on_init,
    (Phase.RESPONSE, SaslResponse): Handshake._on_response,
    (Phase.MECHANISMS, SaslMechanisms): Handshake._on_mechanisms,
    (Phase.OUTCOME, SaslChallenge): Handshake._on_challenge,
    (Phase.OUTCOME, SaslOutcome): Handshake._on_outcome,
}
