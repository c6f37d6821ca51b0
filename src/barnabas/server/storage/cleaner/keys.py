"""Machine: adding the keys of batches to the offset map, and deciding which records are retained; in plain Python.

`columns.py` does the same with compiled kernels. Both implement `KeyEngine`. A pass uses only one of them, because they
use different hash functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Protocol

from msgspec import Struct

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import BatchHeader, Record, check_crc, iter_records
from barnabas.protocol.records.build import rebuild_batch
from barnabas.server.storage.cleaner.offset_map import OffsetMap

Placed = tuple[int, BatchHeader]
"""A batch: its position in the buffer, and its header."""


class RecordVerdict(Struct, frozen=True):
    """The records of one batch that are retained."""

    keep: Any
    """A sequence of booleans, one for each record."""
    kept: int
    keeps_tombstone: bool
    """Whether a retained record below the end of the map is a tombstone."""


class KeyEngine(Protocol):
    """The operations of a pass that read records. All methods raise CorruptBatchError."""

    def add(self, buf: Buffer, batches: Sequence[Placed], start_offset: int) -> int | None:
        """Add the keys of the records from `start_offset` on to the map. Returns the first offset that did not fit, or
        None."""
        ...

    def judge(self, buf: Buffer, batches: Sequence[Placed], end_offset: int, now_ms: int) -> list[RecordVerdict]:
        """One verdict for each batch. Records at or above `end_offset` are retained."""
        ...

    def rebuild(self, buf: Buffer, placed: Placed, keep: Any, delete_horizon_ms: int | None) -> bytes:
        """Build the batch again with the records selected by `keep`, at least one."""
        ...


class PlainKeys:
    """A `KeyEngine` in plain Python that decodes each record. Its hash function is keyed BLAKE2b."""

    def __init__(self, offset_map: OffsetMap, secret: tuple[int, int], max_decompressed_message_bytes: int) -> None:
        self._map = offset_map
        self._max_decompressed_message_bytes = max_decompressed_message_bytes
        self._secret = b"".join(word.to_bytes(8, "little") for word in secret)

    def add(self, buf: Buffer, batches: Sequence[Placed], start_offset: int) -> int | None:
        put, secret, whole = self._map.put, self._secret, int.from_bytes
        for pos, header in batches:
            check_crc(buf, pos, header)
            for offset, _, key, _, _ in iter_records(
                buf, pos, header, max_decompressed_message_bytes=self._max_decompressed_message_bytes
            ):
                if key is not None and offset >= start_offset:
                    digest = blake2b(key, digest_size=16, key=secret).digest()
                    if not put(whole(digest[:8], "little"), whole(digest[8:], "little"), offset):
                        return offset
        return None

    def judge(self, buf: Buffer, batches: Sequence[Placed], end_offset: int, now_ms: int) -> list[RecordVerdict]:
        return [self._judge(buf, pos, header, end_offset, now_ms) for pos, header in batches]

    def _judge(self, buf: Buffer, pos: int, header: BatchHeader, end_offset: int, now_ms: int) -> RecordVerdict:
        check_crc(buf, pos, header)
        get, secret, whole = self._map.get, self._secret, int.from_bytes
        horizon = header.delete_horizon_ms
        tombstones_stay = horizon is None or now_ms < horizon
        keep: list[bool] = []
        keeps_tombstone = False
        for offset, _, key, value, _ in iter_records(
            buf, pos, header, max_decompressed_message_bytes=self._max_decompressed_message_bytes
        ):
            stays = True
            if offset < end_offset:
                if key is None or (value is None and not tombstones_stay):
                    stays = False
                else:
                    digest = blake2b(key, digest_size=16, key=secret).digest()
                    stays = offset >= get(whole(digest[:8], "little"), whole(digest[8:], "little"))
                    keeps_tombstone |= stays and value is None
            keep.append(stays)
        return RecordVerdict(keep, sum(keep), keeps_tombstone)

    def rebuild(self, buf: Buffer, placed: Placed, keep: Any, delete_horizon_ms: int | None) -> bytes:
        pos, header = placed
        records: list[Record] = [r for r, stays in zip(iter_records(buf, pos, header), keep, strict=True) if stays]
        return rebuild_batch(header, records, delete_horizon_ms=delete_horizon_ms)
