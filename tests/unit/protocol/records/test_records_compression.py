"""The codecs: what others write is read, levels are taken, and no payload inflates beyond its cap."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest

from barnabas.core.inflation_total import UNCOUNTED_BYTES, InflationTotal
from barnabas.protocol.records.compression import CompressionType, compress, decompress
from barnabas.protocol.records.errors import CorruptBatchError, DecompressionLimitError

COMPRESSING = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
TEXT = b"".join(b'{"id": %d, "name": "record %d"}' % (i, i * 7919 % 1000) for i in range(5000))
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("data", [b"", b"a", b"abc" * 100_000, TEXT], ids=["empty", "one", "repetitive", "text"])
def test_round_trip_at_exactly_the_limit(codec: CompressionType, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert decompress(codec, memoryview(packed)) == data
    if data:
        with pytest.raises(DecompressionLimitError):
            decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("view", [bytearray, memoryview])
@pytest.mark.parametrize("codec", list(CompressionType))
def test_any_buffer_is_taken(codec: CompressionType, view: type) -> None:
    assert decompress(codec, view(compress(codec, view(TEXT)))) == TEXT


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (CompressionType.GZIP, 1),
        (CompressionType.GZIP, 9),
        (CompressionType.LZ4, 1),
        (CompressionType.LZ4, 17),
        (CompressionType.ZSTD, -5),
        (CompressionType.ZSTD, 19),
    ],
)
def test_levels(codec: CompressionType, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level)) == TEXT


def test_levels_matter() -> None:
    assert len(compress(CompressionType.GZIP, TEXT, 9)) < len(compress(CompressionType.GZIP, TEXT, 1))
    assert len(compress(CompressionType.ZSTD, TEXT, 19)) < len(compress(CompressionType.ZSTD, TEXT, -5))
    assert len(compress(CompressionType.LZ4, TEXT, 12)) < len(compress(CompressionType.LZ4, TEXT))


def test_raw_snappy_is_read_xerial_is_written() -> None:
    assert compress(CompressionType.SNAPPY, TEXT)[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_gzip_members_are_joined() -> None:
    assert decompress(CompressionType.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_gzip_members_are_each_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib copies what follows a member: with the whole rest as its input, many members would take quadratic time."""
    copied = 0
    plain = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._inflate = plain(wbits)

        def decompress(self, piece: bytes, limit: int) -> bytes:
            nonlocal copied
            found = self._inflate.decompress(piece, limit)
            copied += len(self._inflate.unused_data)
            return found

        @property
        def eof(self) -> bool:
            return self._inflate.eof

        @property
        def unused_data(self) -> bytes:
            return self._inflate.unused_data

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    members = [gzip.compress(b"%d " % index) for index in range(2000)]
    assert decompress(CompressionType.GZIP, b"".join(members)) == b"".join(b"%d " % index for index in range(2000))
    assert copied < len(members) * 1024
    big = gzip.compress(TEXT, 0)
    assert decompress(CompressionType.GZIP, big + big) == TEXT + TEXT


def test_zstd_frames_are_joined_and_skippable_ones_skipped() -> None:
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"xyz"
    frames = compress(CompressionType.ZSTD, b"one ") + skippable + compress(CompressionType.ZSTD, b"two")
    try:
        assert decompress(CompressionType.ZSTD, frames) == b"one two"
    except CorruptBatchError as error:  # the library may refuse skippable frames; it must do so cleanly
        assert "zstd" in str(error)


def test_written_lz4_blocks_are_independent_as_java_demands() -> None:
    assert compress(CompressionType.LZ4, TEXT)[4] & 0x20
    linked = bytes(cramjam.lz4.compress(TEXT * 3))
    assert not linked[4] & 0x20
    with pytest.raises(CorruptBatchError, match="linked"):
        decompress(CompressionType.LZ4, linked)


def _zstd_rle_bomb(total: int) -> bytes:
    """A frame of RLE blocks: four bytes for each 128 KiB."""
    block = 128 * 1024
    count = total // block
    blocks = [((block << 3) | (1 << 1) | (i == count - 1)).to_bytes(3, "little") + b"\x00" for i in range(count)]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(blocks)


