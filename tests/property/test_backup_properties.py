"""Backups: whatever a broker sends in a response, a run stores each batch once, and a restore finds it by offset."""

from __future__ import annotations

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.backup.pieces import Piece, whole_batches
from barnabas.backup.serving.batches import object_at, parse_object, readable_end
from barnabas.backup.values import PartitionBackup, StoredBatches
from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.build import SimpleRecord, build_batch

steps = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=12)
"""The holes before the batches of a log, and their numbers of records."""


def log_of(shape: list[tuple[int, int]]) -> list[bytes]:
    batches, offset = [], 0
    for hole, count in shape:
        offset += hole
        batches.append(build_batch([SimpleRecord(None, b"v", 1)] * count, base_offset=offset))
        offset += count
    return batches


def fetch(batches: list[bytes], position: int, whole: int, torn: int) -> bytes:
    """A response from the batch with `position` on: `whole` batches, and the beginning of the next one."""
    later = [one for one in batches if next(iter_batches(one))[1].next_offset > position]
    return b"".join(later[:whole]) + b"".join(later[whole:])[:torn]


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 30), st.data())
def test_each_batch_is_stored_once_and_found_by_offset(
    shape: list[tuple[int, int]], start: int, data: st.DataObject
) -> None:
    batches = log_of(shape)
    end = next(iter_batches(batches[-1]))[1].next_offset
    start = min(start, end - 1)
    expected = b"".join(one for one in batches if next(iter_batches(one))[1].next_offset > start)
    pieces: list[Piece] = []
    position = start
    while position < end:
        response = fetch(batches, position, data.draw(st.integers(1, 4)), data.draw(st.integers(0, 60)))
        found = whole_batches(response, position, end, data.draw(st.integers(1, 300)))
        pieces += found
        position = found[-1].end
    assert b"".join(bytes(piece.data) for piece in pieces) == expected
    objects = {}
    stored = []
    for number, piece in enumerate(pieces):
        content = bytes(piece.data)
        checksum = hashlib.sha256(content).hexdigest()
        entry = StoredBatches(str(number), piece.start, piece.end, len(content), checksum, piece.batches, 0)
        stored.append(entry)
        objects[entry.name] = parse_object(content, entry)
    partition = PartitionBackup(0, start, end, tuple(stored))
    assert readable_end(partition) == end
    restored, offset = b"", start
    while (entry := object_at(partition, offset)) is not None:
        part = bytes(objects[entry.name].from_offset(offset, data.draw(st.integers(1, 500))))
        restored += part
        offset = max(header.next_offset for _, header in iter_batches(part))
    assert (restored, offset) == (expected, end)
