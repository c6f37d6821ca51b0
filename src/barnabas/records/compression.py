"""Codec: Kafka's five compression codecs, bytes to bytes, with a cap on what decompression may yield.

| id | name   | bytes on the wire                                                                        |
|----|--------|------------------------------------------------------------------------------------------|
| 0  | none   | as they are                                                                              |
| 1  | gzip   | RFC 1952, one or more members                                                            |
| 2  | snappy | xerial framing (snappy-java's SnappyOutputStream) is written; raw snappy is read as well |
| 3  | lz4    | LZ4 frame, independent blocks (Java's reader refuses linked ones)                        |
| 4  | zstd   | Zstandard frame                                                                          |

A size that a payload declares about itself is never trusted: no path allocates more than the cap plus a few MiB,
whatever the payload says (CVE-2023-34455 was a snappy length that Kafka's library believed).
"""

from __future__ import annotations

from enum import IntEnum

from barnabas.core.buffers import Buffer

DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
"""Default cap on what one batch may inflate to."""


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The word used in `compression.type`."""
        return self.name.lower()


def compress(codec: Codec, data: Buffer, level: int | None = None) -> Buffer:
    """`data` compressed; `level` None means Kafka's default for the codec (gzip -1, lz4 9, zstd 3; KIP-390)."""
    raise NotImplementedError


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """`data` inflated to at most `limit_bytes`.

    Raises DecompressionLimitError beyond that, CorruptBatchError when `data` is not what the codec says.
    """
    raise NotImplementedError
