"""Codec: the headers of requests and responses."""

from __future__ import annotations

import struct
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.apis import API_KEYS, REQUEST_FLEXIBLE_FROM, request_header_version
from barnabas.protocol.wire.codec import decode_prefix
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.schema import Message, int16, int32, string

_API = struct.Struct(">hh")
_FIXED = struct.Struct(">hhih")
_HEADER_BYTES_MAX: Final = 64 * 1024
"""The number of bytes of a large request that are copied to decode its header. A client id has at most 32 KB, and Kafka
defines no tagged field for request headers."""
_RESPONSE_HEADERS = (
    struct.Struct(">i"),
    struct.Struct(">ix"),
)  # by header version; version 1 adds a count of tagged fields, which is 0
_new: Final = object.__new__  # for an instance whose fields are all assigned; skips `__init__` with its defaults


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


def read_request_header(frame: Buffer, offset: int = 0) -> tuple[RequestHeader, int]:
    """The header at `offset`, and the offset of the body. Raises WireError if the API key is unknown.

    Every request needs a header, so the common case is decoded here: a client id, and no tagged fields. All other
    headers are decoded, or rejected, by the generated decoder.
    """
    size = len(frame)
    if size - offset > _FIXED.size:
        key, version, correlation_id, length = _FIXED.unpack_from(frame, offset)
        start = offset + _FIXED.size
        end = start + length
        if length >= 0 and end < size and key in REQUEST_FLEXIBLE_FROM:
            flexible = version >= REQUEST_FLEXIBLE_FROM[key]
            if not flexible or not frame[end]:
                header = _new(RequestHeader)
                header.api_key = key
                header.api_version = version
                header.correlation_id = correlation_id
                try:
                    header.client_id = str(frame[start:end], "utf-8")
                except UnicodeDecodeError:
                    return _read_any_header(frame, offset)
                return header, end + flexible
    return _read_any_header(frame, offset)


def _read_any_header(frame: Buffer, offset: int) -> tuple[RequestHeader, int]:
    if len(frame) - offset < _API.size:
        raise WireError(f"a request of {len(frame) - offset} bytes is too short for a header")
    key, version = _API.unpack_from(frame, offset)
    try:
        header_version = request_header_version(API_KEYS[key], version)
    except KeyError:
        raise WireError(f"there is no API with key {key}; is the other side speaking the Kafka protocol?") from None
    head = frame if type(frame) is bytes else bytes(frame[: offset + _HEADER_BYTES_MAX])
    return decode_prefix(RequestHeader, header_version, head, offset)


def write_response_header(correlation_id: int, version: int) -> bytes:
    """The bytes of a ResponseHeader, as `encode` makes them, but faster: every response needs one."""
    return _RESPONSE_HEADERS[version].pack(correlation_id)
