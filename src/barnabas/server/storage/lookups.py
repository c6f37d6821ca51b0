"""Shell: finding records by timestamp (ListOffsets). Batches are searched by their headers; one of them is opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.protocol.records.batch import Record, iter_records
from barnabas.server.storage.segments.batches import walk_headers
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.values import TimestampOffset

if TYPE_CHECKING:
    from barnabas.server.storage.log import Log


def offset_for_timestamp(self: Log, timestamp: int) -> TimestampOffset | None:
    """The first record that is not older than `timestamp`, or None."""
    with self.guarded():
        start = self.log_start_offset
        for segment in list(self.segments):
            if segment.max_timestamp < timestamp:
                continue
            self.keep_warm(segment)
            known = segment.time_index.lookup(timestamp)
            for record, epoch in _records(segment, segment.lookup(max(known.offset, start)), timestamp):
                if record.timestamp >= timestamp and record.offset >= start:
                    return TimestampOffset(record.timestamp, record.offset, epoch)
        return None


def offset_of_max_timestamp(self: Log) -> TimestampOffset | None:
    """The first record with the largest timestamp, or None for an empty log (KIP-734)."""
    with self.guarded():
        segment = max(self.segments, key=lambda s: (s.max_timestamp, -s.base_offset))
        largest = segment.max_timestamp
        found = segment.find(segment.offset_of_max_timestamp) if largest >= 0 else None
        if found is not None:
            for record, epoch in _records(segment, found.position, largest):
                if record.timestamp == largest:
                    return TimestampOffset(record.timestamp, record.offset, epoch)
        return None


def _records(segment: Segment, position: int, timestamp: int) -> Iterator[tuple[Record, int]]:
    """Records, with their leader epoch, of the batches from `position` on that reach `timestamp`."""
    file = segment.file()
    for at, header in walk_headers(file, position, segment.size):
        if header.max_timestamp >= timestamp:
            for record in iter_records(segment.read_batch(file, at, header), 0, header):
                yield record, header.partition_leader_epoch
