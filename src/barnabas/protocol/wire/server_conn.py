"""Machine: the protocol of the server's end of a connection, without I/O: bytes to requests, responses to bytes.

    connection = ServerConnection(max_request_bytes)
    for request in connection.feed(data):
        message = request.decode()
        ...
        transport.writelines(connection.respond(request, request.answer(response)))

Requests may be answered in any order; the responses are sent in the order of the requests, as Kafka clients expect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.apis import API_KEYS, APIS, ApiKey, response_header_version
from barnabas.protocol.wire.codec import decode_prefix, encode_frame
from barnabas.protocol.wire.frame_buffer import FrameBuffer, ReceiveMemory, write_pieces
from barnabas.protocol.wire.headers import RequestHeader, read_request_header, write_response_header
from barnabas.protocol.wire.schema import Message

REQUESTS_AT_ONCE: Final = 32
"""The most requests that are read at once of what a client has sent."""


class ReceivedRequest:
    """A received request: the decoded header, and the body as bytes."""

    __slots__ = ("_answered", "_parts", "body_offset", "frame", "header")

    def __init__(self, header: RequestHeader, frame: Buffer, body_offset: int) -> None:
        self.header = header
        self.frame = frame
        self.body_offset = body_offset
        self._answered = False
        self._parts: Sequence[Buffer] | None = None

    @property
    def key(self) -> ApiKey:
        return API_KEYS[self.header.api_key]

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def body(self) -> memoryview:
        return memoryview(self.frame)[self.body_offset :]

    def decode(self) -> Message:
        """The decoded message. Its records are views of the frame. Raises VersionError or WireError.

        Bytes after the message are ignored, as in Kafka's brokers: librdkafka 2.16 appends three bytes to a Metadata
        request for all topics.
        """
        header = self.header
        request = APIS[API_KEYS[header.api_key]].request
        return decode_prefix(request, header.api_version, self.frame, self.body_offset)[0]

    def answer(self, response: Message, version: int | None = None) -> list[Buffer]:
        """The frame of a response, in pieces. `version` is the version of the response, by default the version of the
        request. They differ only if the version of an ApiVersions request is not supported (KIP-511).
        """
        header = self.header
        requested = header.api_version
        head = write_response_header(
            header.correlation_id, response_header_version(API_KEYS[header.api_key], requested)
        )
        return encode_frame(response, requested if version is None else version, head)

    def __repr__(self) -> str:
        return f"ReceivedRequest({self.header!r}, {len(self.frame) - self.body_offset} bytes)"


class ServerConnection:
    """Splits the stream into requests, and puts the responses into the order of the requests.

    Connections of one event loop may share their `memory`.
    """

    __slots__ = ("_unanswered", "frames")

    def __init__(self, max_request_bytes: int, memory: ReceiveMemory | None = None) -> None:
        self.frames = FrameBuffer(max_request_bytes, ReceiveMemory() if memory is None else memory, REQUESTS_AT_ONCE)
        """A transport with a socket receives into `frames.target()`, and then calls `received`."""
        self._unanswered: deque[ReceivedRequest] = deque()

    @property
    def unanswered(self) -> int:
        """The number of requests without a response."""
        return len(self._unanswered)

    @property
    def in_frame(self) -> bool:
        """True if part of a request has arrived."""
        return self.frames.in_frame

    @property
    def max_request_bytes(self) -> int:
        """The limit for a request frame. It may be changed at any time, for example once a client has authenticated."""
        return self.frames.max_bytes

    @max_request_bytes.setter
    def max_request_bytes(self, limit: int) -> None:
        self.frames.max_bytes = limit

    def received(self, count: int) -> list[ReceivedRequest]:
        """The first requests that are complete after `count` bytes were written to `frames.target()`; `read_on` returns
        further ones. After a WireError the connection must be closed."""
        requests = []
        for frame in self.frames.received(count):
            header, body_offset = read_request_header(frame)
            requests.append(ReceivedRequest(header, frame, body_offset))
        self._unanswered += requests
        return requests

    def read_on(self) -> list[ReceivedRequest]:
        """Further requests of the bytes that were received, while `frames.has_more`."""
        self.frames.resume()
        return self.received(0)

    def feed(self, data: Buffer) -> list[ReceivedRequest]:
        """The requests that `data` completes, for a caller that has bytes and no socket."""
        requests = []
        for count in write_pieces(data, self.frames.target):
            requests += self.received(count)
            while self.frames.has_more:
                requests += self.read_on()
        return requests

    def respond(self, request: ReceivedRequest, parts: Sequence[Buffer] | None) -> Sequence[Buffer]:
        """Pass the response to a request: a frame in pieces, or None if the request has no response (acks=0).

        Returns the buffers to send now: this response and the later ones that waited for it; empty while an earlier
        request is unanswered.
        """
        assert not request._answered, "a request is answered once"
        unanswered = self._unanswered
        if unanswered[0] is request and (len(unanswered) == 1 or not unanswered[1]._answered):  # nothing has waited
            request._answered = True
            unanswered.popleft()
            return () if parts is None else parts
        request._answered = True
        request._parts = parts
        out: list[Buffer] = []
        while unanswered and unanswered[0]._answered:
            first = unanswered.popleft()
            if first._parts is not None:
                out.extend(first._parts)
                first._parts = None
        return out


class MessageFrames(ServerConnection):
    """A `ServerConnection` whose client may send frames without headers, each with one message of a SASL mechanism."""

    __slots__ = ("raw_messages",)

    def __init__(self, max_request_bytes: int, memory: ReceiveMemory | None = None) -> None:
        super().__init__(max_request_bytes, memory)
        self.raw_messages = False
        """Whether frames are messages of SASL without a header: each becomes a request with `NO_HEADER`."""

    def received(self, count: int) -> list[ReceivedRequest]:
        """As `ServerConnection.received`."""
        if not self.raw_messages:
            return super().received(count)
        requests = [ReceivedRequest(NO_HEADER, frame, 0) for frame in self.frames.received(count)]
        self._unanswered.extend(requests)
        return requests


NO_HEADER = RequestHeader(api_key=-1)
"""The header of a frame that has none."""
