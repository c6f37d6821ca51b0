"""Codec: Kafka's five compression codecs, bytes to bytes, with a limit for the decompressed size.

| id | name   | bytes on the wire                                                                        |
|----|--------|------------------------------------------------------------------------------------------|
| 0  | none   | unchanged                                                                                |
| 1  | gzip   | RFC 1952, one or more members                                                            |
| 2  | snappy | xerial framing (snappy-java's SnappyOutputStream) is written; raw snappy is read as well |
| 3  | lz4    | LZ4 frame, independent blocks (Java's reader refuses linked ones)                        |
| 4  | zstd   | Zstandard frames                                                                         |

The size that a payload declares is never trusted: no more memory than the limit is allocated, whatever the payload
declares. (CVE-2023-34455 was a snappy length that a library trusted.) zlib counts while it inflates. Snappy expands 3
bytes to at most 64. LZ4 and Zstandard frames are first traversed block by block, because the format limits the size of
each block (`compression_frames.py`). Frames that may exceed the limit are inflated into a buffer that grows. All
threads of the process share one total (`core/inflation_total.py`).

A refused payload leaves nothing: the exception that `decompress` raises has neither a cause nor a context, because
their tracebacks would keep the buffers of the functions that they left.

To add a codec: a member of `CompressionType`; branches of `compress`, `_bound` and `_inflate` below, and the exceptions
of its library in `decompress`; if the format has frames, their largest size in `compression_frames.py`. The config
tables, the producer and the command line derive their words from this module (`pytest tests/golden --rewrite` writes
`client/typed_settings.py`); validation and columnar decoding need no change. Metrics that clients push have their
codecs in the order of preference: `ACCEPTED_CODECS` in `server/broker/client_metrics/instances.py`. A codec with a
level has a config `compression.<name>.level`: `server/metadata/configs/topic_keys.py` and `broker_log.py`,
`server/storage/config.py`, `client/config.py`, `client/foreign_configs.py`. A codec that older clients cannot read
needs a check of the request version in `server/broker/handlers/data/produce.py`.

The functions import cramjam when they are called: the module has 1.5 MB, and many brokers never get a compressed batch.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct
from typing import Any, Final

from barnabas.core.buffers import Buffer
from barnabas.core.inflation_total import INFLATING
from barnabas.protocol.records.compression_frames import lz4_frame_bound, zstd_frames_bound
from barnabas.protocol.records.errors import CorruptBatchError, DecompressionLimitError

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The default limit for the decompressed size of one batch."""
DECOMPRESSED_RECORD_BYTES_MAX: Final = 2_147_483_639
"""The default of max.decompressed.message.bytes, the limit for one record of a compressed batch (Java's largest array).
"""

_GZIP_WINDOW: Final = 31  # 15 bits of window + 16: a gzip header and trailer
_GZIP_SLICE_BYTES: Final = 1024
_LZ4_DEFAULT_LEVEL: Final = 9
_LZ4_LEVEL_MAX: Final = 12
_ZSTD_DEFAULT_LEVEL: Final = 3
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, oldest compatible version
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_DEFLATE_EXPANSION_MAX: Final = 1032  # 258 bytes for two bits
_GROWING_BYTES: Final = 1024 * 1024
_SNAPPY_EXPANSION_MAX: Final = 22  # a 3-byte copy element yields at most 64 bytes
_INT32: Final = Struct(">i")


