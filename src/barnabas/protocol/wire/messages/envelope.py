"""Table: Envelope (key 58).

Forwards a client's request to the controller together with the client's identity (KIP-590).
"""

from __future__ import annotations

from barnabas.protocol.wire.schema import Request, Response, binary, int16


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    request_data: bytes = binary()
    request_principal: bytes | None = binary(null="0+")
    client_host_address: bytes = binary()


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = binary(null="0+", default=None)
    error_code: int = int16()
