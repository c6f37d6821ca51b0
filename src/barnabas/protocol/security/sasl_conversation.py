"""Machine: authentication of an accepted connection by SASL: which request may come next, and its answer.

    first        ApiVersions (once)                         -> answered by the API's handler
    handshake    SaslHandshake v1: mechanism                -> SaslAuthenticate requests follow
                 SaslHandshake v0: mechanism                -> the mechanism's messages follow, without headers
    messages     until the mechanism knows the user
    complete     every request goes to the handler of its API; a session that has expired ends, unless the client
                 authenticates anew by another SaslHandshake (KIP-368)

Any other request ends the connection before its body is decoded. The authority is Kafka's SaslServerAuthenticator, with
KIP-43 (mechanisms), KIP-152 (SaslAuthenticate) and KIP-368 (re-authentication).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.core.rng import Rng
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.security.sasl_server import (
    NONCE_BYTES,
    AuthenticationFailedError,
    SaslCredentials,
    SaslIdentity,
    SaslServer,
    sasl_server,
)
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.client_software import is_valid_software
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.wire.server_conn import ReceivedRequest

REAUTHENTICATION_INTERVAL_MS: Final = 1_000
"""A client may authenticate anew at most this often (Kafka's MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS)."""


class SaslServerConfig(Struct, frozen=True):
    """The SASL settings of one listener."""

    enabled_mechanisms: tuple[str, ...]
    credentials: SaslCredentials
    connections_max_reauth_ms: Mapping[str, int]
    """The connections.max.reauth.ms of each mechanism that has a value above 0."""
    sasl_server_max_receive_size: int = 524_288
    connection_failed_authentication_delay_ms: int = 100


class HandOver(Struct, frozen=True):
    """The request goes to the handler of its API."""


class Respond(Struct, frozen=True):
    """`frame` is the response. `identity` is the user, if the response completes the authentication."""

    frame: Sequence[Buffer]
    identity: SaslIdentity | None = None
    refusal: str | None = None
    """Why the response refuses the client, for the log. The conversation ends with the next message."""


class Refuse(Struct, frozen=True):
    """Close the connection, after `frame` if there is one. `reason` is for the log.

    If `is_failure`, the frame and the closing are delayed by connection.failed.authentication.delay.ms."""

    reason: str
    frame: Sequence[Buffer] | None = None
    is_failure: bool = True
    is_known: bool = False
    """True if an earlier response had the reason."""


SaslStep = HandOver | Respond | Refuse
HAND_OVER: Final = HandOver()


class _State(Enum):
    FIRST = auto()
    HANDSHAKE = auto()
    MESSAGES = auto()
    OTHER_MECHANISM = auto()
    """A client that authenticates anew has asked for another mechanism: its first message is refused."""
    COMPLETE = auto()
    FAILED = auto()


class SaslConversation:
    """The conversation of one connection. `now_ms` is a monotonic time, `wall_ms` the time of day."""

    def __init__(self, config: SaslServerConfig, rng: Rng) -> None:
        self.raw_messages = False
        """True if the next frames have no headers (SaslHandshake v0)."""
        self._config = config
        self._rng = rng
        self._state = _State.FIRST
        self._server: SaslServer | None = None
        self._mechanism = ""
        self._other_mechanism = ""
        self._user: str | None = None
        """The user of the session that a client extends by authenticating anew."""
        self._expires_at_ms: float | None = None
        self._reauthenticated_at_ms: float | None = None

    @property
    def complete(self) -> bool:
        return self._state is _State.COMPLETE

    def on_request(self, request: ReceivedRequest, now_ms: float, wall_ms: int) -> SaslStep:
        """What to do with the next request of the connection."""
        key = request.header.api_key
        match self._state:
            case _State.COMPLETE:
                if key == ApiKey.SASL_HANDSHAKE and self._may_reauthenticate(now_ms):
                    self._reauthenticated_at_ms = now_ms
                    return self._handshake(request)
                if self._expires_at_ms is not None and now_ms > self._expires_at_ms:
                    return Refuse("the session has expired, and the client did not authenticate anew", is_failure=False)
                return HAND_OVER
            case _State.FIRST if key == ApiKey.API_VERSIONS:
                return self._versions(request)
            case _State.FIRST | _State.HANDSHAKE:
                if key != ApiKey.SASL_HANDSHAKE:
                    return self._fail(f"a request of type {_name(key)} came before authentication")
                return self._handshake(request)
            case _State.MESSAGES | _State.OTHER_MECHANISM:
                return self._message(request, now_ms, wall_ms)
            case _State.FAILED:
                return Refuse("the client did not authenticate", is_failure=False)

    # ---- inside

    def _may_reauthenticate(self, now_ms: float) -> bool:
        if self._expires_at_ms is None:
            return False
        last = self._reauthenticated_at_ms
        return last is None or now_ms - last >= REAUTHENTICATION_INTERVAL_MS

    def _versions(self, request: ReceivedRequest) -> SaslStep:
        """The handler answers. After an answer without an error, only SaslHandshake is legal."""
        api = APIS[ApiKey.API_VERSIONS]
        version = request.version
        if api.min_version <= version <= api.max_version:
            try:
                message = request.decode()
            except WireError as error:
                return self._fail(f"ApiVersions v{version} cannot be decoded: {error}")
            assert isinstance(message, ApiVersionsRequest)
            if is_valid_software(message, version):
                self._state = _State.HANDSHAKE
        return HAND_OVER

    def _handshake(self, request: ReceivedRequest) -> SaslStep:
        again = self._state is _State.COMPLETE
        version = request.version
        if version not in (0, 1):
            return self._fail(f"SaslHandshake v{version} is not supported; versions 0 and 1 are")
        try:
            message = request.decode()
        except WireError as error:
            return self._fail(f"SaslHandshake v{version} cannot be decoded: {error}")
        assert isinstance(message, SaslHandshakeRequest)
        mechanism, enabled = message.mechanism, self._config.enabled_mechanisms
        if mechanism not in enabled:
            response = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=list(enabled))
            return self._fail(f"the SASL mechanism {mechanism[:64]!r} is not enabled", request.answer(response))
        if again and mechanism != self._mechanism:
            self._state = _State.OTHER_MECHANISM
            self._other_mechanism = mechanism
        else:
            nonce = self._rng.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
            self._server = sasl_server(mechanism, self._config.credentials, nonce)
            self._mechanism = mechanism
            self._state = _State.MESSAGES
        self.raw_messages = version == 0
        return Respond(request.answer(SaslHandshakeResponse(mechanisms=list(enabled))))

    def _message(self, request: ReceivedRequest, now_ms: float, wall_ms: int) -> SaslStep:
        if self.raw_messages:
            return self._evaluate(request, bytes(request.body), now_ms, wall_ms)
        key, version = request.header.api_key, request.version
        if key != ApiKey.SASL_AUTHENTICATE:
            return self._fail(f"a request of type {_name(key)} came during authentication", _illegal_state(request))
        api = APIS[ApiKey.SASL_AUTHENTICATE]
        if not api.min_version <= version <= api.max_version:
            return self._fail(f"SaslAuthenticate v{version} is not supported")
        try:
            message = request.decode()
        except WireError as error:
            return self._fail(f"SaslAuthenticate v{version} cannot be decoded: {error}")
        assert isinstance(message, SaslAuthenticateRequest)
        return self._evaluate(request, bytes(message.auth_bytes), now_ms, wall_ms)

    def _evaluate(self, request: ReceivedRequest, message: bytes, now_ms: float, wall_ms: int) -> SaslStep:
        try:
            if self._state is _State.OTHER_MECHANISM:
                raise _refused(
                    f"SASL mechanism '{self._other_mechanism}' requested by client is not supported for"
                    f" re-authentication of mechanism '{self._mechanism}'"
                )
            assert self._server is not None, "SaslHandshake chooses the mechanism"
            answer = self._server.evaluate(message, wall_ms)
            identity = self._server.identity
            if identity is not None and self._user is not None and identity.user != self._user:
                raise _refused(
                    f"Cannot change principals during re-authentication from User.{self._user}: User.{identity.user}"
                )
        except AuthenticationFailedError as error:
            is_known = self._server is not None and self._server.refusal is not None
            return self._fail(str(error), self._failure(request, error), is_known=is_known)
        lifetime_ms, refusal = 0, self._server.refusal
        if identity is not None:
            lifetime_ms = self._complete(identity, now_ms, wall_ms)
        if request.header.api_key == ApiKey.SASL_AUTHENTICATE:
            response = SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
            return Respond(request.answer(response), identity, refusal)
        return Respond((len(answer).to_bytes(4, "big") + answer,), identity, refusal)

    def _complete(self, identity: SaslIdentity, now_ms: float, wall_ms: int) -> int:
        """Begin the session of the user. Returns its lifetime in milliseconds; 0 if it has no end."""
        self._state = _State.COMPLETE
        self._server = None
        self._user = identity.user
        self.raw_messages = False
        limits = []
        if identity.expires_at_ms is not None:
            limits.append(max(identity.expires_at_ms - wall_ms, 0))
        max_reauth_ms = self._config.connections_max_reauth_ms.get(self._mechanism, 0)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        self._expires_at_ms = now_ms + min(limits) if limits else None
        return min(limits, default=0)

    def _failure(self, request: ReceivedRequest, error: AuthenticationFailedError) -> Sequence[Buffer] | None:
        """The response to wrong credentials; None in SaslHandshake v0, which has no error codes."""
        if request.header.api_key != ApiKey.SASL_AUTHENTICATE:
            return None
        again = "re-authentication" if self._user is not None else "authentication"
        text = error.answer or (
            f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        response = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
        return request.answer(response)

    def _fail(self, reason: str, frame: Sequence[Buffer] | None = None, *, is_known: bool = False) -> Refuse:
        self._state = _State.FAILED
        self._server = None
        return Refuse(reason, frame, is_known=is_known)


def principal_of(identity: SaslIdentity) -> KafkaPrincipal:
    """The principal of a user that has authenticated."""
    return KafkaPrincipal("User", identity.user)


def _refused(text: str) -> AuthenticationFailedError:
    return AuthenticationFailedError(text, answer=text)


def _illegal_state(request: ReceivedRequest) -> Sequence[Buffer] | None:
    """The answer ILLEGAL_SASL_STATE in the response of the request's API; None if the API's response has no error code
    of its own, or the version is unknown. The body is not decoded."""
    api = APIS[ApiKey(request.header.api_key)]
    if not api.min_version <= request.version <= api.max_version:
        return None
    response = api.response()
    if not hasattr(response, "error_code"):
        return None
    response.error_code = ErrorCode.ILLEGAL_SASL_STATE
    return request.answer(response)


def _name(key: int) -> str:
    try:
        return ApiKey(key).name
    except ValueError:
        return str(key)
