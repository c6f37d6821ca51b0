"""`CommittedOffsets`: pending offsets of open transactions."""

from __future__ import annotations

from barnabas.core.ids import NO_PRODUCER_ID
from barnabas.server.coordination.group.offset_store import (
    CommittedOffset,
    CommittedOffsets,
    commit_record,
    commit_tombstone,
)
from barnabas.server.coordination.operation import CoordinatorRecord
from barnabas.server.coordination.timeline import Timeline

OFFSET = CommittedOffset(5, -1, "", 1_000)


def _apply(store: CommittedOffsets, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
    store.apply(record.key, record.value, 0, producer_id)


def test_deleting_the_pending_offsets_of_a_group_ends_its_open_transactions() -> None:
    store = CommittedOffsets(Timeline())
    _apply(store, commit_record("g", "t", 0, OFFSET), producer_id=9)
    _apply(store, commit_record("g", "t", 1, OFFSET), producer_id=9)
    _apply(store, commit_record("h", "t", 0, OFFSET), producer_id=9)

    _apply(store, commit_tombstone("g", "t", 0))
    assert store.has_open_transactions("g")
    _apply(store, commit_tombstone("g", "t", 1))
    assert not store.has_open_transactions("g")
    assert store.groups() == ["h"]

    store.apply_marker(9, committed=True)
    assert store.groups() == ["h"]
    assert store.get("g", "t", 0) is None
    assert not store.has_open_transactions("h")
