"""Codec: the newest record of each key of a partition, from tables of records, without an object for each record.

`NewestByKey` reads tables in the order of the log. It finds each key in an index, an open-addressed hash table whose
entries keep the key's bytes, and copies the records that are the newest of their keys into *blocks*. When a later
record has the same key, the older row of a block is dead. A block without living rows is released, a block with few of
them is copied into a smaller one, and small neighbours are merged. The memory therefore depends on the number of keys
and on the size of their newest records, and not on the length of the log.

Hashes are the first 64 bits of a keyed SipHash, so that a producer cannot create keys that collide. Keys with equal
hashes are compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from barnabas.protocol.records.columnar._jit import (
    BYTES,
    I32,
    I64,
    MUTABLE_BYTES,
    OUT_HASHES,
    OUT_I32,
    OUT_I64,
    OUT_U64,
    copy_bytes,
    kernel,
    np,
    pa,
    scalar,
)
from barnabas.protocol.records.columnar.compaction import siphash
from barnabas.protocol.records.columnar.segments import RecordTable

_ENTRIES_MIN: Final = 1 << 10
_BLOCK_BYTES: Final = 1 << 20
"""Neighbouring blocks that are together smaller than this are merged."""


@kernel(
    (BYTES, I64, I32, OUT_HASHES, OUT_I64, OUT_U64, OUT_I64, OUT_I32, MUTABLE_BYTES, scalar, scalar, OUT_I32, OUT_I32)
)
def find_keys(
    data: Any,
    key_at: Any,
    key_len: Any,
    hashes: Any,
    slots: Any,
    entry_hash: Any,
    entry_at: Any,
    entry_len: Any,
    key_bytes: Any,
    entries: Any,
    key_bytes_end: Any,
    newest_row: Any,
    out: Any,
) -> Any:
    """Write the index entry of each row's key to `out`, -1 for a null key, and add entries for keys that have none.

    `slots` (a power of two of them, at least twice the entries) has the number of an entry, or -1. The caller has made
    room for a new entry for every row, and for the bytes of its key. `newest_row[entry]` becomes the last row with the
    entry's key. Returns the number of entries and the end of the key bytes; -1 and -1 if a position is out of bounds.
    """
    mask = slots.shape[0] - 1
    for i in range(key_at.shape[0]):
        length = np.int64(key_len[i])
        if length < 0:
            out[i] = np.int32(-1)
            continue
        at = key_at[i]
        if at < 0 or length > data.shape[0] - at:
            return np.int64(-1), np.int64(-1)
        wanted = hashes[i, 0]
        slot = np.int64(wanted & np.uint64(0x7FFFFFFFFFFFFFFF)) & mask
        while True:
            entry = slots[slot]
            if entry < 0:
                entry = entries
                slots[slot] = entry
                entry_hash[entry] = wanted
                entry_at[entry] = key_bytes_end
                entry_len[entry] = np.int32(length)
                copy_bytes(key_bytes, key_bytes_end, data, at, length)
                key_bytes_end += length
                entries += 1
                break
            if entry_hash[entry] == wanted and np.int64(entry_len[entry]) == length:
                start = entry_at[entry]
                same = True
                for j in range(length):
                    if key_bytes[start + j] != data[at + j]:
                        same = False
                        break
                if same:
                    break
            slot = (slot + 1) & mask
        newest_row[entry] = np.int32(i)
        out[i] = np.int32(entry)
    return entries, key_bytes_end


@kernel((OUT_U64, scalar, OUT_I64))
def place_entries(entry_hash: Any, entries: Any, slots: Any) -> Any:
    """Fill an empty array of slots, all -1, with the entries. The hashes are those of different keys."""
    mask = slots.shape[0] - 1
    for entry in range(entries):
        slot = np.int64(entry_hash[entry] & np.uint64(0x7FFFFFFFFFFFFFFF)) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = entry
    return np.int64(0)


@kernel((BYTES, I64, I64, MUTABLE_BYTES))
def copy_spans(data: Any, starts: Any, lengths: Any, out: Any) -> Any:
    """Copy byte spans one after the other. Returns the end of the copy, or -1 if a span is out of bounds."""
    end = np.int64(0)
    for i in range(starts.shape[0]):
        start, length = starts[i], lengths[i]
        if start < 0 or length < 0 or length > data.shape[0] - start or length > out.shape[0] - end:
            return np.int64(-1)
        copy_bytes(out, end, data, start, length)
        end += length
    return end


class _Block:
    """Rows that were the newest of their keys when they were added, and the index entry of each row's key."""

    __slots__ = ("alive", "entries", "table")

    def __init__(self, table: RecordTable, entries: Any) -> None:
        self.table = table
        self.entries = entries
        self.alive = len(entries)


