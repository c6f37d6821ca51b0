"""Whatever arrives, decoding ends in a message or in WireError, soon, and in memory proportional to the input."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.compile_decoder import REQUEST_ELEMENTS_MAX, STRUCTS_ALWAYS_ALLOWED
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.headers import read_request_header
from barnabas.protocol.wire.messages.fetch import FetchRequest
from barnabas.protocol.wire.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from barnabas.protocol.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.wire.primitives import uvarint
from barnabas.protocol.wire.schema import Message, schema_of
from barnabas.protocol.wire.server_conn import ServerConnection
from tests.property.wire_values import all_messages, full, versions_of

MESSAGES = [pytest.param(cls, id=schema_of(cls).name) for cls in all_messages()]
HUGE = [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
]


def decode_or_refuse(cls: type[Message], version: int, data: bytes) -> Message | None:
    try:
        return decode(cls, version, data)
    except WireError:
        return None


@pytest.mark.parametrize("cls", MESSAGES)
def test_every_truncation_is_refused(cls: type[Message]) -> None:
    """A prefix of a message is never a message: nothing at the end of one is optional."""
    for version in {versions_of(cls)[0], versions_of(cls)[-1]}:
        data = encode(full(cls, version, 1), version)
        for length in range(len(data)):
            with pytest.raises(WireError, match=schema_of(cls).name):
                decode(cls, version, data[:length])
        with pytest.raises(WireError, match="follow"):
            decode(cls, version, data + b"\0")


@pytest.mark.parametrize("cls", MESSAGES)
def test_huge_and_negative_lengths_anywhere_cost_nothing(cls: type[Message]) -> None:
    version = versions_of(cls)[-1]
    data = encode(full(cls, version, 1), version)
    decode(cls, version, data)  # compiled now, so that compiling is not measured
    tracemalloc.start()
    try:
        for position in range(0, len(data), 1 + len(data) // 60):  # tracemalloc is slow in long functions
            for length in HUGE:
                decode_or_refuse(cls, version, data[:position] + length + data[position + len(length) :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000, f"{peak} bytes for inputs of {len(data)}"


@pytest.mark.parametrize("cls", MESSAGES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_mutations_end_in_a_message_or_a_wire_error(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)))
    mutant = bytearray(encode(full(cls, version, data.draw(st.integers(0, 2))), version))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, max(0, len(mutant) - 1)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"])):
            case "flip" if mutant:
                mutant[position] ^= data.draw(st.integers(1, 255))
            case "cut":
                del mutant[position : position + data.draw(st.integers(1, 4))]
            case "insert":
                mutant[position:position] = data.draw(st.sampled_from(HUGE) | st.binary(max_size=4))
            case "repeat":
                mutant[position:position] = mutant[position : position + 8] * 3
    message = decode_or_refuse(cls, version, bytes(mutant))
    if message is not None:
        assert decode(cls, version, encode(message, version)) == message


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_as_a_request(garbage: bytes) -> None:
    connection = ServerConnection(100)
    try:
        for request in connection.feed(garbage):
            request.decode()
    except WireError:
        pass
    try:
        header, _ = read_request_header(garbage)
        assert header.correlation_id is not None
    except WireError:
        pass


def test_swarms_of_tiny_structs_are_limited_by_the_size_of_the_input() -> None:
    """An empty topic is 3 bytes and a 100-byte object; a message made of them is refused, a plausible one is not."""
    topics = 200_000
    swarm = struct.pack(">iiiibii", 0, 0, 0, 0, 0, 0, 0) + b"\xc1\x9a\x0c" + b"\x01\x01\x00" * topics + b"\x01\x01\x00"
    with pytest.raises(WireError, match="at most 100000 elements"):
        decode(FetchRequest, 12, swarm)
    tracemalloc.start()
    try:
        decode_or_refuse(FetchRequest, 12, swarm)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(swarm)


def test_large_honest_responses_are_not_limited() -> None:
    topics = [MetadataResponseTopic(name=f"topic-{i:06}", partitions=[]) for i in range(2 * STRUCTS_ALWAYS_ALLOWED)]
    response = decode(MetadataResponse, 1, encode(MetadataResponse(brokers=[], controller_id=1, topics=topics), 1))
    assert len(response.topics) == len(topics)


def _metadata(count: int) -> bytes:
    element = b"".join(struct.pack(">h", 7) + f"t{i:06}".encode() for i in range(count))
    return struct.pack(">i", count) + element


def _offset_fetch(count: int) -> bytes:
    """One topic with this many partitions, which are numbers."""
    return encode(
        OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0] * count)]), 1
    )


def _heartbeat_with_tags(count: int) -> bytes:
    """A heartbeat with unknown tagged fields of no bytes."""
    return encode(HeartbeatRequest(group_id="g", member_id="m"), 4)[:-1] + uvarint(count) + _tags(count)


def _tags(count: int) -> bytes:
    return b"".join(uvarint(tag) + b"\x00" for tag in range(count))


@pytest.mark.parametrize(
    ("cls", "version", "body", "others"),
    [
        (MetadataRequest, 1, _metadata, 0),
        (OffsetFetchRequest, 1, _offset_fetch, 1),
        (HeartbeatRequest, 4, _heartbeat_with_tags, 0),
    ],
)
def test_the_elements_of_a_request_are_limited(
    cls: type[Message], version: int, body: Callable[[int], bytes], others: int
) -> None:
    """Structs, numbers and tagged fields count alike; `others` is the number of the other elements."""
    decode(cls, version, body(REQUEST_ELEMENTS_MAX - others))
    with pytest.raises(WireError, match="at most 100000 elements"):
        decode(cls, version, body(REQUEST_ELEMENTS_MAX - others + 1))


def test_the_tagged_fields_of_a_request_header_are_limited() -> None:
    head = struct.pack(">hhih", 12, 4, 1, -1)
    read_request_header(head + uvarint(1000) + _tags(1000))
    with pytest.raises(WireError, match="at most 100000 elements"):
        read_request_header(head + uvarint(REQUEST_ELEMENTS_MAX + 1) + _tags(REQUEST_ELEMENTS_MAX + 1))
