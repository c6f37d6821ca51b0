"""Machine: the operations of `keys.PlainKeys` for many batches at once, by compiled kernels without the GIL.

This module needs numpy and numba (`barnabas[columnar]`), and its kernels take some 150 MB of memory, so only the
cleaner's own process imports it. The records of adjacent batches are put into one `RecordTable` of bounded size, one
row for each record, so that the cost of a kernel call is divided among small batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.records.batch import CODEC_MASK, check_crc
from barnabas.protocol.records.columnar._jit import (
    I32,
    I64,
    MUTABLE_BYTES,
    OUT_HASHES,
    OUT_I64,
    OUT_U64,
    U64,
    kernel,
    np,
    scalar,
)
from barnabas.protocol.records.columnar.compaction import retain, siphash
from barnabas.protocol.records.columnar.segments import RecordTable, iter_run_tables
from barnabas.server.storage.cleaner.keys import Placed, RecordVerdict
from barnabas.server.storage.cleaner.offset_map import OffsetMap

_RUN_BYTES: Final = 4 << 20
"""The maximum size in bytes, before decompression, of the batches whose records are put into one `RecordTable`. The
size after decompression is limited by `iter_run_tables`."""
_RUN_BATCHES: Final = 512


@kernel((OUT_U64, U64, OUT_HASHES, I32, I64, scalar, scalar))
def _insert(words: Any, slots: Any, hashes: Any, key_len: Any, offsets: Any, start: Any, room: Any) -> Any:
    """Do what `OffsetMap.put` does for each row that has a key and an offset of at least `start`.

    Returns the number of new keys, and the first row that did not fit, or -1. At most `room` new keys fit the map.
    """
    used = np.int64(0)
    for row in range(offsets.shape[0]):
        offset = offsets[row]
        if key_len[row] < 0 or offset < start:
            continue
        first, second = hashes[row, 0], hashes[row, 1]
        slot = first % slots
        step = np.uint64(1) + second % (slots - np.uint64(1))
        while True:
            at = slot * np.uint64(3)
            held = words[at + np.uint64(2)]
            if held == np.uint64(0):
                if used >= room:
                    return used, np.int64(row)
                words[at] = first
                words[at + np.uint64(1)] = second
                words[at + np.uint64(2)] = np.uint64(offset + 1)
                used += 1
                break
            if words[at] == first and words[at + np.uint64(1)] == second:
                if held <= np.uint64(offset):
                    words[at + np.uint64(2)] = np.uint64(offset + 1)
                break
            slot += step
            if slot >= slots:
                slot -= slots
    return used, np.int64(-1)


@kernel(
    (
        OUT_U64, U64, OUT_HASHES, I32, I32, I64, I64, MUTABLE_BYTES, scalar,
        MUTABLE_BYTES, OUT_I64, OUT_I64,
    )
)  # fmt: skip
def _judge(
    words: Any, slots: Any, hashes: Any, key_len: Any, value_len: Any, offsets: Any,
    starts: Any, tombstones_stay: Any, end: Any, keep: Any, kept: Any, tombstones: Any,
) -> Any:  # fmt: skip
    """Do what `PlainKeys.judge` does, for the rows of several batches.

    Batch b has the rows from starts[b] up to starts[b + 1] (exclusive). The results are stored in `keep` (whether each
    row is retained), `kept` and `tombstones` (how many rows and tombstones of each batch are retained).
    """
    for b in range(starts.shape[0] - 1):
        for row in range(starts[b], starts[b + 1]):
            offset = offsets[row]
            stays = True
            if offset < end:
                if key_len[row] < 0 or (value_len[row] < 0 and not tombstones_stay[b]):
                    stays = False
                else:
                    first, second = hashes[row, 0], hashes[row, 1]
                    slot = first % slots
                    step = np.uint64(1) + second % (slots - np.uint64(1))
                    while True:
                        at = slot * np.uint64(3)
                        held = words[at + np.uint64(2)]
                        if held == np.uint64(0):
                            break
                        if words[at] == first and words[at + np.uint64(1)] == second:
                            stays = held <= np.uint64(offset + 1)
                            break
                        slot += step
                        if slot >= slots:
                            slot -= slots
                    if stays and value_len[row] < 0:
                        tombstones[b] += 1
            keep[row] = stays
            if stays:
                kept[b] += 1
    return np.int64(0)


class ColumnarKeys:
    """A `KeyEngine` whose hash function is keyed SipHash-2-4 with 128 bits."""

    def __init__(self, offset_map: OffsetMap, secret: tuple[int, int], max_decompressed_message_bytes: int) -> None:
        self._map = offset_map
        self._max_decompressed_message_bytes = max_decompressed_message_bytes
        self._words = np.frombuffer(offset_map.words, dtype=np.uint64)
        self._slots = np.uint64(offset_map.slots)
        self._secret = np.uint64(secret[0]), np.uint64(secret[1])

    def add(self, buf: Buffer, batches: Sequence[Placed], start_offset: int) -> int | None:
        offsets_map = self._map
        for _, table, hashes in self._open(buf, batches):
            room = offsets_map.capacity - offsets_map.used
            used, full = _insert(self._words, self._slots, hashes, table.key_len, table.offsets, start_offset, room)
            offsets_map.used += used
            if full >= 0:
                return int(table.offsets[full])
        return None

    def judge(self, buf: Buffer, batches: Sequence[Placed], end_offset: int, now_ms: int) -> list[RecordVerdict]:
        verdicts: list[RecordVerdict] = []
        for run, table, hashes in self._open(buf, batches):
            count = len(run)
            starts = np.zeros(count + 1, np.int64)
            np.cumsum([header.record_count for _, header in run], out=starts[1:])
            horizons = [header.delete_horizon_ms for _, header in run]
            stays = np.array([h is None or now_ms < h for h in horizons], np.uint8)
            keep = np.empty(len(table), np.uint8)
            kept, tombstones = np.zeros(count, np.int64), np.zeros(count, np.int64)
            _judge(
                self._words, self._slots, hashes, table.key_len, table.value_len, table.offsets,
                starts, stays, end_offset, keep, kept, tombstones,
            )  # fmt: skip
            bounds = starts.tolist()
            verdicts += [
                RecordVerdict(keep[bounds[i] : bounds[i + 1]], some, tombs > 0)
                for i, (some, tombs) in enumerate(zip(kept.tolist(), tombstones.tolist(), strict=True))
            ]
        return verdicts

    def rebuild(self, buf: Buffer, placed: Placed, keep: Any, delete_horizon_ms: int | None) -> bytes:
        return retain(buf, placed[0], placed[1], keep, delete_horizon_ms=delete_horizon_ms)

    def _open(self, buf: Buffer, batches: Sequence[Placed]) -> Iterator[tuple[Sequence[Placed], RecordTable, Any]]:
        """Some batches, their records, and the hashes of the keys, until all batches were opened."""
        for pos, header in batches:
            check_crc(buf, pos, header)
        for alike in _runs(batches):
            for run, table in iter_run_tables(buf, alike, self._max_decompressed_message_bytes):
                hashes = np.empty((len(table), 2), np.uint64)
                code = siphash(table.data, table.key_at, table.key_len, *self._secret, hashes)
                assert code == 0, "iter_run_tables has checked these positions"
                yield run, table, hashes


def _runs(batches: Sequence[Placed]) -> Iterator[Sequence[Placed]]:
    """Divide the batches into runs whose records are put into one `RecordTable`.

    The batches of a run are all compressed or all uncompressed, and within the limits of size and number.
    """
    start = size = compressed = 0
    for i, (_, header) in enumerate(batches):
        codec = header.attributes & CODEC_MASK
        if i == start:
            compressed = codec
        elif (codec == 0) is not (compressed == 0) or size + header.size > _RUN_BYTES or i - start >= _RUN_BATCHES:
            yield batches[start:i]
            start, size, compressed = i, 0, codec
        size += header.size
    if start < len(batches):
        yield batches[start:]