class NewestByKey:
    """The newest record of each key among the tables that were added.

    `secret` are two random 64-bit numbers. Without `tombstones`, a key whose newest record has a null value has no row.
    Records without a key are left out and counted in `keyless`.
    """

    def __init__(self, secret: tuple[int, int], *, tombstones: bool) -> None:
        self.keyless = 0
        self._secret = np.uint64(secret[0]), np.uint64(secret[1])
        self._tombstones = tombstones
        self._entries = 0
        self._key_bytes_end = 0
        self._slots = np.full(2 * _ENTRIES_MIN, -1, np.int64)
        self._hash = np.empty(_ENTRIES_MIN, np.uint64)
        self._key_at = np.empty(_ENTRIES_MIN, np.int64)
        self._key_len = np.empty(_ENTRIES_MIN, np.int32)
        self._newest_row = np.empty(_ENTRIES_MIN, np.int32)
        self._key_bytes = np.empty(_BLOCK_BYTES, np.uint8)
        # The block, by its number, and the row in it that have the newest record of each entry; -1: no row.
        self._block_of = np.full(_ENTRIES_MIN, -1, np.int32)
        self._row_of = np.zeros(_ENTRIES_MIN, np.int32)
        self._blocks: dict[int, _Block] = {}
        self._next_block = 0

    @property
    def blocks_bytes(self) -> int:
        """The bytes of keys, values and headers in the blocks, dead rows included."""
        return sum(len(block.table.data) for block in self._blocks.values())

    def add(self, table: RecordTable) -> None:
        """Add the records of a table, which follow those of earlier tables in the log."""
        rows = len(table)
        if not rows:
            return
        hashes = np.empty((rows, 2), np.uint64)
        code = siphash(table.data, table.key_at, table.key_len, *self._secret, hashes)
        assert code == 0, "scan has checked these positions"
        self._make_room(rows, int(np.maximum(table.key_len, 0).sum(dtype=np.int64)))
        entry_of = np.empty(rows, np.int32)
        self._entries, self._key_bytes_end = find_keys(
            table.data, table.key_at, table.key_len, hashes, self._slots, self._hash, self._key_at, self._key_len,
            self._key_bytes, self._entries, self._key_bytes_end, self._newest_row, entry_of,
        )  # fmt: skip
        assert self._entries >= 0, "scan has checked these positions"
        keyed = np.flatnonzero(entry_of >= 0)
        self.keyless += rows - len(keyed)
        newest = keyed[self._newest_row[entry_of[keyed]] == keyed]
        self._retire(entry_of[newest])
        if not self._tombstones:
            newest = newest[table.value_len[newest] >= 0]
        if len(newest):
            self._append(_Block(_copy_rows(table, newest), entry_of[newest]))

    def tables(self) -> Iterator[RecordTable]:
        """The newest records, in the order of the log. Each block is released after its table was yielded."""
        for number in list(self._blocks):
            block = self._blocks.pop(number)
            alive = self._alive(number, block)
            yield block.table if len(alive) == len(block.entries) else _copy_rows(block.table, alive)

    # -- the index -------------------------------------------------------------------------------------------------

    def _make_room(self, rows: int, key_bytes: int) -> None:
        entries = self._entries + rows
        if entries > len(self._hash):
            size = max(entries, 2 * len(self._hash))
            self._hash = _grown(self._hash, size)
            self._key_at = _grown(self._key_at, size)
            self._key_len = _grown(self._key_len, size)
            self._newest_row = _grown(self._newest_row, size)
            self._row_of = _grown(self._row_of, size)
            old = len(self._block_of)
            self._block_of = _grown(self._block_of, size)
            self._block_of[old:] = -1
        if 2 * entries > len(self._slots):
            self._slots = np.full(1 << (2 * entries - 1).bit_length(), -1, np.int64)
            place_entries(self._hash, self._entries, self._slots)
        if self._key_bytes_end + key_bytes > len(self._key_bytes):
            self._key_bytes = _grown(self._key_bytes, max(self._key_bytes_end + key_bytes, 2 * len(self._key_bytes)))

    # -- the blocks ------------------------------------------------------------------------------------------------

    def _retire(self, entries: Any) -> None:
        """The rows of these entries are not the newest any more."""
        held = self._block_of[entries]
        numbers, counts = np.unique(held[held >= 0], return_counts=True)
        self._block_of[entries] = -1
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            block = self._blocks[number]
            block.alive -= count
            if not block.alive:
                del self._blocks[number]
            elif 2 * block.alive < len(block.entries):
                alive = self._alive(number, block)
                self._put(number, _Block(_copy_rows(block.table, alive), block.entries[alive]))

    def _append(self, block: _Block) -> None:
        """Add a block after the last one, or merge the two if they are small."""
        number = next(reversed(self._blocks), None)
        last = None if number is None else self._blocks[number]
        if last is not None and number is not None and len(last.table.data) + len(block.table.data) <= _BLOCK_BYTES:
            alive = self._alive(number, last)
            kept = last.table if len(alive) == len(last.entries) else _copy_rows(last.table, alive)
            merged = _Block(_joined(kept, block.table), np.concatenate([last.entries[alive], block.entries]))
            self._put(number, merged)
            return
        self._put(self._next_block, block)
        self._next_block += 1

    def _put(self, number: int, block: _Block) -> None:
        self._blocks[number] = block
        self._block_of[block.entries] = number
        self._row_of[block.entries] = np.arange(len(block.entries), dtype=np.int32)

    def _alive(self, number: int, block: _Block) -> Any:
        rows = np.arange(len(block.entries), dtype=np.int32)
        return np.flatnonzero((self._block_of[block.entries] == number) & (self._row_of[block.entries] == rows))