BOMBS = {
    "gzip": (CompressionType.GZIP, lambda: compress(CompressionType.GZIP, bytes(256 * MIB), 1)),
    "snappy": (CompressionType.SNAPPY, lambda: compress(CompressionType.SNAPPY, bytes(64 * MIB))),
    "raw snappy": (CompressionType.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(64 * MIB)))),
    "lz4": (CompressionType.LZ4, lambda: compress(CompressionType.LZ4, bytes(256 * MIB))),
    "zstd": (CompressionType.ZSTD, lambda: compress(CompressionType.ZSTD, bytes(256 * MIB))),
    "zstd rle": (CompressionType.ZSTD, lambda: _zstd_rle_bomb(1024 * MIB)),
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_bombs_stop_at_the_cap(name: str) -> None:
    codec, make = BOMBS[name]
    bomb = make()
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimitError):
            decompress(codec, bomb, 4 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * MIB


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_refused_payload_leaves_nothing_in_the_exception(name: str) -> None:
    codec, make = BOMBS[name]
    bomb = make()[:-5] if name == "gzip" else make()
    kept: list[CorruptBatchError] = []
    tracemalloc.start()
    try:
        for _ in range(3):
            with pytest.raises(CorruptBatchError) as refusal:
                decompress(codec, bomb, 4 * MIB)
            kept.append(refusal.value)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < MIB
    assert [(error.__cause__, error.__context__) for error in kept] == [(None, None)] * 3


def test_threads_that_inflate_share_a_total() -> None:
    total = InflationTotal(100 * MIB)
    with ThreadPoolExecutor(2) as threads:
        with total.room(80 * MIB):
            with total.room(UNCOUNTED_BYTES):  # small ones do not wait
                pass
            waiting = threads.submit(_reserve, total, 30 * MIB)
            assert threads.submit(_reserve, total, 20 * MIB).result(60) == 100 * MIB
            assert not waiting.done()
        assert waiting.result(60) == 30 * MIB
        assert threads.submit(_reserve, total, 500 * MIB).result(60) == 500 * MIB  # alone
    assert total.reserved == 0


def _reserve(total: InflationTotal, size: int) -> int:
    with total.room(size):
        return total.reserved


@pytest.mark.parametrize("declared", [100, 2**20, 2**31 - 1, 2**32 - 1, 2**35 - 1])
def test_a_lying_snappy_length_allocates_nothing(declared: int) -> None:
    """CVE-2023-34455: a few bytes that claim gigabytes."""
    length = bytearray()
    while declared > 0x7F:
        length.append(declared & 0x7F | 0x80)
        declared >>= 7
    length.append(declared)
    raw = bytes(length) + b"\x00a"
    xerial = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(raw)) + raw
    for payload in (raw, xerial):
        with pytest.raises(CorruptBatchError):
            decompress(CompressionType.SNAPPY, payload)


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1, -(2**31)])
def test_a_lying_xerial_block_length(size: int) -> None:
    with pytest.raises(CorruptBatchError):
        decompress(CompressionType.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, size) + b"abc")


def test_a_zstd_frame_may_not_ask_for_a_huge_window() -> None:
    frame = bytearray(_zstd_rle_bomb(128 * 1024))
    frame[5] = 0xF8  # 2^41 bytes
    with pytest.raises(CorruptBatchError, match="window"):
        decompress(CompressionType.ZSTD, frame)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_cut_payloads_are_refused(codec: CompressionType) -> None:
    packed = compress(codec, TEXT)
    whole_blocks = []
    for cut in [0, 1, 3, 4, 7, 12, 17, *range(20, len(packed), len(packed) // 50 or 1)]:
        try:
            inflated = decompress(codec, packed[:cut])
        except CorruptBatchError:
            continue
        whole_blocks.append(inflated)
    # xerial framing has no end mark: a cut between two blocks is a shorter stream
    assert all(TEXT.startswith(part) for part in whole_blocks)
    assert codec is CompressionType.SNAPPY or not whole_blocks


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_trailing_bytes_are_refused(codec: CompressionType) -> None:
    with pytest.raises(CorruptBatchError):
        decompress(codec, compress(codec, TEXT) + b"more")
