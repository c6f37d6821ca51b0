"""Machine: the protocol of the client's end of a connection, without I/O: requests to bytes, bytes to responses."""

from __future__ import annotations

import struct
from collections import deque

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.apis import API_KEYS, APIS, ApiKey, request_header_version, response_header_version
from barnabas.protocol.wire.codec import decode, decode_prefix, encode, encode_frame
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.frame_buffer import FrameBuffer, ReceiveMemory, write_pieces
from barnabas.protocol.wire.headers import RequestHeader, ResponseHeader
from barnabas.protocol.wire.schema import Request, Response

RESPONSE_BYTES_MAX = 0x7FFFFFFF
_FED_BLOCK_BYTES = 4 * 1024
_ERROR_CODE = struct.Struct(">h")
_HEADER_BYTES_MAX = 1024
"""The number of bytes that are copied to decode a response header. A header has at most five bytes, because Kafka
defines no tagged field for response headers.
"""


class SentRequest(Struct, frozen=True):
    """A request that is not answered yet."""

    correlation_id: int
    key: ApiKey
    version: int


class ClientConnection:
    """Assigns correlation ids to the requests of one connection, and decodes the responses, which come in order."""

    __slots__ = ("_client_id", "_frames", "_next_id", "_sent")

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._frames: FrameBuffer | None = None  # only for `feed`
        self._next_id = 0
        self._sent: deque[SentRequest] = deque()

    @property
    def in_flight(self) -> int:
        """The number of unanswered requests."""
        return len(self._sent)

    def send(self, message: Request, version: int, *, expect_response: bool = True) -> tuple[int, list[Buffer]]:
        """The correlation id and the frame of a request, in pieces. Raises VersionError or WireError.

        `expect_response=False` is for Produce with acks=0, which has no response.
        """
        key = API_KEYS[message.__schema__.key]
        correlation_id = self._next_id
        header = RequestHeader(
            api_key=key, api_version=version, correlation_id=correlation_id, client_id=self._client_id
        )
        parts = encode_frame(message, version, encode(header, request_header_version(key, version)))
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        if expect_response:
            self._sent.append(SentRequest(correlation_id, key, version))
        return correlation_id, parts

    def feed(self, data: Buffer) -> list[tuple[int, Response]]:
        """The responses that `data` completes, for a caller that has bytes and no socket. After a WireError the
        connection must be closed."""
        frames = self._frames
        if frames is None:
            frames = self._frames = FrameBuffer(RESPONSE_BYTES_MAX, ReceiveMemory(block_bytes=_FED_BLOCK_BYTES))
        return [self.read(frame) for count in write_pieces(data, frames.target) for frame in frames.received(count)]

    def read(self, frame: Buffer) -> tuple[int, Response]:
        """The response in a frame that the caller has received. Raises WireError.

        Records in the response are views of the frame.
        """
        if not self._sent:
            raise WireError(f"a response of {len(frame)} bytes arrived, but every request is answered")
        sent = self._sent.popleft()
        head = frame if type(frame) is bytes else bytes(memoryview(frame)[:_HEADER_BYTES_MAX])
        header, pos = decode_prefix(ResponseHeader, response_header_version(sent.key, sent.version), head)
        if header.correlation_id != sent.correlation_id:
            raise WireError(
                f"the response to request {header.correlation_id} arrived, but request {sent.correlation_id} was next"
            )
        return sent.correlation_id, decode(APIS[sent.key].response, self._body_version(sent, frame, pos), frame, pos)

    def _body_version(self, sent: SentRequest, frame: Buffer, pos: int) -> int:
        """The version of the body: 0 if the broker does not support the version of an ApiVersions request (KIP-511)."""
        if sent.key == ApiKey.API_VERSIONS and len(frame) >= pos + _ERROR_CODE.size:
            (error,) = _ERROR_CODE.unpack_from(frame, pos)
            if error == ErrorCode.UNSUPPORTED_VERSION:
                return 0
        return sent.version
