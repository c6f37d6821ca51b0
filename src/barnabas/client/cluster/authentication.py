"""Shell: the SASL exchange at the start of a connection (KIP-43, KIP-84, KIP-152)."""

from __future__ import annotations

from barnabas.client.cluster.connection import Connection
from barnabas.client.cluster.sasl import SaslClient, sasl_client
from barnabas.client.options import SecurityOptions
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.rng import Rng
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def authenticate(connection: Connection, options: SecurityOptions, deadline: float, rng: Rng) -> None:
    """SaslHandshake, then SaslAuthenticate until the mechanism is satisfied. Raises KafkaError when refused."""
    mechanism = options.sasl_mechanism or "PLAIN"
    client: SaslClient = sasl_client(mechanism, options.username, options.password, rng)
    version = connection.versions.choose(ApiKey.SASL_HANDSHAKE, peer=connection.peer)
    handshake: SaslHandshakeResponse = await connection.send(
        SaslHandshakeRequest(mechanism=mechanism), version, deadline
    )
    if handshake.error_code:
        raise KafkaError(
            error_code(handshake.error_code),
            f"{connection.peer} does not offer the SASL mechanism {mechanism}; it offers"
            f" {', '.join(handshake.mechanisms) or 'none'}.",
        )
    version = connection.versions.choose(ApiKey.SASL_AUTHENTICATE, peer=connection.peer)
    message = client.first()
    while True:
        response: SaslAuthenticateResponse = await connection.send(
            SaslAuthenticateRequest(auth_bytes=message), version, deadline
        )
        if response.error_code:
            code = error_code(response.error_code)
            raise KafkaError(
                code,
                f"{connection.peer} refused the credentials of {options.username!r} ({mechanism}):"
                f" {response.error_message or ErrorCode(code).message}",
            )
        if client.done:
            client.verify(bytes(response.auth_bytes))
            return
        message = client.next(bytes(response.auth_bytes))
