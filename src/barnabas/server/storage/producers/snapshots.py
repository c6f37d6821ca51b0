"""Codec and Shell: snapshots of the producer state, with which a restart need not replay the whole log.

    Kafka's ProducerSnapshot (`protocol/records/log_files.py`)
    "earlier" | count int32 | count x
        { entry int32 (index above) | lastSequence int32 | lastOffset int64 | offsetDelta int32 | timestamp int64 }

The first part contains only the newest batch of each producer. A
producer with several requests in flight retries all of them after a restart of the leader. The second part therefore
contains up to four earlier batches of each producer, the oldest first. Kafka ignores the second part. Kafka's own files
do not have it; the missing batches are then unknown. `<offset>.snapshot` is the state of the records below that offset.
A snapshot is taken when a segment rolls, at the new base offset, and at a clean shutdown, at the end of the log.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.errors import LogFileError
from barnabas.protocol.records.log_files import (
    SnapshotProducer,
    decode_snapshot_producers,
    encode_snapshot_producers,
)
from barnabas.server.storage import names
from barnabas.server.storage.errors import CorruptSnapshotError, FileMissingError
from barnabas.server.storage.fs import Access, FileSystem, read_file
from barnabas.server.storage.producers.state import KnownBatch, ProducerEntry, ProducerState

log = get_logger("barnabas.server.storage")

_EARLIER: Final = b"earlier"
_COUNT: Final = Struct(">i")
_EARLIER_ENTRY: Final = Struct(">iiqiq")


def encode_snapshot(entries: list[ProducerEntry]) -> bytes:
    producers = []
    for e in entries:
        last = e.batches[-1] if e.batches else KnownBatch(-1, -1, 0, -1)
        producers.append(
            SnapshotProducer(
                e.producer_id,
                e.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                e.last_timestamp,
                e.coordinator_epoch,
                e.txn_first_offset,
            )
        )
    earlier = [(number, batch) for number, e in enumerate(entries) for batch in e.batches[:-1]]
    tail = b""
    if earlier:
        rows = (_EARLIER_ENTRY.pack(number, *batch) for number, batch in earlier)
        tail = b"".join([_EARLIER, _COUNT.pack(len(earlier)), *rows])
    return encode_snapshot_producers(producers, tail)


def decode_snapshot(data: bytes, what: str) -> list[ProducerEntry]:
    """The producers in the bytes of a `.snapshot` file; `what` names the file. Raises CorruptSnapshotError."""
    try:
        producers, tail = decode_snapshot_producers(data, what)
    except LogFileError as error:
        raise CorruptSnapshotError(str(error)) from None
    entries = []
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator, txn in producers:
        batches = [KnownBatch(sequence, offset, delta, timestamp)] if offset >= 0 else []
        entries.append(ProducerEntry(producer_id, epoch, coordinator, timestamp, txn, batches))
    if tail:
        _decode_earlier(tail, entries, what)
    return entries


def _decode_earlier(tail: memoryview, entries: list[ProducerEntry], what: str) -> None:
    """Insert the earlier batches before the newest one of each producer. Raises CorruptSnapshotError."""
    head = len(_EARLIER) + _COUNT.size
    if len(tail) < head or bytes(tail[: len(_EARLIER)]) != _EARLIER:
        raise CorruptSnapshotError(f"{what} has {len(tail)} unknown bytes at its end")
    (count,) = _COUNT.unpack_from(tail, len(_EARLIER))
    if len(tail) != head + count * _EARLIER_ENTRY.size:
        raise CorruptSnapshotError(f"{what} should contain {count} earlier batches and has {len(tail)} bytes")
    for number, sequence, offset, delta, timestamp in _EARLIER_ENTRY.iter_unpack(tail[head:]):
        if not 0 <= number < len(entries) or not entries[number].batches:
            raise CorruptSnapshotError(f"{what} has an earlier batch of producer {number} of {len(entries)}")
        entries[number].batches.insert(-1, KnownBatch(sequence, offset, delta, timestamp))


class SnapshotFiles:
    """The `.snapshot` files of one partition directory."""

    def __init__(self, fs: FileSystem, directory: str, offsets: list[int]) -> None:
        self._fs = fs
        self.directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return f"{self.directory}/{names.offset_file(offset, names.SNAPSHOT)}"

    def take(self, state: ProducerState) -> str | None:
        """Write a snapshot at the state's end offset, without a sync. Returns its path, or None if the file exists
        already."""
        offset = state.end_offset
        if self.offsets and self.offsets[-1] >= offset:
            return None
        path = self.path(offset)
        file = self._fs.open(path, Access.REPLACE)
        try:
            file.write_at(0, (encode_snapshot(state.entries),))
        finally:
            file.close()
        self.offsets.append(offset)
        return path

    def load_newest(self, state: ProducerState, log_start_offset: int, up_to: int, now_ms: int) -> bool:
        """Reset `state` to the newest readable snapshot that is not above `up_to`.

        Without a snapshot, the state is empty as of the log's start, and the result is False. A corrupt snapshot, which
        a crash can leave, is deleted, and the next older one is used.
        """
        for offset in reversed([o for o in self.offsets if log_start_offset < o <= up_to]):
            try:
                entries = decode_snapshot(read_file(self._fs, self.path(offset)), self.path(offset))
            except (CorruptSnapshotError, FileMissingError) as error:
                log.info("producers are rebuilt from an older snapshot and the records after it", reason=str(error))
                self.delete(offset)
                continue
            state.reset(offset, [e for e in entries if not state.is_expired(e, now_ms)])
            return True
        state.reset(log_start_offset)
        return False

    def delete(self, offset: int) -> None:
        self._fs.unlink(self.path(offset))
        self.offsets.remove(offset)

    def delete_outside(self, after: int, up_to: int) -> None:
        """Delete the snapshots whose offset is not above `after`, or is above `up_to`."""
        for offset in [o for o in self.offsets if not after < o <= up_to]:
            self.delete(offset)

    def delete_strays(self, segment_bases: list[int]) -> None:
        """Delete the snapshots that clean shutdowns have left between segments, except the newest (Kafka's
        removeStraySnapshots)."""
        bases = set(segment_bases)
        for offset in self.offsets[:-1]:
            if offset not in bases:
                self.delete(offset)

    def set_aside(self, offset: int) -> str | None:
        """Rename the snapshot at `offset` to `.deleted`. Returns the new path, or None if there is no such snapshot."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        target = self.path(offset) + names.DELETED
        self._fs.rename(self.path(offset), target)
        return target
