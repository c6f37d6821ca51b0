"""Shell: the record batches of a run, by offset. Objects are checked when they are loaded, and a few are kept.

An object is loaded as a whole, because its checksum is that of all its bytes.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from typing import Final

from msgspec import Struct

from barnabas.backup.errors import DamagedBackupError
from barnabas.backup.store import BackupStore
from barnabas.backup.values import PartitionBackup, StoredBatches
from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.errors import CorruptBatchError

KEPT_BYTES: Final = 256 * 1024 * 1024


class LoadedObject(Struct, frozen=True):
    """The bytes of an object, with the position of each batch and the offset after it."""

    data: memoryview
    positions: tuple[int, ...]
    next_offsets: tuple[int, ...]

    def from_offset(self, offset: int, bytes_max: int) -> memoryview:
        """Whole batches from the one with `offset`, or the next after it, on: at least one, else up to `bytes_max`."""
        first = bisect_right(self.next_offsets, offset)
        if first == len(self.positions):
            return self.data[:0]
        begin = self.positions[first]
        if begin + bytes_max >= len(self.data):
            return self.data[begin:]
        end = max(bisect_right(self.positions, begin + bytes_max) - 1, first + 1)
        return self.data[begin : self.positions[end] if end < len(self.positions) else len(self.data)]


def parse_object(data: bytes, stored: StoredBatches) -> LoadedObject:
    """Find the batches of an object. Raises DamagedBackupError if they are not those of the manifest."""
    positions, next_offsets = [], []
    end = 0
    try:
        for position, header in iter_batches(data):
            positions.append(position)
            next_offsets.append(header.next_offset)
            end = position + header.size
    except CorruptBatchError as error:
        raise DamagedBackupError(f"{stored.name} is damaged: {error}") from error
    if end != len(data) or not positions or next_offsets[-1] != stored.end or len(positions) != stored.batches:
        raise DamagedBackupError(f"{stored.name} is damaged: it does not have the batches that the manifest says.")
    if sorted(next_offsets) != next_offsets:
        raise DamagedBackupError(f"{stored.name} is damaged: its offsets do not increase.")
    return LoadedObject(memoryview(data), tuple(positions), tuple(next_offsets))


class RunBatches:
    """Reads the batches of one run."""

    def __init__(self, store: BackupStore, kept_bytes: int = KEPT_BYTES) -> None:
        self._store = store
        self._kept_bytes = kept_bytes
        self._kept: OrderedDict[str, LoadedObject] = OrderedDict()
        self._size = 0
        self._loading = asyncio.Lock()

    def is_loaded(self, partition: PartitionBackup, offset: int) -> bool:
        """Whether `read` would return at once."""
        stored = object_at(partition, offset)
        return stored is None or stored.name in self._kept

    async def read(self, partition: PartitionBackup, offset: int, bytes_max: int) -> memoryview:
        """Whole batches from `offset` on, of one object; empty at the end. Raises DamagedBackupError, KafkaError."""
        stored = object_at(partition, offset)
        return memoryview(b"") if stored is None else (await self.load(stored)).from_offset(offset, bytes_max)

    async def load(self, stored: StoredBatches) -> LoadedObject:
        """An object, checked. Raises DamagedBackupError, KafkaError."""
        async with self._loading:  # two requests for one object load it once
            found = self._kept.get(stored.name)
            if found is not None:
                self._kept.move_to_end(stored.name)
                return found
            found = parse_object(await self._store.read(stored), stored)
            self._kept[stored.name] = found
            self._size += len(found.data)
            while self._size > self._kept_bytes and len(self._kept) > 1:
                self._size -= len(self._kept.popitem(last=False)[1].data)
            return found


def object_at(partition: PartitionBackup, offset: int) -> StoredBatches | None:
    """The object with the first batch that ends after `offset`."""
    ends = [stored.end for stored in partition.objects]
    place = bisect_right(ends, offset)
    return partition.objects[place] if place < len(ends) else None


def readable_end(partition: PartitionBackup) -> int:
    """The offset after the last batch, at least the log start: the end of a log that has these batches. It is below the
    high watermark of the run if compaction has removed the last records."""
    return max(partition.log_start, partition.objects[-1].end if partition.objects else 0)