class CompressionType(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The producer's `compression.type` for this codec."""
        return self.name.lower()


PRODUCER_COMPRESSION_TYPES: Final = tuple(codec.config_name for codec in CompressionType)
"""The values of the producer config compression.type."""
TOPIC_COMPRESSION_TYPES: Final = (
    "uncompressed",
    *(codec.config_name for codec in reversed(CompressionType) if codec is not CompressionType.NONE),
    "producer",
)
"""The values of the topic config compression.type, and of the broker's (Kafka's BrokerCompressionType)."""


def producer_codec(compression_type: str) -> CompressionType:
    """The codec for the producer config compression.type. Raises ValueError for an unknown value."""
    if compression_type not in PRODUCER_COMPRESSION_TYPES:
        raise ValueError(f"{compression_type!r} is none of {', '.join(PRODUCER_COMPRESSION_TYPES)}")
    return CompressionType[compression_type.upper()]


def topic_codec(compression_type: str) -> CompressionType | None:
    """The codec for the topic config compression.type. None for "producer": a batch keeps the producer's codec.

    Raises ValueError for an unknown value.
    """
    if compression_type not in TOPIC_COMPRESSION_TYPES:
        raise ValueError(f"{compression_type!r} is none of {', '.join(TOPIC_COMPRESSION_TYPES)}")
    if compression_type == "producer":
        return None
    return CompressionType.NONE if compression_type == "uncompressed" else producer_codec(compression_type)


def compress(codec: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`. A `level` of None means Kafka's default for the codec (gzip -1, lz4 9, zstd 3; KIP-390)."""
    import cramjam

    match codec:
        case CompressionType.NONE:
            return bytes(data)
        case CompressionType.GZIP:
            deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
            return deflate.compress(data) + deflate.flush()
        case CompressionType.SNAPPY:
            return _compress_xerial(data)
        case CompressionType.LZ4:
            lz4 = cramjam.lz4.Compressor(level=_lz4_level(level), content_checksum=False, block_linked=False)
            lz4.compress(bytes(data))
            return bytes(lz4.finish())
        case CompressionType.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: CompressionType, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress `data` to at most `limit_bytes`.

    Raises DecompressionLimitError beyond the limit, CorruptBatchError if `data` is not valid for the codec.
    """
    if codec is CompressionType.NONE:
        inflated = bytes(data)
        if len(inflated) > limit_bytes:
            raise DecompressionLimitError(_over(codec, limit_bytes))
        return inflated
    import cramjam

    refusal = CorruptBatchError
    try:
        bound = _bound(codec, data)
        with INFLATING.room(min(bound, limit_bytes)):
            found = _inflate(codec, data, limit_bytes, fits=bound <= limit_bytes)
        if found is not None and len(found) <= limit_bytes:
            return found
        refusal, problem = DecompressionLimitError, _over(codec, limit_bytes)
    except CorruptBatchError as error:
        problem = str(error)
    except (cramjam.DecompressionError, zlib.error, OSError, ValueError) as error:
        problem = f"the {codec.config_name} payload cannot be decompressed: {error}"
    found = None
    raise refusal(problem)


def _bound(codec: CompressionType, data: Buffer) -> int:
    """The most bytes to which `data` can inflate. Raises CorruptBatchError unless frames are whole."""
    match codec:
        case CompressionType.LZ4:
            return lz4_frame_bound(data)
        case CompressionType.ZSTD:
            return zstd_frames_bound(data)
        case CompressionType.SNAPPY:
            return _SNAPPY_EXPANSION_MAX * len(data)
        case _:
            return _DEFLATE_EXPANSION_MAX * len(data)


def _inflate(codec: CompressionType, data: Buffer, limit_bytes: int, *, fits: bool) -> bytes | None:
    """The decompressed bytes, or None if they exceed the limit. `fits` says that they cannot."""
    import cramjam

    match codec:
        case CompressionType.GZIP:
            return _inflate_gzip(data, limit_bytes)
        case CompressionType.SNAPPY:
            return _decompress_snappy(data, limit_bytes)
    module: Any = cramjam.lz4 if codec is CompressionType.LZ4 else cramjam.zstd
    return bytes(module.decompress(data)) if fits else _decompress_into(module, data, limit_bytes)


def _over(codec: CompressionType, limit_bytes: int) -> str:
    cap = f"the cap of {limit_bytes} bytes"
    return f"the {codec.config_name} payload inflates beyond {cap}: send smaller batches, or raise the cap"


def _lz4_level(level: int | None) -> int:
    """The level of our LZ4 library for Kafka's `level`; None means Kafka's default, 9.

    Kafka's Java code uses the fast compressor for level 9, and the high-compression one for every other level.
    """
    if level is None or level == _LZ4_DEFAULT_LEVEL:
        return 1
    return max(3, min(level, _LZ4_LEVEL_MAX))


def _decompress_into(module: Any, data: Buffer, limit_bytes: int) -> bytes | None:
    """Decompress into a buffer that grows up to the limit; None if the limit is too small.

    The library has no other way to inflate a part of a frame, so that each larger buffer begins anew. Each is four
    times as large, so that this costs at most a third more.
    """
    import cramjam

    size = min(_GROWING_BYTES, limit_bytes)
    while True:
        out = bytearray(size)
        try:
            written = module.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            del out
            if "whole buffer" not in str(error):
                raise
            if size == limit_bytes:
                return None
            size = min(4 * size, limit_bytes)
        else:
            with memoryview(out) as view:
                return bytes(view[:written])


def _inflate_gzip(data: Buffer, limit_bytes: int) -> bytes | None:
    """Inflate one or more gzip members; None if they exceed the limit.

    zlib copies the input behind the end of a member (`unused_data`). The input is therefore passed in slices that
    double until the member ends: a payload of many small members would otherwise be copied once for each of them.
    """
    view = memoryview(data)
    out: list[bytes] = []
    room = limit_bytes
    at = 0
    while True:
        inflate = zlib.decompressobj(_GZIP_WINDOW)
        size = _GZIP_SLICE_BYTES
        while not inflate.eof:
            if at >= len(view):
                raise CorruptBatchError("the gzip payload ends before its trailer")
            piece = view[at : at + size]
            found = inflate.decompress(piece, room + 1)
            room -= len(found)
            if room < 0:
                return None
            if found:
                out.append(found)
            at += len(piece) - len(inflate.unused_data)
            size *= 2
        if at == len(view):
            return out[0] if len(out) == 1 else b"".join(out)


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    out = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += (_INT32.pack(len(block)), block)
    return b"".join(out)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes | None:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, limit_bytes)
    view = memoryview(data)
    out: list[bytes] = []
    at = len(_XERIAL_HEADER)
    room = limit_bytes
    while at < len(view):
        if len(view) - at < 4:
            raise CorruptBatchError("the snappy payload ends inside a block length")
        (size,) = _INT32.unpack_from(view, at)
        at += 4
        if size <= 0 or size > len(view) - at:
            raise CorruptBatchError(f"a snappy block declares {size} bytes, {len(view) - at} are left")
        block = _decompress_snappy_block(view[at : at + size], room)
        if block is None:
            return None
        out.append(block)
        room -= len(block)
        at += size
    return out[0] if len(out) == 1 else b"".join(out)


def _decompress_snappy_block(block: Buffer, room: int) -> bytes | None:
    """Decompress one raw block; None if it has more than `room` bytes.

    The declared size is first checked against the size of `block` and against `room`.
    """
    import cramjam

    declared = 0
    for shift, byte in zip((0, 7, 14, 21, 28), block[:5], strict=False):
        declared |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise CorruptBatchError("the snappy payload has no valid length")
    if declared > _SNAPPY_EXPANSION_MAX * len(block):
        raise CorruptBatchError(f"{len(block)} bytes of snappy cannot hold {declared} bytes")
    if declared > room:
        return None
    return bytes(cramjam.snappy.decompress_raw(block))
