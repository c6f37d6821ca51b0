"""The batches of a response that a run stores, and those of an object by offset."""

from __future__ import annotations

import pytest

from barnabas.backup.errors import DamagedBackupError
from barnabas.backup.pieces import whole_batches
from barnabas.backup.serving.batches import object_at, parse_object, readable_end
from barnabas.protocol.records.errors import CorruptBatchError
from tests.unit.backup.batches import batch, marker, partition, stored

LOG = [batch(0), batch(2), batch(6, epoch=4), marker(8, 5, commit=True)]
DATA = b"".join(LOG)


def test_whole_batches_of_the_range_are_taken_as_they_are() -> None:
    (piece,) = whole_batches(DATA + batch(9)[:20], 2, 8, 1 << 20)
    assert (bytes(piece.data), piece.start, piece.end) == (LOG[1] + LOG[2], 2, 8)
    assert (piece.batches, piece.last_epoch, piece.transactional) == (2, 4, False)


def test_a_batch_around_the_position_is_taken_whole() -> None:
    (piece,) = whole_batches(DATA, 3, 9, 1 << 20)
    assert (piece.start, piece.end, piece.transactional) == (2, 9, True)


def test_nothing_in_the_range_is_no_piece() -> None:
    assert whole_batches(DATA, 9, 20, 1) == []
    assert whole_batches(b"", 0, 20, 1) == []


def test_pieces_end_when_they_are_large_enough() -> None:
    pieces = whole_batches(DATA, 0, 9, len(LOG[0]) + 1)
    assert [(bytes(one.data), one.start, one.end, one.batches, one.transactional) for one in pieces] == [
        (LOG[0] + LOG[1], 0, 4, 2, False),
        (LOG[2] + LOG[3], 6, 9, 2, True),
    ]
    assert [bytes(one.data) for one in whole_batches(DATA, 0, 9, 1)] == LOG


def test_damaged_bytes_are_not_backed_up() -> None:
    damaged = bytearray(DATA)
    damaged[len(LOG[0]) + 70] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        whole_batches(bytes(damaged), 0, 9, 1)


def test_batches_are_found_by_offset() -> None:
    loaded = parse_object(DATA, stored(0, 9, DATA, batches=4))
    assert bytes(loaded.from_offset(0, 1)) == LOG[0]
    assert bytes(loaded.from_offset(1, len(LOG[0]) + len(LOG[1]))) == LOG[0] + LOG[1]
    assert bytes(loaded.from_offset(4, 1)) == LOG[2]  # a gap: the next batch
    assert bytes(loaded.from_offset(7, 1 << 20)) == LOG[2] + LOG[3]
    assert bytes(loaded.from_offset(9, 1 << 20)) == b""
    whole = [bytes(loaded.from_offset(0, size)) for size in range(1, len(DATA) + 2)]
    assert all(DATA.startswith(part) and part for part in whole)
    assert all(len(part) <= max(size, len(LOG[0])) for size, part in enumerate(whole, 1))


@pytest.mark.parametrize(
    ("data", "batches"), [(DATA[:-1], 4), (DATA, 3), (LOG[1] + LOG[0], 2), (b"x" * 200, 1), (b"", 0)]
)
def test_an_object_without_its_batches_is_damaged(data: bytes, batches: int) -> None:
    with pytest.raises(DamagedBackupError):
        parse_object(data, stored(0, 9, data, batches=batches))


def test_the_object_of_an_offset_and_the_readable_end() -> None:
    kept = partition(5, 30, stored(0, 10), stored(12, 20))
    assert [object_at(kept, offset) for offset in (5, 10, 19, 20)] == [
        kept.objects[0],
        kept.objects[1],
        kept.objects[1],
        None,
    ]
    assert (readable_end(kept), readable_end(partition(40, 40))) == (20, 40)
