"""Codec: the headers of requests and responses."""

from __future__ import annotations

import struct

from barnabas.protocol.wire.apis import API_KEYS, request_header_version
from barnabas.protocol.wire.codec import decode_prefix
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.schema import Message, int16, int32, string

_API = struct.Struct(">hh")
_RESPONSE_HEADERS = (
    struct.Struct(">i"),
    struct.Struct(">ix"),
)  # by header version; version 1 adds a count of tagged fields, which is 0


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """The API, its version, and the correlation id that the response will carry.

    The length of the client id has two bytes even in version 2, which is flexible. A server can therefore read the
    header of an ApiVersions request whose version the server does not know.
    """

    api_key: int = int16()
    api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(null="1+", default=None, flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """The correlation id of the request."""

    correlation_id: int = int32()


def read_request_header(frame: bytes, offset: int = 0) -> tuple[RequestHeader, int]:
    """The header at `offset`, and the offset of the body. Raises WireError if the API key is unknown."""
    if len(frame) - offset < _API.size:
        raise WireError(f"a request of {len(frame) - offset} bytes is too short for a header")
    key, version = _API.unpack_from(frame, offset)
    try:
        header_version = request_header_version(API_KEYS[key], version)
    except KeyError:
        raise WireError(f"there is no API with key {key}; is the other side speaking the Kafka protocol?") from None
    return decode_prefix(RequestHeader, header_version, frame, offset)


def write_response_header(correlation_id: int, version: int) -> bytes:
    """The bytes of a ResponseHeader, as `encode` makes them, but faster: every response needs one."""
    return _RESPONSE_HEADERS[version].pack(correlation_id)
