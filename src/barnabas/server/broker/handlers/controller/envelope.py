"""Shell: Envelope (key 58), version 0.

- 0: forwards a client's request from a broker to the controller (KIP-590)

The envelope contains the client's request with its header, the client's principal and the client's address. The
response contains the response to the client, with its header. NOT_CONTROLLER is the error of the envelope itself; the
broker then forwards the request to another controller.

With an authorizer the broker needs CLUSTER_ACTION, and the client behind it the rights of its own request.
"""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.principals import ANONYMOUS, KafkaPrincipal
from barnabas.protocol.transport.ports import Peer
from barnabas.protocol.wire.apis import APIS, ApiKey, response_header_version
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.headers import read_request_header, write_response_header
from barnabas.protocol.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.wire.messages.principal import DefaultPrincipalData
from barnabas.server.broker.handlers.controller.port import ControllerPort
from barnabas.server.broker.request_context import RequestContext


async def handle(port: ControllerPort, ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    data = bytes(request.request_data)
    try:
        header, body = read_request_header(data)
        key = ApiKey(header.api_key)
        message = decode(APIS[key].request, header.api_version, data, body)
    except WireError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    except ValueError:
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        client = _client(ctx, request)
        inner = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            client,
            ctx.now_ms,
            ctx.received,
        )
        response = await port.forwarded.answer(inner, message)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    head = write_response_header(header.correlation_id, response_header_version(key, header.api_version))
    return EnvelopeResponse(response_data=head + encode(response, header.api_version))


def _client(ctx: RequestContext, request: EnvelopeRequest) -> Peer:
    """The client behind the forwarding broker. Its port is unknown; the connection is the broker's."""
    import ipaddress  # imported here: only a controller that receives envelopes needs the module

    broker = ctx.client
    try:
        host = str(ipaddress.ip_address(bytes(request.client_host_address)))
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The envelope does not contain a valid client address.") from None
    principal, token_authenticated = ANONYMOUS, False
    if request.request_principal is not None:
        principal, token_authenticated = read_principal(bytes(request.request_principal))
    return replace(broker, host=host, port=0, principal=principal, token_authenticated=token_authenticated)


def read_principal(data: bytes) -> tuple[KafkaPrincipal, bool]:
    """A principal, and whether the client has logged in with a delegation token: what Kafka's
    DefaultKafkaPrincipalBuilder encodes, two bytes of version, then DefaultPrincipalData."""
    version = int.from_bytes(data[:2], "big")
    try:
        found = decode(DefaultPrincipalData, version, data, 2)
    except (WireError, ValueError):
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from None
    return KafkaPrincipal(found.type, found.name), found.token_authenticated


def write_principal(principal: KafkaPrincipal, *, token_authenticated: bool = False) -> bytes:
    """Encode a principal for `read_principal`."""
    data = DefaultPrincipalData(type=principal.kind, name=principal.name, token_authenticated=token_authenticated)
    return b"\0\0" + encode(data, 0)
