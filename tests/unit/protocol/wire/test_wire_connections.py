"""Frames, and the two ends of a connection exchanging bytes without a socket."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.headers import RequestHeader, read_request_header
from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.server_conn import ReceivedRequest, ServerConnection

LIMIT = 100_000


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(st.lists(st.binary(min_size=1, max_size=12_000), max_size=6), st.data())
def test_requests_do_not_depend_on_how_the_stream_is_split(bodies: list[bytes], data: st.DataObject) -> None:
    head = struct.pack(">hhih", ApiKey.METADATA, 1, 7, 2) + b"me"
    stream = b"".join(frame(head + body) for body in bodies)
    server = ServerConnection(LIMIT)
    found, pos = [], 0
    while pos < len(stream):
        size = data.draw(st.sampled_from([1, 3, 5, 4096, 9000, len(stream)]))
        found += server.feed(stream[pos : pos + size])
        pos += size
    assert [bytes(request.body) for request in found] == bodies
    assert not server.in_frame


def test_a_mutable_buffer_may_be_reused_after_feed() -> None:
    buffer = bytearray(frame(struct.pack(">hhih", ApiKey.METADATA, 1, 7, 2) + b"me" + b"one") + b"\0\0")
    server = ServerConnection(LIMIT)
    (first,) = server.feed(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert bytes(first.body) == b"one"
    assert server.in_frame


@pytest.mark.parametrize(
    ("start", "complaint"),
    [
        ("00000000", "a frame of 0 bytes: a length must be positive"),
        ("80000000", "a frame of -2147483648 bytes"),
        ("ffffffff", "a frame of -1 bytes"),
        ("000186a1", "a frame of 100001 bytes is over the limit of 100000"),
        ("16030100", "these bytes begin a TLS handshake"),
        ("47455420", "'GET '.*not the Kafka protocol"),
        ("504f5354", "'POST'.*not the Kafka protocol"),
    ],
)
def test_invalid_lengths_are_rejected_before_bytes_are_stored(start: str, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        ServerConnection(LIMIT).feed(bytes.fromhex(start))


def test_a_large_request_is_a_view_and_its_header_is_decoded() -> None:
    """Whether the client id is a name, null or not ASCII."""
    for client_id in ("me", None, "\u00fc" * 3_000):
        client, server = ClientConnection(client_id), ServerConnection(1 << 20)
        records = bytes(300_000)
        data = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(name="t", partition_data=[data])
        _, parts = client.send(ProduceRequest(acks=1, topic_data=[topic]), 9)
        (request,) = serve(server, b"".join(parts))
        assert type(request.frame) is memoryview
        assert request.header.client_id == client_id
        assert request.decode() == ProduceRequest(acks=1, topic_data=[topic])


def serve(connection: ServerConnection, data: bytes) -> list[ReceivedRequest]:
    return connection.feed(data)


def test_requests_and_responses_pass_through_both_ends() -> None:
    client, server = ClientConnection("me"), ServerConnection(LIMIT)
    correlation_id, parts = client.send(MetadataRequest(topics=None), 12)
    (request,) = serve(server, b"".join(parts))
    assert request.header == RequestHeader(api_key=3, api_version=12, correlation_id=correlation_id, client_id="me")
    assert request.decode() == MetadataRequest(topics=None)
    assert bytes(request.body) == b"\x00\x01\x00\x00"
    out = server.respond(request, request.answer(MetadataResponse(cluster_id="c")))
    assert client.feed(b"".join(out)) == [(correlation_id, MetadataResponse(cluster_id="c"))]
    assert client.in_flight == 0
    assert server.unanswered == 0


def test_responses_are_sent_in_request_order() -> None:
    client, server = ClientConnection(None), ServerConnection(LIMIT)
    sent = [client.send(HeartbeatRequest(group_id=f"g{i}"), 4) for i in range(4)]
    requests = serve(server, b"".join(b"".join(parts) for _, parts in sent))
    answers = [request.answer(HeartbeatResponse(throttle_time_ms=i)) for i, request in enumerate(requests)]
    assert server.respond(requests[2], answers[2]) == []
    assert server.respond(requests[1], answers[1]) == []
    out = server.respond(requests[0], answers[0])
    assert out == [*answers[0], *answers[1], *answers[2]]
    assert server.unanswered == 1
    received = client.feed(b"".join(out + server.respond(requests[3], answers[3])))
    assert [(i, response.throttle_time_ms) for i, response in received] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_request_without_response_does_not_delay_later_responses() -> None:
    client, server = ClientConnection(None), ServerConnection(LIMIT)
    _, silent = client.send(ProduceRequest(acks=0), 9, expect_response=False)
    correlation_id, parts = client.send(HeartbeatRequest(), 0)
    first, second = serve(server, b"".join(silent) + b"".join(parts))
    answer = second.answer(HeartbeatResponse())
    assert server.respond(second, answer) == []
    assert server.respond(first, None) == answer
    assert client.feed(b"".join(answer)) == [(correlation_id, HeartbeatResponse())]


def test_an_unknown_api_versions_version_is_answered_in_version_0() -> None:
    """KIP-511: the header stays readable, and the answer has the plainest body there is."""
    client, server = ClientConnection(None), ServerConnection(LIMIT)
    correlation_id, parts = client.send(ApiVersionsRequest(), 4)
    wire = bytearray(b"".join(parts))
    wire[6:8] = struct.pack(">h", 99)
    (request,) = serve(server, bytes(wire))
    assert request.version == 99
    with pytest.raises(WireError, match="has no version 99"):
        request.decode()
    answer = request.answer(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0)
    assert b"".join(answer).hex() == "0000000a" + "00000000" + "0023" + "00000000"
    assert client.feed(b"".join(answer)) == [(correlation_id, ApiVersionsResponse(error_code=35))]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b"\0", "too short for a header"),
        (struct.pack(">hhi", 4, 0, 1), "there is no API with key 4"),
        (struct.pack(">hhi", -7, 0, 1), "there is no API with key -7"),
        (struct.pack(">hhih", 3, 1, 1, 500), "RequestHeader v1, client_id"),
        (struct.pack(">hhih", 3, 9, 1, -1), "RequestHeader v2"),
    ],
)
def test_bad_headers(body: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        ServerConnection(LIMIT).feed(frame(body))


def test_the_client_id_keeps_its_old_length_in_flexible_headers() -> None:
    raw = struct.pack(">hhih", 3, 9, 7, 2) + b"me" + b"\0" + b"body"
    header, body_offset = read_request_header(raw)
    assert header == RequestHeader(api_key=ApiKey.METADATA, api_version=9, correlation_id=7, client_id="me")
    assert raw[body_offset:] == b"body"


def test_client_rejects_unexpected_and_reordered_responses() -> None:
    with pytest.raises(WireError, match="every request is answered"):
        ClientConnection(None).feed(frame(b"\0\0\0\0"))
    client = ClientConnection(None)
    client.send(HeartbeatRequest(), 0)
    with pytest.raises(WireError, match="response to request 9 arrived, but request 0 was next"):
        client.feed(frame(b"\0\0\0\x09\0\0"))


def test_the_limit_can_be_raised_after_authentication() -> None:
    server = ServerConnection(10)
    with pytest.raises(WireError, match="over the limit of 10"):
        server.feed(struct.pack(">i", 11))
    server = ServerConnection(10)
    server.max_request_bytes = LIMIT
    assert server.feed(struct.pack(">i", 11)) == []
    assert server.in_frame
