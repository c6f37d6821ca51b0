"""Shell: the requests that precede all others on an outgoing connection: ApiVersions, then SASL.

The authorities are KIP-35 and KIP-511 for ApiVersions, and KIP-43, KIP-84 and KIP-152 for SASL.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.rng import Rng
from barnabas.protocol.security.config import SaslConfig
from barnabas.protocol.transport.blocking_calls import run_beside
from barnabas.protocol.transport.connection_config import ConnectionConfig
from barnabas.protocol.transport.outgoing_connection import OutgoingConnection
from barnabas.protocol.transport.peer_versions import PeerVersions
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from barnabas.protocol.security.oauth.tokens import BearerToken


async def negotiate_versions(connection: OutgoingConnection, config: ConnectionConfig, deadline: float) -> PeerVersions:
    """The API versions that the peer serves. Raises KafkaError if the peer refuses to name them.

    Begins with the newest version of ApiVersions. A peer that does not know that version answers in version 0, with
    the versions that it knows (KIP-511).
    """
    api = APIS[ApiKey.API_VERSIONS]
    newest = api.max_version - (1 if api.latest_version_unstable else 0)
    version = min(newest, config.api_versions_version_max)
    while True:
        request = ApiVersionsRequest(
            client_software_name=config.client_software_name, client_software_version=config.client_software_version
        )
        if version < 3:
            request = ApiVersionsRequest()
        response: ApiVersionsResponse = await connection.send(request, version, deadline)
        code = error_code(response.error_code)
        if code is ErrorCode.NONE:
            return PeerVersions.from_response(response)
        if code is not ErrorCode.UNSUPPORTED_VERSION or version == 0:
            raise KafkaError(code, f"{connection.peer} refused ApiVersions: {code.message}")
        theirs = PeerVersions.from_response(response).ranges.get(int(ApiKey.API_VERSIONS))
        version = min(theirs[1], version - 1) if theirs else 0


class AuthenticatingConnection(Protocol):
    """A connection, as `authenticate` needs it."""

    peer: str
    host: str
    """The host of the peer, as this end knows it."""

    def choose_version(self, key: ApiKey) -> int: ...

    def send(self, message: Any, version: int, deadline: float | None = None) -> asyncio.Future[Any]: ...


class TokenSource(Protocol):
    """Where the tokens of OAUTHBEARER come from, as `authenticate` needs it."""

    async def token(self) -> BearerToken: ...

    def discard(self, token: BearerToken) -> None:
        """A broker has refused the token, so that it must not be used again."""
        ...


async def authenticate(
    connection: AuthenticatingConnection,
    config: SaslConfig,
    deadline: float,
    rng: Rng,
    tokens: TokenSource | None = None,
) -> int:
    """SaslHandshake, then SaslAuthenticate until the mechanism is complete. Returns the lifetime of the session in
    milliseconds, 0 if it has no end. Raises KafkaError if the peer refuses, or there is no token."""
    # Imported here: hashlib and hmac load OpenSSL, which a connection without SASL does not need.
    from barnabas.protocol.security.sasl_client import NONCE_BYTES, sasl_client
    from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

    mechanism = config.sasl_mechanism
    token = None if tokens is None else await tokens.token()
    if config.kerberos is None:
        client = sasl_client(config, rng.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big"), token)
        message = client.first()
    else:
        from barnabas.protocol.transport.kerberos import begin_exchange

        client, message = await run_beside(begin_exchange, config.kerberos, connection.host)
    handshake: SaslHandshakeResponse = await connection.send(
        SaslHandshakeRequest(mechanism=mechanism), connection.choose_version(ApiKey.SASL_HANDSHAKE), deadline
    )
    if handshake.error_code:
        raise KafkaError(
            error_code(handshake.error_code),
            f"{connection.peer} does not offer the SASL mechanism {mechanism}; it offers"
            f" {', '.join(handshake.mechanisms) or 'none'}.",
        )
    version = connection.choose_version(ApiKey.SASL_AUTHENTICATE)
    while True:
        response: SaslAuthenticateResponse = await connection.send(
            SaslAuthenticateRequest(auth_bytes=message), version, deadline
        )
        if response.error_code:
            code = error_code(response.error_code)
            text = response.error_message or code.message
            if tokens is not None and token is not None:
                tokens.discard(token)
                raise KafkaError(code, f"{connection.peer} refused {describe_refused_token(token, text)}")
            raise KafkaError(
                code, f"{connection.peer} refused the credentials of {config.username!r} ({mechanism}): {text}"
            )
        challenge = bytes(response.auth_bytes)
        if not client.done:
            # A long step, or one that waits for tickets, must not hold the event loop.
            in_thread = client.is_long(challenge)
            message = await run_beside(client.next, challenge) if in_thread else client.next(challenge)
            continue
        last_word = client.verify(challenge)
        if last_word is None:
            return response.session_lifetime_ms
        message = last_word


def describe_refused_token(token: BearerToken, text: str) -> str:
    """What the error of a server means for the user of this client."""
    from barnabas.protocol.security.oauth.messages import INSUFFICIENT_SCOPE, decode_refusal

    whose = f"the token of {token.principal!r} (OAUTHBEARER)"
    if not text.startswith("{"):
        return f"{whose}: {text}"
    refusal = decode_refusal(text.encode())
    if refusal.status == INSUFFICIENT_SCOPE:
        return f"{whose}: it needs the scope {refusal.scope!r}. Request it with sasl.oauthbearer.scope."
    return (
        f"{whose}: {refusal.status}. Its issuer or audience may not be those that the broker expects, or the broker"
        " does not have the key that signed it; the log of the broker has the reason."
    )
