"""Encoding and decoding, against bytes written out by hand from the protocol guide."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.protocol.wire.codec import decode, decode_prefix, encode, encode_frame, encode_parts, generated_source
from barnabas.protocol.wire.compile_encoder import BULK_BYTES_MIN
from barnabas.protocol.wire.errors import VersionError, WireError
from barnabas.protocol.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from barnabas.protocol.wire.messages.fetch import PartitionData as FetchedPartition
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.schema import Message, MessageStruct, array, float64, int32, nested, string, uint16, uint32

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")

VECTORS = [
    (ApiVersionsRequest(), 0, ""),
    (ApiVersionsRequest(client_software_name="ab", client_software_version="1"), 3, "03 6162 02 31 00"),
    (
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)], throttle_time_ms=1),
        1,
        "0000 00000001 0012 0000 0004 00000001",
    ),
    (
        ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)], zk_migration_ready=True),
        3,
        "0000 02 0012 0000 0004 00 00000000 01 03 01 01",
    ),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (MetadataRequest(topics=[]), 0, "00000000"),
    (MetadataRequest(topics=[MetadataRequestTopic(name="a")]), 4, "00000001 0001 61 01"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC, name=None)], allow_auto_topic_creation=False),
        12,
        "02 00112233445566778899aabbccddeeff 00 00 00 00 00",
    ),
    (
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=5,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=b"xyz")])],
        ),
        3,
        "ffff ffff 00000005 00000001 0001 74 00000001 00000002 00000003 78797a",
    ),
    (
        FetchRequest(
            cluster_id="c",
            max_wait_ms=1,
            topics=[FetchTopic(topic_id=TOPIC, partitions=[FetchPartition(partition=1, replica_directory_id=TOPIC)])],
        ),
        17,
        "00000001 00000000 7fffffff 00 00000000 ffffffff 02 00112233445566778899aabbccddeeff 02"
        "00000001 ffffffff 0000000000000000 ffffffff ffffffffffffffff 00000000"
        "01 00 10 00112233445566778899aabbccddeeff 00 01 01 01 00 02 02 63",
    ),
]


@pytest.mark.parametrize(("message", "version", "expected"), VECTORS)
def test_known_bytes(message: Message, version: int, expected: str) -> None:
    data = bytes.fromhex(expected.replace(" ", ""))
    assert encode(message, version).hex() == data.hex()
    assert decode(type(message), version, data) == message


class Oddities(Message, versions="0-1", flexible="1+"):
    """Wire types that client-facing messages hardly use."""

    port: int = uint16()
    count: int = uint32()
    ratio: float = float64()
    old_text: str = string(flexible="none")
    inner: ApiVersion | None = nested(ApiVersion, null="0+", default=None)
    numbers: list[int] | None = array(int32, null="0+")


def test_rare_types() -> None:
    value = Oddities(port=65535, count=2**32 - 1, ratio=0.5, old_text="x", inner=ApiVersion(api_key=1), numbers=None)
    plain = "ffff ffffffff 3fe0000000000000 0001 78 01 0001 0000 0000 {tags} {null}"
    assert encode(value, 0) == bytes.fromhex(plain.format(tags="", null="ffffffff"))
    assert encode(value, 1) == bytes.fromhex(plain.format(tags="00", null="00 00"))
    for version in (0, 1):
        assert decode(Oddities, version, encode(value, version)) == value
        assert decode(Oddities, version, encode(Oddities(), version)) == Oddities()


def test_records_are_decoded_as_views_and_encoded_as_separate_parts() -> None:
    large = bytes(BULK_BYTES_MIN)
    response = FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t",
                partitions=[
                    FetchedPartition(records=memoryview(large)),
                    FetchedPartition(records=[large, b"small", large]),
                    FetchedPartition(records=b""),
                    FetchedPartition(records=None),
                ],
            )
        ]
    )
    parts = encode_parts(response, 12)
    assert [part is large for part in parts].count(True) == 2
    assert sum(isinstance(part, memoryview) for part in parts) == 1
    assert b"".join(parts) == encode(response, 12)
    frame = encode(response, 12)
    read = decode(FetchResponse, 12, frame).responses[0].partitions
    first = read[0].records
    assert isinstance(first, memoryview)
    assert first.obj is frame
    assert read[1].records == large + b"small" + large
    assert read[2].records == b""
    assert read[3].records is None


def test_a_frame_starts_with_its_length() -> None:
    assert (
        b"".join(encode_frame(MetadataRequest(topics=None), 1, b"head")).hex()
        == "00000008" + b"head".hex() + "ffffffff"
    )
    large = bytes(BULK_BYTES_MIN)
    data = [TopicProduceData(partition_data=[PartitionProduceData(records=large)])]
    parts = encode_frame(ProduceRequest(topic_data=data), 9, b"head")
    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4
    assert parts[1] is large


def test_decode_prefix_returns_the_end_of_the_message() -> None:
    assert decode_prefix(MetadataRequest, 1, b"ab\xff\xff\xff\xffcd", 2) == (MetadataRequest(topics=None), 6)
    for other in (bytearray, memoryview):
        assert decode(MetadataRequest, 1, other(b"\xff\xff\xff\xff")) == MetadataRequest(topics=None)


def test_a_set_field_that_the_version_cannot_carry_is_an_error_unless_ignorable() -> None:
    with pytest.raises(VersionError, match=r"FetchRequest v15, replica_id: version 15 cannot carry it"):
        encode(FetchRequest(replica_id=1), 15)
    with pytest.raises(VersionError, match="allow_auto_topic_creation"):
        encode(MetadataRequest(allow_auto_topic_creation=False), 3)
    ignorable = MetadataRequest(topics=[MetadataRequestTopic(name="a", topic_id=TOPIC)])
    assert decode(MetadataRequest, 4, encode(ignorable, 4)) == MetadataRequest(topics=[MetadataRequestTopic(name="a")])


def test_versions_outside_the_range_raise_version_error() -> None:
    for version in (-1, 14, 1000):
        with pytest.raises(VersionError, match=r"MetadataRequest has no version -?\d+; it has 0-13"):
            encode(MetadataRequest(), version)
        with pytest.raises(VersionError, match="it has 0-13"):
            decode(MetadataRequest, version, b"")


BAD_VALUES = [
    (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 4, r"topics\[\]\.name"),
    (MetadataRequest(topics=None), 0, "topics"),
    (FetchRequest(max_wait_ms=2**31), 4, "max_wait_ms|min_bytes|topics"),
    (FetchRequest(rack_id="x" * 32768), 11, "rack_id: a string of 32768 bytes; at most 32767 fit"),
    (FetchRequest(rack_id="x" * 32768), 12, "rack_id: a string of 32768 bytes; at most 32767 fit"),
    (FetchRequest(rack_id="\ud800"), 12, "rack_id"),
    (FetchRequest(rack_id=5), 12, "rack_id"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("message", "version", "where"), BAD_VALUES)
def test_values_that_cannot_be_encoded_raise_an_error_with_the_field(
    message: MessageStruct, version: int, where: str
) -> None:
    with pytest.raises(WireError, match=where):
        encode(message, version)


BAD_BYTES = [
    ("a count far above what is left", 1, "7fffffff 0000", r"topics: an array of 2147483647 elements, but only 2"),
    ("a negative count", 1, "fffffffe", r"topics: the length -2 is negative"),
    ("null where it is not allowed", 0, "ffffffff", r"topics: null is not allowed in version 0"),
    ("a null name", 4, "00000001 ffff 01", r"topics\[0\]\.name: null is not allowed"),
    ("a negative string", 4, "00000002 0001 61 8000 01", r"topics\[1\]\.name: the length -32768 is negative"),
    ("a string longer than the rest", 4, "00000001 0100 61", r"topics\[0\]\.name: a length of 256 bytes, but 1 are"),
    ("not UTF-8", 4, "00000001 0001 ff 01", r"topics\[0\]\.name: the string is not valid UTF-8"),
    ("an end in the middle", 12, "02 0011", "topics: an array of 1 elements, but only 2 bytes"),
    ("trailing bytes", 4, "00000000 01 00", "ends at byte 5, but 1 bytes follow"),
    ("a varint of six bytes", 9, "ffffffffff01", "topics: a varint is longer than 5 bytes"),
    ("a varint above 32 bits", 9, "8080808010", "topics: a varint is longer than 5 bytes or larger than 32 bits"),
    ("tags out of order", 9, "01 01 00 00 02 05 00 03 00", "tagged field 3 comes after 5"),
    ("a tag twice", 9, "01 01 00 00 02 05 00 05 00", "tagged field 5 comes after 5"),
    ("a tag longer than the rest", 9, "01 01 00 00 01 05 20 00", "tagged field 5 claims 32 bytes of the 1 left"),
    ("a string above Kafka's limit", 9, f"02 818002 {'61' * 32768}", r"a string of 32768 bytes; at most 32767"),
]


@pytest.mark.parametrize(
    ("version", "data", "complaint"), [row[1:] for row in BAD_BYTES], ids=[r[0] for r in BAD_BYTES]
)
def test_malformed_bytes_raise_an_error_with_the_field(version: int, data: str, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        decode(MetadataRequest, version, bytes.fromhex(data.replace(" ", "")))


def test_unknown_tagged_fields_are_skipped() -> None:
    assert decode(MetadataRequest, 9, bytes.fromhex("010100000205016107020000")) == MetadataRequest(topics=[])


def test_known_tagged_fields_must_have_their_announced_size() -> None:
    head = "0000 01 00000000"
    with pytest.raises(WireError, match="zk_migration_ready: the tagged field is longer or shorter than it says"):
        decode(ApiVersionsResponse, 3, bytes.fromhex(f"{head} 01 03 02 01 00"))
    with pytest.raises(WireError, match=r"claims 9 bytes of the 1 left"):
        decode(ApiVersionsResponse, 3, bytes.fromhex(f"{head} 01 03 09 01"))


def test_generated_source_returns_both_functions() -> None:
    source = generated_source(MetadataRequest, 12)
    assert "def encode(o, parts, bulk):" in source
    assert "def decode(buf, pos, end):" in source
