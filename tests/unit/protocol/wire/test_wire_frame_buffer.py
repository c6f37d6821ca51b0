"""FrameBuffer: frames are complete however the stream is split, and memory with a view is not reused."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire import frame_buffer
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.frame_buffer import BLOCK_BYTES, FrameBuffer, ReceiveMemory, write_pieces
from barnabas.protocol.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

LIMIT = 1 << 30


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(frames: FrameBuffer, stream: bytes) -> list[Buffer]:
    """As a socket would: as much as fits the target, again and again."""
    return [found for count in write_pieces(stream, frames.target) for found in frames.received(count)]


@given(st.lists(st.integers(1, 3 * BLOCK_BYTES), max_size=6), st.data())
def test_frames_do_not_depend_on_how_the_stream_is_split(sizes: list[int], data: st.DataObject) -> None:
    bodies = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
    stream = b"".join(map(frame, bodies))
    frames = FrameBuffer(LIMIT, ReceiveMemory())
    found: list[Buffer] = []
    pos = 0
    while pos < len(stream):
        size = data.draw(st.sampled_from([1, 3, 5, 4096, BLOCK_BYTES, len(stream)]))
        found += feed(frames, stream[pos : pos + size])
        pos += size
    assert [bytes(each) for each in found] == bodies
    assert not frames.in_frame


def test_a_frame_may_fill_the_block_exactly() -> None:
    frames = FrameBuffer(LIMIT, ReceiveMemory())
    body = b"x" * (BLOCK_BYTES - 4)
    assert feed(frames, frame(body) + frame(b"y" * (BLOCK_BYTES - 3))) == [body, b"y" * (BLOCK_BYTES - 3)]


def test_small_frames_are_bytes_and_large_ones_views() -> None:
    frames = FrameBuffer(LIMIT, ReceiveMemory())
    small, large = feed(frames, frame(b"small") + frame(bytes(BLOCK_BYTES)))
    assert (type(small), type(large)) == (bytes, memoryview)


def test_a_buffer_without_views_is_reused() -> None:
    frames = FrameBuffer(LIMIT, ReceiveMemory())
    (first,) = feed(frames, frame(b"1" * 200_000))
    assert isinstance(first, memoryview)
    memory, piece = id(first.obj), first[10:20]
    del first
    (second,) = feed(frames, frame(b"2" * 200_000))  # somebody still holds a slice of the first
    assert isinstance(second, memoryview)
    assert piece == b"1" * 10
    assert id(second.obj) != memory
    del piece
    (third,) = feed(frames, frame(b"3" * 150_000))
    assert isinstance(third, memoryview)
    assert id(third.obj) == memory
    assert bytes(second) == b"2" * 200_000


def test_reused_memory_is_bounded_and_small_buffers_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_buffer, "REUSED_MAX", 2)
    memory = ReceiveMemory()
    frames = FrameBuffer(LIMIT, memory)
    held = [feed(frames, frame(bytes([n]) * 100_000))[0] for n in range(4)]
    assert [bytes(each[:1]) for each in held] == [b"\0", b"\1", b"\2", b"\3"]
    assert len(memory._reused) == 2
    held.clear()
    feed(frames, frame(bytes(500_000)))
    assert sorted(map(len, memory._reused)) == [131_072, 524_288]


def test_an_announced_length_allocates_no_memory_before_its_bytes_arrive() -> None:
    frames = FrameBuffer(LIMIT, ReceiveMemory(preallocated_bytes_max=100_000))
    body = bytes(range(250)) * 4_000
    stream = frame(body)
    assert feed(frames, stream[:70_000]) == []
    assert len(frames.target()) == 2 * (BLOCK_BYTES - 4) - 70_000 + 4  # more than 100,000
    (whole,) = feed(frames, stream[70_000:])
    assert whole == body


@given(st.lists(st.lists(st.integers(1, 2 * BLOCK_BYTES), max_size=4), min_size=2, max_size=3), st.data())
def test_connections_that_share_memory_do_not_mix_their_frames(sizes: list[list[int]], data: st.DataObject) -> None:
    bodies = [[bytes([16 * one + n + 1]) * size for n, size in enumerate(each)] for one, each in enumerate(sizes)]
    rest = [b"".join(map(frame, each)) for each in bodies]
    memory = ReceiveMemory(preallocated_bytes_max=0)
    connections = [FrameBuffer(LIMIT, memory) for _ in sizes]
    found: list[list[Buffer]] = [[] for _ in sizes]
    while any(rest):
        one = data.draw(st.sampled_from([index for index, stream in enumerate(rest) if stream]))
        size = data.draw(st.sampled_from([1, 3, 5, 4096, 20_000, BLOCK_BYTES, len(rest[one])]))
        found[one] += feed(connections[one], rest[one][:size])
        rest[one] = rest[one][size:]
    assert [[bytes(each) for each in one] for one in found] == bodies


def test_idle_connections_and_announced_lengths_take_no_memory() -> None:
    """A thousand connections that each announce a megabyte and send little of it have no buffer of their own, and one
    that has sent more has a buffer in proportion."""
    memory = ReceiveMemory(preallocated_bytes_max=0)
    connections = [FrameBuffer(LIMIT, memory) for _ in range(1000)]
    for each in connections:
        feed(each, frame(bytes(1_000_000))[:100])
    assert all(each._big is None and len(each._held) == 100 for each in connections)
    feed(connections[0], bytes(30_000))
    assert connections[0]._big is not None
    assert len(connections[0]._big) == 2 * (30_000 + 100 - 4)
    assert memory._reused == []


def test_the_buffer_of_a_lost_connection_is_reused() -> None:
    memory = ReceiveMemory()
    first, second = FrameBuffer(LIMIT, memory), FrameBuffer(LIMIT, memory)
    whole = frame(bytes(500_000))
    feed(first, whole[:300_000])
    first.drop()
    assert not first.in_frame
    (received,) = feed(second, whole)
    assert isinstance(received, memoryview)
    assert [id(each) for each in memory._reused] == [id(received.obj)]


def test_the_start_of_a_frame_moves_to_a_buffer_of_its_own_once_it_is_large() -> None:
    """Otherwise every piece of a frame that fits into the block would copy all pieces before it."""
    memory = ReceiveMemory()
    frames = FrameBuffer(LIMIT, memory)
    body = bytes(range(200)) * 300
    whole = frame(body)
    feed(frames, whole[: memory.held_max])
    assert frames._big is None
    feed(frames, whole[memory.held_max : memory.held_max + 1])
    assert frames._big is not None
    assert feed(frames, whole[memory.held_max + 1 :]) == [body]


@pytest.mark.parametrize(
    ("start", "complaint"),
    [
        ("00000000", "a frame of 0 bytes: a length must be positive"),
        ("ffffffff", "a frame of -1 bytes"),
        ("7fffffff", "over the limit of 2130706432"),
        ("15030300", "begin a TLS alert"),
        ("16030100", "these bytes begin a TLS handshake"),
        ("48545450", "'HTTP'.*not the Kafka protocol"),
    ],
)
def test_invalid_frame_lengths_are_rejected(start: str, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        feed(FrameBuffer(0x7F00_0000, ReceiveMemory()), bytes.fromhex(start))


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_records_of_a_fetch_response_are_views_of_the_frame(version: int) -> None:
    """Strings and records out of a view are those out of bytes, and the records are views of the same memory."""
    records = b"r" * 1000
    topic = FetchableTopicResponse(topic="t" if version < 13 else "", topic_id=UUID(int=0 if version < 13 else 7))
    topic.partitions.append(PartitionData(partition_index=3, records=records))
    body = encode(FetchResponse(throttle_time_ms=5, responses=[topic]), version)
    memory = bytearray(body)
    found = decode(FetchResponse, version, memoryview(memory))
    assert found == decode(FetchResponse, version, body)
    view = found.responses[0].partitions[0].records
    assert isinstance(view, memoryview)
    assert (view.obj is memory, bytes(view)) == (True, records)
    assert type(found.responses[0].topic) is str


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=60), st.integers(1, 7), st.integers(1, 90))
def test_frames_that_are_read_in_parts_are_the_same_ones(sent: list[bytes], frames_max: int, piece: int) -> None:
    frames = FrameBuffer(LIMIT, ReceiveMemory(), frames_max)
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in sent)
    found: list[bytes] = []
    for start in range(0, len(stream), piece):
        for count in write_pieces(stream[start : start + piece], frames.target):
            part = frames.received(count)
            assert len(part) <= frames_max
            found += map(bytes, part)
            if start % 3 == 0:  # otherwise more is received before the rest is read
                continue
            while frames.has_more:
                frames.resume()
                found += map(bytes, frames.received(0))
    while frames.has_more:
        frames.resume()
        found += map(bytes, frames.received(0))
    assert found == sent
