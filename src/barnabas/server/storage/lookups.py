"""Shell: finding records by timestamp (ListOffsets).

The search reads batch headers, and decodes the records of the batches that reach the timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.protocol.records.batch import Record, iter_records
from barnabas.server.storage.segments.batches import walk_headers
from barnabas.server.storage.segments.segment import Segment
from barnabas.server.storage.state import LogState
from barnabas.server.storage.values import TimestampOffset


def offset_for_timestamp(state: LogState, timestamp: int) -> TimestampOffset | None:
    """The first record whose timestamp is not less than `timestamp`, or None."""
    with state.guarded():
        start = state.log_start_offset
        for segment in list(state.segments):
            if segment.max_timestamp < timestamp:
                continue
            known = segment.time_index.lookup(timestamp)
            for record, epoch in _records(segment, segment.lookup(max(known.offset, start)), timestamp):
                if record.timestamp >= timestamp and record.offset >= start:
                    return TimestampOffset(record.timestamp, record.offset, epoch)
        return None


def offset_of_max_timestamp(state: LogState) -> TimestampOffset | None:
    """The first record with the largest timestamp, or None for an empty log (KIP-734)."""
    with state.guarded():
        segment = max(state.segments, key=lambda s: (s.max_timestamp, -s.base_offset))
        largest = segment.max_timestamp
        found = segment.find(segment.offset_of_max_timestamp) if largest >= 0 else None
        if found is not None:
            for record, epoch in _records(segment, found.position, largest):
                if record.timestamp == largest:
                    return TimestampOffset(record.timestamp, record.offset, epoch)
        return None


def _records(segment: Segment, position: int, timestamp: int) -> Iterator[tuple[Record, int]]:
    """The records, each with its leader epoch, of the batches from `position` on whose largest timestamp is not less
    than `timestamp`."""
    file = segment.file()
    for at, header in walk_headers(file, position, segment.size):
        if header.max_timestamp >= timestamp:
            for record in iter_records(segment.read_batch(file, at, header), 0, header):
                yield record, header.partition_leader_epoch
