"""Codec: the largest decompressed size of an LZ4 or Zstandard frame, computed from its block headers.

LZ4 frame (little-endian): magic 04224D18 | FLG | BD | [content size 8] | [dict id 4] | HC | blocks | 0 | [checksum]
    FLG: version 01 in bits 7-6 | block independence | block checksum | content size | content checksum | - | dict id
    BD bits 6-4: largest block, 4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB
    block: size (bit 31: stored as is) | bytes | [checksum 4]

Zstandard frame (RFC 8878): magic 28B52FFD | descriptor | [window] | [dict id] | [content size] | blocks | [checksum 4]
    block: 3 bytes: last (bit 0), type (bits 1-2: raw, RLE, compressed), size | bytes; it yields at most 128 KiB
    skippable frame: magic 184D2A5? | size 4 | bytes
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.errors import CorruptBatchError

_U32: Final = Struct("<I")

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_EXPANSION_MAX: Final = 255
_LZ4_BLOCK_BYTES: Final = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_DICTIONARY: Final = 0x01
_LZ4_STORED: Final = 1 << 31

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024


def lz4_frame_bound(data: Buffer) -> int:
    """The largest decompressed size of the frame. Raises CorruptBatchError unless `data` is exactly one frame.

    Linked blocks are rejected, as Java's Lz4BlockInputStream rejects them: no Java consumer could read them.
    """
    try:
        magic, flags, descriptor = _U32.unpack_from(data)[0], data[4], data[5]
        if magic != _LZ4_MAGIC or flags >> 6 != 1:
            raise CorruptBatchError("the lz4 payload is not an LZ4 frame of version 1")
        if not flags & _LZ4_INDEPENDENT:
            raise CorruptBatchError("the lz4 frame has linked blocks: Kafka's clients read independent blocks only")
        if flags & _LZ4_DICTIONARY:
            raise CorruptBatchError("the lz4 frame needs a dictionary")
        block_bytes = _LZ4_BLOCK_BYTES.get(descriptor >> 4)
        if block_bytes is None:
            raise CorruptBatchError("the lz4 frame declares a block size that does not exist")
        at = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
        checksum = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
        bound = 0
        while True:
            (size,) = _U32.unpack_from(data, at)
            at += 4
            if size == 0:
                break
            stored = size & ~_LZ4_STORED
            bound += stored if size & _LZ4_STORED else min(block_bytes, _LZ4_EXPANSION_MAX * stored)
            at += stored + checksum
    except (error, IndexError):
        raise CorruptBatchError("the lz4 frame ends early") from None
    at += 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
    if at != len(data):
        raise CorruptBatchError(f"the lz4 frame is {at} bytes long, the payload {len(data)}")
    return bound


def zstd_frames_bound(data: Buffer) -> int:
    """The largest decompressed size of the frames. Raises CorruptBatchError unless `data` consists of whole frames."""
    at = 0
    bound = 0
    try:
        while at < len(data):
            (magic,) = _U32.unpack_from(data, at)
            if magic & ~0xF == _ZSTD_SKIPPABLE:
                at += 8 + _U32.unpack_from(data, at + 4)[0]
                continue
            if magic != _ZSTD_MAGIC:
                raise CorruptBatchError("the zstd payload is not a Zstandard frame")
            descriptor = data[at + 4]
            at = _after_zstd_header(data, at + 5, descriptor)
            last = 0
            while not last:
                head = data[at] | data[at + 1] << 8 | data[at + 2] << 16
                last, kind, size = head & 1, head >> 1 & 3, head >> 3
                at += 3
                if kind == 3 or size > _ZSTD_BLOCK_BYTES:
                    raise CorruptBatchError("a zstd block is of an unknown kind or too large")
                bound += _ZSTD_BLOCK_BYTES if kind == 2 else size
                at += 1 if kind == 1 else size
            at += 4 if descriptor & 4 else 0
    except (error, IndexError):
        raise CorruptBatchError("the zstd frame ends early") from None
    if at != len(data) or not len(data):
        raise CorruptBatchError("the zstd frame ends early")
    return bound


def _after_zstd_header(data: Buffer, at: int, descriptor: int) -> int:
    """The position of the first block; `at` is the byte after the descriptor."""
    single_segment = descriptor & 0x20
    if not single_segment:
        exponent, mantissa = data[at] >> 3, data[at] & 7
        window = (1 << (10 + exponent)) // 8 * (8 + mantissa)
        if window > _ZSTD_WINDOW_BYTES_MAX:
            raise CorruptBatchError(f"the zstd frame asks for a window of {window} bytes")
        at += 1
    at += (0, 1, 2, 4)[descriptor & 3]
    return at + ((1 if single_segment else 0), 2, 4, 8)[descriptor >> 6]
