"""What a member held when its session ended: it was delivered, so it comes back counted, and not without end."""

from __future__ import annotations

from barnabas.server.replication.rules.share_partition import SharePartitionState
from barnabas.server.replication.rules.share_values import (
    Acquired,
    AcquireRequest,
    LogRange,
    RecordState,
    ShareStateWrite,
    StateBatch,
)
from tests.configs import share_partition_config

LIMITS = share_partition_config(share_delivery_count_limit=2)
LOG = [LogRange(0, 3)]


def test_released_delivery_counts_towards_the_limit() -> None:
    state = SharePartitionState(0)
    seen = []
    for _ in range(LIMITS.share_delivery_count_limit):
        got = state.acquire(AcquireRequest("m", 10), LIMITS, 0, LOG, 0)
        assert state.release("m", LIMITS) is not None
        seen.append((got, state.take_write()))
        state.settle(written=True)
    assert seen == [
        ([Acquired(0, 3, 1)], ShareStateWrite(1, 0, 0, [StateBatch(0, 3, RecordState.AVAILABLE, 1)])),
        ([Acquired(0, 3, 2)], ShareStateWrite(2, 0, 4, [StateBatch(0, 3, RecordState.ARCHIVED, 2)])),
    ]
    assert (state.start_offset, state.acquire(AcquireRequest("m", 10), LIMITS, 0, LOG, 0)) == (4, [])
