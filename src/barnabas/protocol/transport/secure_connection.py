"""Shell: one accepted connection of a listener with TLS, SASL, or both.

    accepted -> counted in the limits -> TLS handshake -> SASL conversation -> requests go to the handler
                                         `tls_server`     `security/sasl_conversation`

This module is not imported by a node whose listeners are all PLAINTEXT. A handshake has a deadline, and a listener has
a limit for handshakes under way, so that clients that begin handshakes and do not end them hold a bounded amount of
memory.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.distinguished_names import CertificateError
from barnabas.protocol.security.principal_mapping import NoMatchingRuleError
from barnabas.protocol.security.sasl_conversation import HandOver, Refuse, Respond, SaslConversation, principal_of
from barnabas.protocol.transport.accepted_connection import AcceptedConnection
from barnabas.protocol.transport.limits import OccasionalWarning
from barnabas.protocol.transport.ports import Peer
from barnabas.protocol.transport.tls_transport import TlsTransport
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.frame_buffer import BLOCK_BYTES, write_pieces
from barnabas.protocol.wire.server_conn import MessageFrames, ReceivedRequest

if TYPE_CHECKING:
    from barnabas.protocol.transport.listener import Listener
    from barnabas.protocol.transport.listener_security import ListenerSecurity

log = get_logger("barnabas.protocol.transport")

HANDSHAKE_S: Final = 10.0
"""The time for a TLS handshake."""
HANDSHAKES_MAX: Final = 1_000
"""The limit for TLS handshakes under way on one listener; further connections are closed at once."""
_WARNING_EVERY_S: Final = 10.0


class SecureListening:
    """What the connections of one listener share: the security settings, and counters."""

    def __init__(self, owner: Listener, security: ListenerSecurity) -> None:
        self.owner = owner
        self.security = security
        self.handshakes = 0
        """TLS handshakes under way."""
        self.block = memoryview(bytearray(BLOCK_BYTES if security.tls is not None else 0))
        """Encrypted bytes arrive here. A connection decrypts them before another one receives."""
        self.failures = OccasionalWarning(_WARNING_EVERY_S)
        metrics, name = owner.metrics, owner.endpoint.name
        self.failed = metrics.counter(
            "barnabas_net_failed_authentications_total", "Connections that failed to authenticate.", listener=name
        )
        self.succeeded = metrics.counter(
            "barnabas_net_authentications_total", "Connections that have authenticated.", listener=name
        )
        self.expired = metrics.counter(
            "barnabas_net_expired_sessions_total", "Connections closed because their sessions expired.", listener=name
        )

    def connection(self) -> AcceptedConnection:
        return SecureConnection(self)

    def count_failure(self, peer: object, reason: str) -> None:
        """Count a client that failed to authenticate, and log it, but not more often than every ten seconds."""
        self.failed.add()
        count = self.failures.count(self.owner.now())
        if count:
            name = self.owner.endpoint.name
            log.warning("failed authentications", listener=name, last=str(peer), reason=reason, count=count)


class SecureConnection(AcceptedConnection):
    """An `AcceptedConnection` that passes no request to the handler before the client has authenticated."""

    def __init__(self, shared: SecureListening) -> None:
        owner = shared.owner
        super().__init__(owner)
        self._shared = shared
        self._tls: TlsTransport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        """The deadline of the TLS handshake; None once the handshake has ended."""
        self._spoke = False
        self._failing: asyncio.TimerHandle | None = None
        self._conversation: SaslConversation | None = None
        sasl = shared.security.sasl
        if sasl is not None:
            self._conversation = SaslConversation(sasl, shared.security.rng)
            size = min(sasl.sasl_server_max_receive_size, owner.limits.socket_request_max_bytes)
            self._messages = MessageFrames(size, owner.memory)
            self._wire = self._messages
            self._frames = self._wire.frames

    # ---- transport callbacks

    def hold(self) -> None:
        if self._shared.security.tls is not None:
            self._start_tls(self._shared.security.tls.context)
        super().hold()

    def enter(self, peer: Peer) -> None:
        super().enter(peer)
        shared = self._shared
        if shared.security.tls is None:
            return
        if shared.handshakes >= HANDSHAKES_MAX:
            shared.count_failure(peer, f"{HANDSHAKES_MAX} TLS handshakes are under way")
            self.close("too many TLS handshakes are under way", expected=True)
            return
        shared.handshakes += 1
        was_held = self._tls is not None
        if not was_held:
            self._start_tls(shared.security.tls.context)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._on_deadline)
        if was_held:
            self.buffer_updated(0)  # some bytes may have arrived before the connection was held

    def _start_tls(self, context: ssl.SSLContext) -> None:
        assert self._transport is not None
        self._transport = self._tls = TlsTransport(self._transport, context)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.target() if self._tls is None else self._shared.block

    def buffer_updated(self, nbytes: int) -> None:
        tls = self._tls
        if tls is None:
            super().buffer_updated(nbytes)
            return
        if self._closing:
            return
        tls.receive(self._shared.block[:nbytes])
        if self._peer is None:
            return
        try:
            if self._deadline is None or self._shake_hands(tls):
                self._read(tls)
        except ssl.SSLError as error:
            self._on_tls_error(error)

    def data_received(self, data: bytes) -> None:
        for count in write_pieces(data, lambda: self.get_buffer(-1)):
            self.buffer_updated(count)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._end_handshake()
            if self._spoke and not self._closing:  # a probe of the port sends nothing, and is no failure
                self._shared.count_failure(self._peer, "the client closed the connection during the TLS handshake")
        if self._failing is not None:
            self._failing.cancel()
        super().connection_lost(exc)

    # ---- TLS

    def _shake_hands(self, tls: TlsTransport) -> bool:
        """Continue the handshake. Returns whether requests may be read."""
        self._spoke = True
        self.last_active = self._owner.now()
        if not tls.shake_hands():
            return False
        self._end_handshake()
        return self._accept_certificate(tls)

    def _end_handshake(self) -> None:
        assert self._deadline is not None
        self._deadline.cancel()
        self._deadline = None
        self._shared.handshakes -= 1

    def _read(self, tls: TlsTransport) -> None:
        """Decrypt all that was received, and start the requests that are complete."""
        frames = self._frames
        while not self._closing:
            count = tls.read_into(frames.target())
            if count is None:
                break
            if count == 0:
                self.close("the client has ended the TLS connection", expected=True)
                break
            super().buffer_updated(count)
        tls.flush()

    def _on_tls_error(self, error: ssl.SSLError) -> None:
        if self._deadline is None:
            self.close(f"the TLS connection is broken: {error}", expected=True)
            return
        self._end_handshake()
        reason = describe_failure(error)
        self._shared.count_failure(self._peer, reason)
        self.close(reason, expected=True)

    def _on_deadline(self) -> None:
        reason = f"the client did not complete the TLS handshake within {HANDSHAKE_S:g} s"
        self._end_handshake()
        if self._spoke:
            self._shared.count_failure(self._peer, reason)
        self.close(reason, expected=True)

    def _accept_certificate(self, transport: TlsTransport) -> bool:
        """Set the principal of a connection without SASL from the client's certificate. Returns whether it has one."""
        if self._conversation is not None:
            return True
        assert self._peer is not None
        settings = self._shared.security.tls
        assert settings is not None
        try:
            self._peer.principal = settings.principal(transport.tls.getpeercert(binary_form=True))
        except (CertificateError, NoMatchingRuleError) as error:
            self._shared.count_failure(self._peer, str(error))
            self.close(str(error), expected=True)
            return False
        self._shared.succeeded.add()
        return True

    # ---- SASL

    def _start(self, request: ReceivedRequest) -> None:
        conversation = self._conversation
        if conversation is None:
            super()._start(request)
            return
        security = self._shared.security
        step = conversation.on_request(request, self._owner.now() * 1000, security.clock.now_ms())
        if isinstance(step, HandOver):
            super()._start(request)
        elif isinstance(step, Respond):
            self._messages.raw_messages = conversation.raw_messages
            self._respond(request, step)
        elif step.is_failure:
            self._fail(request, step)
        else:
            self._shared.expired.add()
            self.close(step.reason, expected=True)

    def _respond(self, request: ReceivedRequest, step: Respond) -> None:
        assert self._peer is not None
        if step.identity is not None:
            self._peer.principal = principal_of(step.identity)
            self._peer.token_authenticated = step.identity.token_authenticated
            self._messages.max_request_bytes = self._owner.limits.socket_request_max_bytes
            self._shared.succeeded.add()
        self._answer(request, step.frame)

    def _fail(self, request: ReceivedRequest, step: Refuse) -> None:
        """Answer and close after connection.failed.authentication.delay.ms, so that passwords are guessed slowly."""
        assert self._transport is not None
        sasl = self._shared.security.sasl
        assert sasl is not None
        self._shared.count_failure(self._peer, step.reason)
        self._blocked = True
        self._transport.pause_reading()
        self._reading = False
        delay_s = sasl.connection_failed_authentication_delay_ms / 1000
        self._failing = asyncio.get_running_loop().call_later(delay_s, self._end_failed, request, step)

    def _end_failed(self, request: ReceivedRequest, step: Refuse) -> None:
        self._failing = None
        if step.frame is not None:
            self._answer(request, step.frame)
        self.close(step.reason, expected=True)

    def _regulate(self) -> None:
        if self._failing is None:
            super()._regulate()

    def _on_bad_frame(self, error: WireError) -> None:
        conversation = self._conversation
        if conversation is not None and not conversation.complete:
            self._shared.count_failure(self._peer, str(error))
        super()._on_bad_frame(error)


def describe_failure(error: ssl.SSLError) -> str:
    """What a failed TLS handshake means, for the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not trusted: {error.verify_message} (ssl.truststore.location)"
    reason = error.reason or str(error)
    if reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"):
        return f"the client does not speak TLS: is its security.protocol SSL or SASL_SSL? ({reason})"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client has no certificate, and ssl.client.auth=required: the client needs ssl.keystore.location"
    if "ALERT" in reason:
        return f"the client refused the handshake, perhaps because it does not trust this listener ({reason})"
    return f"the TLS handshake failed: {reason}"
