"""The share coordinator: replaying its log, also a pruned one, gives the state of the live coordinator."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.errors import KafkaError
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import LogRecord
from barnabas.server.coordination.share.config import ShareCoordinatorConfig
from barnabas.server.coordination.share.shard import ShareShard
from barnabas.server.coordination.share.state import (
    AVAILABLE,
    PersisterStateBatch,
    ShareKey,
    StateWrite,
    merge_batches,
    newer_parts,
)
from barnabas.server.coordination.timeline import Timeline
from tests.configs import share_coordinator_config
from tests.unit.server.coordination.kit import Catalog, seeded

ACKNOWLEDGED = 2
KEYS = [ShareKey("g", UUID(int=1), 0), ShareKey("g", UUID(int=1), 1), ShareKey("h", UUID(int=2), 0)]


@st.composite
def batches(draw: st.DrawFn) -> tuple[PersisterStateBatch, ...]:
    """Batches in ascending order, without overlaps."""
    found, at = [], draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 4))):
        first = at + draw(st.integers(0, 4))
        last = first + draw(st.integers(0, 5))
        found.append(PersisterStateBatch(first, last, draw(st.sampled_from((0, 2, 4))), draw(st.integers(1, 3))))
        at = last + 1
    return tuple(found)


steps = st.one_of(
    st.tuples(st.just("initialize"), st.sampled_from(KEYS), st.integers(0, 3), st.integers(-1, 9)),
    st.tuples(st.just("read"), st.sampled_from(KEYS), st.integers(0, 4)),
    st.tuples(
        st.just("write"), st.sampled_from(KEYS), st.integers(0, 3), st.integers(0, 4), st.integers(-1, 20), batches()
    ),
    st.tuples(st.just("delete"), st.sampled_from(KEYS)),
    st.tuples(st.just("cold"), st.integers(1, 500)),
)


class Log:
    """A shard and its log."""

    def __init__(self, config: ShareCoordinatorConfig) -> None:
        self.config = config
        self.records: list[LogRecord] = []
        self.shard = self.fresh()
        self.now_ms = 0

    def fresh(self) -> ShareShard:
        timeline = Timeline()
        timeline.recording = False  # all records are committed at once
        return ShareShard(self.config, Catalog(t=2, u=1), timeline)

    def take(self, step: tuple[Any, ...]) -> None:
        op = WriteOperation(self.now_ms, seeded())
        shard = self.shard
        try:
            match step:
                case ("initialize", key, epoch, start):
                    shard.initialize(op, key, epoch, start)
                case ("read", key, epoch):
                    shard.read(op, key, epoch)
                case ("write", key, state_epoch, leader_epoch, start, changed):
                    shard.write(op, key, StateWrite(state_epoch, leader_epoch, start, 0, changed))
                case ("delete", key):
                    shard.delete(op, key)
                case ("cold", ms):
                    self.now_ms += ms
                    shard.snapshot_cold(op)
        except KafkaError:
            return
        for record in op.records:
            shard.apply(record, len(self.records), -1)
            self.records.append(shard.log_format.encode(record))

    def replay(self, start: int) -> ShareShard:
        shard = self.fresh()
        for offset, record in enumerate(self.records):
            if offset >= start:
                decoded = shard.log_format.decode(record)
                assert decoded is not None
                shard.apply(decoded, offset, -1)
        return shard


@settings(deadline=None)
@given(st.lists(steps, max_size=40), st.integers(0, 4))
def test_replay_gives_the_live_state(history: list[tuple[Any, ...]], updates: int) -> None:
    log = Log(
        share_coordinator_config(
            share_coordinator_snapshot_update_records_per_snapshot=updates,
            share_coordinator_cold_partition_snapshot_interval_ms=300,
        )
    )
    for step in history:
        log.take(step)
        assert all(state.updates <= updates for state in log.shard.states.values())
    live = log.shard.states.snapshot()
    assert log.replay(0).states.snapshot() == live
    pruned = log.replay(log.shard.redundant_before()).states.snapshot()
    assert pruned == live


@given(batches(), batches(), st.integers(0, 30))
def test_merge_batches_equals_a_merge_offset_by_offset(
    current: tuple[PersisterStateBatch, ...], news: tuple[PersisterStateBatch, ...], start: int
) -> None:
    model = {o: (b.state, b.deliveries) for b in (*current, *news) for o in range(b.first, b.last + 1) if o >= start}
    merged = merge_batches(current, news, start)
    assert {o: (b.state, b.deliveries) for b in merged for o in range(b.first, b.last + 1)} == model
    for one, other in pairwise(merged):
        assert one.last < other.first
        assert one.last + 1 < other.first or one[2:] != other[2:]


@given(batches(), batches())
def test_delayed_writes_have_no_newer_parts(
    current: tuple[PersisterStateBatch, ...], told: tuple[PersisterStateBatch, ...]
) -> None:
    known = {o: (b.deliveries, b.state != AVAILABLE) for b in current for o in range(b.first, b.last + 1)}
    news = newer_parts(current, told)
    kept = {o: (b.state, b.deliveries) for b in news for o in range(b.first, b.last + 1)}
    assert kept == {
        o: (b.state, b.deliveries)
        for b in told
        for o in range(b.first, b.last + 1)
        if o not in known or (not known[o][1] and known[o] < (b.deliveries, b.state != AVAILABLE))
    }
    after = merge_batches(current, news, 0)
    assert newer_parts(after, told) == () and newer_parts(after, current) == (), "said again, early or late"


def test_delayed_release_does_not_restore_completed_records() -> None:
    """A leader retried a read in the same epoch while an earlier write was still in flight."""
    log = Log(share_coordinator_config(share_coordinator_snapshot_update_records_per_snapshot=10))
    key = KEYS[0]
    log.take(("initialize", key, 1, 0))
    log.take(("write", key, 1, 5, 0, (PersisterStateBatch(0, 9, ACKNOWLEDGED, 1),)))
    log.take(
        (
            "write",
            key,
            1,
            5,
            0,
            (
                PersisterStateBatch(0, 3, ACKNOWLEDGED, 1),
                PersisterStateBatch(4, 6, AVAILABLE, 1),
                PersisterStateBatch(7, 12, AVAILABLE, 1),
            ),
        )
    )
    state = log.shard.states[key]
    assert state.batches == (PersisterStateBatch(0, 9, ACKNOWLEDGED, 1), PersisterStateBatch(10, 12, AVAILABLE, 1))
    assert log.replay(0).states[key] == state


@pytest.mark.parametrize("late", [(1, -1), (1, 0), (2, -1)])
def test_a_late_initialization_does_not_undo_acknowledgements(late: tuple[int, int]) -> None:
    """A group coordinator that had been replaced sent its request again, and every record was delivered again."""
    log = Log(share_coordinator_config(share_coordinator_snapshot_update_records_per_snapshot=10))
    key = KEYS[0]
    log.take(("initialize", key, 1, -1))
    log.take(("write", key, 1, 5, 20, (PersisterStateBatch(22, 29, ACKNOWLEDGED, 1),)))
    log.take(("initialize", key, *late))
    state = log.shard.states[key]
    assert (state.state_epoch, state.leader_epoch, state.start_offset) == (late[0], 5, 20)
    assert state.batches == (PersisterStateBatch(22, 29, ACKNOWLEDGED, 1),)
    assert log.replay(0).states[key] == state


def test_an_administrators_start_offset_replaces_the_state() -> None:
    log = Log(share_coordinator_config(share_coordinator_snapshot_update_records_per_snapshot=10))
    key = KEYS[0]
    log.take(("initialize", key, 1, 0))
    log.take(("write", key, 1, 5, 20, (PersisterStateBatch(22, 29, ACKNOWLEDGED, 1),)))
    log.take(("initialize", key, 2, 3))
    state = log.shard.states[key]
    assert (state.state_epoch, state.start_offset, state.batches) == (2, 3, ())


def test_coordinator_key_equals_kafkas() -> None:
    """`SharePartitionKey.asCoordinatorKey`: group, topic id in Kafka's text form, partition."""
    key = ShareKey("my-group", UUID("6da830a2-584d-4f46-b383-15e36fc47e07"), 3)
    assert key.coordinator_key == "my-group:bagwolhNT0azgxXjb8R-Bw:3"
