"""Leader epochs (KIP-101, KIP-279) and their truncation."""

from __future__ import annotations

import pytest

from barnabas.server.storage.epochs import EpochEntry, LeaderEpochs
from barnabas.server.storage.values import EpochEndOffset


@pytest.fixture
def epochs() -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(2, 10), EpochEntry(4, 20), EpochEntry(7, 30)])


def test_end_offsets(epochs: LeaderEpochs) -> None:
    assert epochs.end_offset(7, 40) == EpochEndOffset(7, 40)
    assert epochs.end_offset(4, 40) == EpochEndOffset(4, 30)
    assert epochs.end_offset(5, 40) == EpochEndOffset(4, 30)  # never led here: the largest below it
    assert epochs.end_offset(1, 40) == EpochEndOffset(1, 10)  # older than all: where the oldest starts
    assert epochs.end_offset(8, 40) == EpochEndOffset(-1, -1)
    assert epochs.end_offset(-1, 40) == EpochEndOffset(-1, -1)
    assert LeaderEpochs().end_offset(0, 40) == EpochEndOffset(-1, -1)


def test_epoch_of_an_offset(epochs: LeaderEpochs) -> None:
    assert [epochs.epoch_for_offset(o) for o in (9, 10, 19, 20, 29, 30, 99)] == [None, 2, 2, 4, 4, 7, 7]
    assert epochs.previous_epoch(7) == 4
    assert epochs.previous_epoch(2) is None


def test_assign(epochs: LeaderEpochs) -> None:
    assert not epochs.changed
    assert not epochs.assign(7, 35)
    assert epochs.assign(8, 50)
    assert epochs.changed
    assert epochs.assign(9, 25)  # contradicts 7 and 8
    assert epochs.entries == (EpochEntry(2, 10), EpochEntry(4, 20), EpochEntry(9, 25))
    with pytest.raises(ValueError, match="cannot start"):
        epochs.assign(-1, 0)


def test_same_start_offset_replaces_an_epoch_that_wrote_nothing(epochs: LeaderEpochs) -> None:
    epochs.assign(8, 30)
    assert epochs.entries == (EpochEntry(2, 10), EpochEntry(4, 20), EpochEntry(8, 30))


def test_truncate_from_end(epochs: LeaderEpochs) -> None:
    epochs.truncate_from_end(30)
    assert epochs.entries == (EpochEntry(2, 10), EpochEntry(4, 20))


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (5, [(2, 10), (4, 20), (7, 30)]),
        (10, [(2, 10), (4, 20), (7, 30)]),
        (15, [(2, 15), (4, 20), (7, 30)]),
        (20, [(4, 20), (7, 30)]),
        (99, [(7, 99)]),
    ],
)
def test_truncate_from_start(epochs: LeaderEpochs, start: int, expected: list[tuple[int, int]]) -> None:
    epochs.truncate_from_start(start)
    assert [tuple(e) for e in epochs.entries] == expected
    assert epochs.changed == (start > 10)
