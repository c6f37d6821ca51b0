"""Codec: the compressed parts of a binlog: payloads of transactions (MySQL), statements and rows (MariaDB).

MariaDB (`binlog_buf_uncompress`): one byte `1aaa0nnn` with the algorithm a (0 is zlib) and the number n of bytes of the
size, the inflated size in big-endian order, a zlib stream.

No more memory than the limit is allocated, whatever size the bytes declare.
"""

from __future__ import annotations

import zlib
from typing import Final

from barnabas.core.inflation_total import INFLATING
from barnabas.protocol.records.compression import CompressionType, decompress
from barnabas.protocol.records.errors import CorruptBatchError, DecompressionLimitError
from barnabas.spark.connectors.mysql.binlog.cursor import EventCursor
from barnabas.spark.connectors.mysql.errors import BinlogLimitError

INFLATED_BYTES_MAX: Final = 1 << 30
"""The limit for one inflated part. A MySQL server compresses transactions up to max_allowed_packet, 1 GiB."""


def _too_large(where: str, size: int, limit: int) -> BinlogLimitError:
    return BinlogLimitError(
        f"{where}: the compressed part inflates to {size} bytes, the limit is {limit}: change rows in smaller "
        "transactions, or set binlog_transaction_compression=OFF (MariaDB: log_bin_compress=OFF), and start the query "
        "over with a new checkpoint, an empty stagingLocation and a new snapshot"
    )


def inflate_payload(cursor: EventCursor, size: int, limit: int) -> bytes:
    """Inflate the Zstandard frames that the rest of `cursor` is; `size` is the inflated size that the event declares.

    Raises BinlogLimitError if more than `limit` bytes would be needed, and BinlogError for damaged frames.
    """
    if size > limit:
        raise _too_large(cursor.where, size, limit)
    try:
        inflated = decompress(CompressionType.ZSTD, cursor.rest(), max(size, 1))
    except DecompressionLimitError as error:
        raise cursor.error(f"the payload inflates to more than the {size} bytes that the event declares") from error
    except CorruptBatchError as error:
        raise cursor.error(f"the payload of the transaction cannot be inflated: {error}") from error
    if len(inflated) != size:
        raise cursor.error(f"the payload inflates to {len(inflated)} bytes, the event declares {size}")
    return inflated


def inflate_mariadb(cursor: EventCursor, limit: int) -> bytes:
    """Inflate the rest of `cursor`, a statement or the rows of an event that MariaDB compressed."""
    head = cursor.uint(1)
    size_bytes = head & 0x07
    if head & 0xF8 != 0x80 or not 1 <= size_bytes <= 4:
        raise cursor.error(f"0x{head:02x} does not begin a part that is compressed with zlib")
    size = int.from_bytes(cursor.take(size_bytes), "big")
    if size > limit:
        raise _too_large(cursor.where, size, limit)
    inflater = zlib.decompressobj()
    try:
        with INFLATING.room(size):
            inflated = inflater.decompress(cursor.rest(), size + 1)
    except zlib.error as error:
        raise cursor.error(f"the zlib stream is damaged: {error}") from error
    if len(inflated) != size or not inflater.eof or inflater.unused_data:
        raise cursor.error(f"the zlib stream does not inflate to the {size} bytes that the event declares")
    return inflated
