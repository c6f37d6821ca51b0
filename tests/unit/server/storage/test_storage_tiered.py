"""A tiered log: local segments are deleted only after they have been copied, and the log keeps its start (KIP-405)."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.storage.log import Log
from barnabas.server.storage.producers.state import ProducerEntry
from barnabas.server.storage.retention import RetentionVerdict
from tests.configs import log_config
from tests.unit.server.storage.logs import LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk


def tiered(batches: int = 18, **config: Any) -> LogHarness:
    """A tiered log of four segments."""
    harness = LogHarness(config=log_config(internal_segment_bytes=400, tiered=True, **config))
    harness.fill(batches)
    return harness


def bases(log: Log) -> list[int]:
    return log.segments.bases


def retain(log: Log, now_ms: int = 10_000) -> int:
    log.flush()
    return log.enforce_retention(now_ms, log.log_end_offset)


@pytest.mark.parametrize("limits", [{"local_retention_ms": 1}, {"local_retention_bytes": 1}, {"retention_ms": 1}])
def test_only_segments_that_were_copied_are_deleted(limits: dict[str, int]) -> None:
    log = tiered(**limits).log
    all_bases = bases(log)
    assert len(all_bases) > 3
    assert retain(log) == 0
    assert log.explain_retention(log.log_end_offset, 10_000).verdict is RetentionVerdict.NOT_COPIED
    log.highest_copied_offset = all_bases[2] - 2  # the second segment is not complete in the store
    assert retain(log) == 1 and bases(log) == all_bases[1:]
    log.highest_copied_offset = all_bases[2] - 1
    assert retain(log) == 1 and bases(log) == all_bases[2:]


def test_the_log_start_stays_and_the_local_start_moves() -> None:
    log = tiered(local_retention_ms=1).log
    log.highest_copied_offset = bases(log)[1] - 1
    retain(log)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, bases(log)[0])
    assert log.epoch_for_offset(0) == 0


def test_a_power_loss_after_an_election_leaves_the_epochs_of_copied_records() -> None:
    harness = tiered(local_retention_ms=1)
    log = harness.log
    log.highest_copied_offset = bases(log)[2] - 1
    assert retain(log) == 2
    recovery_point = log.recovery_point
    harness.append(batch(), epoch=1)
    assert isinstance(harness.disk, MemoryDisk)
    harness.disk.sync_dir(harness.path)  # as the next roll does: the name is durable, the bytes were not
    harness.disk.lose_power()
    log = harness.open(recovery_point=recovery_point)
    assert log.epoch_for_offset(0) == 0


def test_segments_within_the_local_limits_stay_after_they_were_copied() -> None:
    log = tiered(retention_ms=9_000_000, local_retention_ms=8_000_000).log
    log.highest_copied_offset = log.log_end_offset
    assert retain(log, now_ms=8_000_000) == 0
    assert log.explain_retention(log.log_end_offset, 8_000_000).verdict is RetentionVerdict.WITHIN_LIMITS
    assert retain(log, now_ms=8_002_000) > 0


def test_the_active_segment_stays() -> None:
    log = tiered(local_retention_ms=0, local_retention_bytes=0).log
    log.highest_copied_offset = log.segments.active.base_offset - 1
    active = log.segments.active.base_offset
    retain(log)
    assert bases(log) == [active]


def test_segments_below_the_log_start_are_deleted_without_a_copy() -> None:
    log = tiered().log
    second = bases(log)[1]
    log.advance_log_start(second)
    assert retain(log, now_ms=2_000) == 1
    assert (log.log_start_offset, log.local_log_start_offset) == (second, second)


def test_a_read_below_the_local_start_says_where_the_records_are() -> None:
    log = tiered(local_retention_ms=1).log
    log.highest_copied_offset = bases(log)[1] - 1
    retain(log)
    first = bases(log)[0]
    with pytest.raises(KafkaError, match=f"is in the object store; the local log starts at {first}") as moved:
        log.read(first - 1, 100)
    assert moved.value.code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert log.read(first, 100).first_offset == first
    log.advance_log_start(1)
    with pytest.raises(KafkaError) as out_of_range:
        log.read(0, 100)
    assert out_of_range.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("clean", [True, False])
def test_the_log_start_survives_a_restart(clean: bool) -> None:
    harness = tiered(local_retention_ms=1)
    log = harness.log
    log.highest_copied_offset = bases(log)[1] - 1
    retain(log)
    first = bases(log)[0]
    log.advance_log_start(1)
    log = harness.restart() if clean else harness.kill(log_start_offset=1)
    assert (log.log_start_offset, log.local_log_start_offset) == (1, first)
    assert [entry.start_offset for entry in log.epoch_entries] == [1]


def test_without_tiered_storage_the_limits_are_those_of_the_whole_log() -> None:
    config = log_config(retention_ms=7, retention_bytes=8, local_retention_ms=1, local_retention_bytes=2)
    assert config.limits == (7, 8)
    assert log_config(tiered=True, retention_ms=7, retention_bytes=8).limits == (7, 8)
    assert log_config(tiered=True, local_retention_ms=1, local_retention_bytes=2).limits == (1, 2)


def rebuilt(harness: LogHarness) -> Log:
    """A log that continues at offset 100 above copies from 40 on."""
    epochs = [EpochEntry(1, 0), EpochEntry(3, 60)]
    harness.log.continue_above_copies(100, 40, epochs, [ProducerEntry(7, 2)], now_ms=1)
    return harness.log


def test_a_log_continues_above_the_copies_and_survives_a_restart() -> None:
    harness = tiered()
    log = rebuilt(harness)
    for _ in range(2):
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (40, 100, 100)
        assert log.epoch_entries == (EpochEntry(1, 40), EpochEntry(3, 60))
        assert [entry.producer_id for entry in log.producers.entries] == [7]
        assert not log.lacks_lineage
        log = harness.kill(log_start_offset=40)


def test_an_interrupted_continuation_is_recognised() -> None:
    harness = tiered()
    harness.log.truncate_fully_and_start_at(100, 40)
    assert harness.log.lacks_lineage
    assert harness.kill(log_start_offset=40).lacks_lineage


def test_without_tiered_storage_a_log_is_never_incomplete() -> None:
    assert not LogHarness(config=log_config()).log.lacks_lineage