def _grown(array: Any, size: int) -> Any:
    larger = np.empty(size, array.dtype)
    larger[: len(array)] = array
    return larger


def _copy_rows(table: RecordTable, rows: Any) -> RecordTable:
    """These rows with a copy of their bytes. Key, value and headers of a record are one span, which begins at the key
    and ends with the headers.
    """
    starts = table.key_at[rows]
    spans = table.headers_at[rows] + table.headers_len[rows] - starts
    out = np.frombuffer(pa.allocate_buffer(int(spans.sum())), np.uint8)
    end = copy_spans(table.data, starts, spans, out)
    assert end == len(out), "scan has checked these positions"
    moved = np.cumsum(spans) - spans - starts
    types = table.timestamp_types
    return RecordTable(
        out,
        table.offsets[rows],
        table.timestamps[rows],
        types if isinstance(types, int) else types[rows],
        table.key_at[rows] + moved,
        table.key_len[rows],
        table.value_at[rows] + moved,
        table.value_len[rows],
        table.headers_at[rows] + moved,
        table.headers_len[rows],
    )


def _joined(first: RecordTable, second: RecordTable) -> RecordTable:
    shift = len(first.data)

    def both(name: str) -> Any:
        return np.concatenate([getattr(first, name), getattr(second, name)])

    def positions(name: str) -> Any:
        return np.concatenate([getattr(first, name), getattr(second, name) + shift])

    return RecordTable(
        both("data"),
        both("offsets"),
        both("timestamps"),
        _joined_types(first, second),
        positions("key_at"),
        both("key_len"),
        positions("value_at"),
        both("value_len"),
        positions("headers_at"),
        both("headers_len"),
    )


def _joined_types(first: RecordTable, second: RecordTable) -> Any:
    types = [first.timestamp_types, second.timestamp_types]
    if isinstance(types[0], int) and types[0] == types[1]:
        return types[0]
    rows = (len(first), len(second))
    return np.concatenate(
        [np.full(n, kind, np.int32) if isinstance(kind, int) else kind for n, kind in zip(rows, types, strict=True)]
    )
