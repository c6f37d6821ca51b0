"""Shell: one accepted connection of a listener with TLS, SASL, or both.

    accepted -> counted in the limits -> TLS handshake -> SASL conversation -> requests go to the handler
                                         `tls_server`     `security/sasl_conversation`

This module is not imported by a node whose listeners are all PLAINTEXT. The handshake and the conversation have
deadlines, and a listener has limits for the connections whose clients have not authenticated yet
(`unauthenticated.py`), so that such clients hold a bounded amount of memory. A step of a TLS handshake takes 1 ms with
an RSA key of 2,048 bits, and 5 ms with one of 4,096 bits. So it waits for a turn of its connection, as a request does.
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
from barnabas.protocol.transport.tls import HAS_EXPIRED
from barnabas.protocol.transport.tls_transport import TlsTransport
from barnabas.protocol.transport.turn_taking import REQUEST_S
from barnabas.protocol.transport.unauthenticated import CONNECTIONS_MAX, HELD_BYTES_MAX, UnauthenticatedConnections
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.frame_buffer import BLOCK_BYTES, write_pieces
from barnabas.protocol.wire.server_conn import MessageFrames, ReceivedRequest

if TYPE_CHECKING:
    from barnabas.protocol.transport.listener import Listener
    from barnabas.protocol.transport.listener_security import ListenerSecurity

log = get_logger("barnabas.protocol.transport")

HANDSHAKE_S: Final = 10.0
"""The time for a TLS handshake."""
AUTHENTICATION_S: Final = 30.0
"""The time for a SASL conversation. Kafka has no limit but connections.max.idle.ms, which a client that sends one byte
now and then never reaches."""
_WARNING_EVERY_S: Final = 10.0


class SecureListening:
    """What the connections of one listener share: the security settings, limits, and counters."""

    def __init__(self, owner: Listener, security: ListenerSecurity) -> None:
        self.owner = owner
        self.security = security
        self.unauthenticated = UnauthenticatedConnections(min(CONNECTIONS_MAX, owner.quotas.unauthenticated_max))
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
        metrics.gauge(
            "barnabas_net_unauthenticated_connections",
            "Open connections whose clients have not authenticated yet.",
            lambda: len(self.unauthenticated),
            listener=name,
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
        self._shaking_hands = False
        """Whether the TLS handshake is under way."""
        self._deadline: asyncio.TimerHandle | None = None
        """The deadline of the TLS handshake or of the SASL conversation; None once the client has authenticated."""
        self._spoke = False
        self._refused = False
        """The client's token was refused, which was counted as a failure."""
        self._read_later = False
        """Whether decrypting has stopped because requests of what was decrypted have not been read."""
        self._authenticated = False
        """Whether the client has authenticated; true also while it authenticates anew."""
        self._failing: asyncio.TimerHandle | None = None
        self._conversation: SaslConversation | None = None
        sasl = shared.security.sasl
        if sasl is not None:
            self._conversation = SaslConversation(sasl, shared.security.rng)
            self._message_bytes_max = min(sasl.sasl_server_max_receive_size, owner.limits.socket_request_max_bytes)
            self._messages = MessageFrames(self._message_bytes_max, owner.memory)
            self._wire = self._messages
            self._frames = self._wire.frames

    # ---- transport callbacks

    def hold(self) -> None:
        if self._shared.security.tls is not None:
            self._start_tls(self._shared.security.tls.context)
        super().hold()

    def enter(self, peer: Peer) -> None:
        self._peer = peer
        shared = self._shared
        refusal = shared.unauthenticated.try_add(self, self._owner.now())
        if refusal is not None:
            shared.count_failure(peer, refusal)
            self.close(refusal, expected=True)
            return
        was_held = self._tls is not None
        if shared.security.tls is not None and not was_held:
            self._start_tls(shared.security.tls.context)
        self._shaking_hands = self._tls is not None
        self._set_deadline(HANDSHAKE_S if self._shaking_hands else AUTHENTICATION_S)
        super().enter(peer)
        if was_held:
            self._regulate()  # from now on the client is read
            self.buffer_updated(0)  # some bytes may have arrived before the connection was held

    def _start_tls(self, context: ssl.SSLContext) -> None:
        assert self._transport is not None
        self._transport = self._tls = TlsTransport(self._transport, context)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.target() if self._tls is None else self._shared.block

    def buffer_updated(self, nbytes: int) -> None:
        tls = self._tls
        if self._deadline is not None:
            self._spoke = True
        if tls is None:
            super().buffer_updated(nbytes)
            self._count_held()
            return
        if self._closing:
            return
        tls.receive(self._shared.block[:nbytes])
        if self._peer is None:
            return
        if self._shaking_hands:
            self._wait_to_shake_hands(tls)
        else:
            self._continue(tls)

    def data_received(self, data: bytes) -> None:
        for count in write_pieces(data, lambda: self.get_buffer(-1)):
            self.buffer_updated(count)

    def connection_lost(self, exc: Exception | None) -> None:
        if (
            self._spoke and self._deadline is not None and not self._closing and not self._refused
        ):  # a probe of the port sends nothing
            stage = "TLS handshake" if self._shaking_hands else "SASL conversation"
            self._shared.count_failure(self._peer, f"the client closed the connection during the {stage}")
        self._end_deadline()
        self._shared.unauthenticated.remove(self)
        if self._failing is not None:
            self._failing.cancel()
        super().connection_lost(exc)

    # ---- clients that have not authenticated

    def give_up(self, reason: str) -> None:
        """Close the connection, because its client does not authenticate."""
        if self._spoke and not self._refused:
            self._shared.count_failure(self._peer, reason)
        self.close(reason, expected=True)

    def close(self, reason: str, *, expected: bool = False) -> None:
        self._end_deadline()
        super().close(reason, expected=expected)

    def _set_deadline(self, seconds: float) -> None:
        self._end_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._on_deadline, seconds)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self, seconds: float) -> None:
        stage = "complete the TLS handshake" if self._shaking_hands else "authenticate"
        self.give_up(f"the client did not {stage} within {seconds:g} s")

    def _on_authenticated(self) -> None:
        self._authenticated = True
        self._end_deadline()
        self._shared.unauthenticated.remove(self)
        self._shared.succeeded.add()

    def _count_waiting(self) -> None:
        """As in Kafka, clients that have not authenticated do not use the memory of queued.max.request.bytes."""
        if self._authenticated:
            super()._count_waiting()

    def _count_held(self) -> None:
        """Close the connection if it holds an unfinished message, and the listener has no memory for more of them."""
        if self._deadline is None or self._shared.unauthenticated.hold(self, self._frames.held_bytes):
            return
        self.give_up(f"clients that have not authenticated hold more than {HELD_BYTES_MAX} bytes of messages")

    # ---- TLS

    def start_waiting(self) -> None:
        if not self._shaking_hands:
            super().start_waiting()
            if self._read_later and not self._frames.has_more and self._tls is not None:
                self._continue(self._tls)
        elif self._tls is not None and self._owner.turns.served is self and not self._closing:
            self._tls.resume_reading()
            self._shake_hands_in_turn(self._tls)

    def _wait_to_shake_hands(self, tls: TlsTransport) -> None:
        """Continue the handshake with what was received, now or in the connection's turn."""
        turns = self._owner.turns
        if turns.is_busy or turns.left <= 0:
            tls.pause_reading()
            turns.wait(self)
        else:
            self._shake_hands_in_turn(tls)

    def _shake_hands_in_turn(self, tls: TlsTransport) -> None:
        turns = self._owner.turns
        clock, left = turns.clock, turns.left  # the turns may change to another clock meanwhile
        began = clock()
        self._continue(tls)
        turns.left = left - max(clock() - began, REQUEST_S)  # with the requests that came with its end

    def _continue(self, tls: TlsTransport) -> None:
        """Process the bytes that were received."""
        try:
            if not self._shaking_hands or self._shake_hands(tls):
                self._read(tls)
        except ssl.SSLError as error:
            self._on_tls_error(error)

    def _shake_hands(self, tls: TlsTransport) -> bool:
        """Continue the handshake. Returns whether requests may be read."""
        self.last_active = self._owner.now()
        clock, usage = self._owner.turns.clock, self.usage
        began = clock()
        try:
            if not tls.shake_hands():
                return False
        finally:
            usage.seconds += clock() - began
        usage.requests += 1
        self._shaking_hands = False
        if self._conversation is None:
            return self._accept_certificate(tls)
        self._set_deadline(AUTHENTICATION_S)
        return True

    def _read(self, tls: TlsTransport) -> None:
        """Decrypt all that was received, and start the requests that are complete."""
        frames, self._read_later = self._frames, False
        while not self._closing and self._failing is None and not frames.has_more:
            count = tls.read_into(frames.target())
            if not count:
                break
            super().buffer_updated(count)
        self._read_later = frames.has_more
        if tls.ended:
            self.close("the client has ended the TLS connection", expected=True)
        tls.flush()
        self._count_held()

    def _on_tls_error(self, error: ssl.SSLError) -> None:
        if not self._shaking_hands:
            self.close(f"the TLS connection is broken: {error}", expected=True)
            return
        reason = describe_failure(error)
        self._shared.count_failure(self._peer, reason)
        self.close(reason, expected=True)

    def _accept_certificate(self, transport: TlsTransport) -> bool:
        """Set the principal of a connection without SASL from the client's certificate. Returns whether it has one."""
        assert self._peer is not None
        settings = self._shared.security.tls
        assert settings is not None
        certificate = transport.tls.getpeercert(binary_form=True)
        try:
            principal = settings.principal(certificate)
        except (CertificateError, NoMatchingRuleError) as error:
            self._shared.count_failure(self._peer, str(error))
            self.close(str(error), expected=True)
            return False
        self._on_authenticated()
        return self._owner.set_principal(self, self._peer, principal, certificate)

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
        if step.refusal is not None:  # a client may close the connection instead of sending its last word
            self._refused = True
            self._shared.count_failure(self._peer, step.refusal)
        if step.identity is not None:
            if not self._owner.set_principal(self, self._peer, principal_of(step.identity)):
                return
            self._peer.token_authenticated = step.identity.token_authenticated
            self._messages.max_request_bytes = self._owner.limits.socket_request_max_bytes
            self._on_authenticated()
        elif self._deadline is None:  # a client that has authenticated begins to authenticate anew
            self._messages.max_request_bytes = self._message_bytes_max
            self._set_deadline(AUTHENTICATION_S)
        self._answer(request, step.frame)

    def _fail(self, request: ReceivedRequest, step: Refuse) -> None:
        """Answer and close after connection.failed.authentication.delay.ms, so that passwords are guessed slowly."""
        assert self._transport is not None
        sasl = self._shared.security.sasl
        assert sasl is not None
        if not step.is_known:
            self._shared.count_failure(self._peer, step.reason)
        self._end_deadline()
        self._blocked = True
        self._transport.pause_reading()
        self._reading = False
        self._drop_received(request)
        delay_s = sasl.connection_failed_authentication_delay_ms / 1000
        self._failing = asyncio.get_running_loop().call_later(delay_s, self._end_failed, request, step)

    def _drop_received(self, request: ReceivedRequest) -> None:
        """Drop what the client has sent: clients that fail to authenticate hold no memory during the delay."""
        request.frame = b""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._frames.drop()

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
        if error.verify_code == HAS_EXPIRED:
            return "the client's certificate has expired: the client needs a new one in ssl.keystore.location"
        return f"the client's certificate is not trusted: {error.verify_message} (ssl.truststore.location)"
    reason = error.reason or str(error)
    if reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"):
        return f"the client does not speak TLS: is its security.protocol SSL or SASL_SSL? ({reason})"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client has no certificate, and ssl.client.auth=required: the client needs ssl.keystore.location"
    if "ALERT_CERTIFICATE_EXPIRED" in reason:
        return "the client refused the handshake: the certificate of this listener has expired (ssl.keystore.location)"
    if "ALERT" in reason:
        return f"the client refused the handshake, perhaps because it does not trust this listener ({reason})"
    return f"the TLS handshake failed: {reason}"
