"""Appends, reads, rolls, look-ups, retention, truncation, flushes and config of a log."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.errors import CorruptBatchError, RecordValidationError
from barnabas.server.metadata.configs.tables import TOPIC_CONFIGS
from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.storage.segments.open_segments import OpenSegments
from barnabas.server.storage.values import EpochEndOffset, TimestampOffset
from tests.configs import log_config
from tests.unit.server.storage.logs import PATH, LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk

SIZE = len(batch())
SMALL = log_config(internal_segment_bytes=3 * SIZE, file_delete_delay_ms=0)


class TestAppend:
    def test_offsets_follow_each_other(self) -> None:
        logs = LogHarness()
        first = logs.append(batch(3), epoch=5)
        second = logs.append(batch(2), epoch=5)
        assert (first.first_offset, first.last_offset) == (0, 2)
        assert (second.first_offset, second.last_offset) == (3, 4)
        assert [(h.base_offset, h.partition_leader_epoch) for h in logs.headers()] == [(0, 5), (3, 5)]

    def test_log_append_time(self) -> None:
        logs = LogHarness(config=log_config(message_timestamp_type="LogAppendTime"))
        assert logs.append(batch()).log_append_time_ms == logs.now_ms
        assert logs.headers()[0].max_timestamp == logs.now_ms

    def test_larger_than_a_segment(self) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=SIZE - 1))
        with pytest.raises(RecordValidationError) as e:
            logs.append(batch())
        assert e.value.code is ErrorCode.RECORD_LIST_TOO_LARGE

    def test_too_large_for_the_topic(self) -> None:
        logs = LogHarness(config=log_config(max_message_bytes=SIZE - 1))
        with pytest.raises(RecordValidationError) as e:
            logs.append(batch())
        assert e.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert logs.log.log_end_offset == 0

    def test_follower_keeps_offsets_and_epochs(self) -> None:
        logs = LogHarness()
        fetched = batch(2, base_offset=7, leader_epoch=3) + batch(base_offset=20, leader_epoch=4)
        info = logs.log.append_as_follower(fetched + batch()[:30], now_ms=0)
        assert info is not None
        assert (info.first_offset, info.last_offset, info.last_leader_epoch) == (7, 20, 4)
        assert logs.log.log_end_offset == 21
        assert logs.log.epoch_entries == (EpochEntry(3, 7), EpochEntry(4, 20))
        assert logs.log.append_as_follower(b"", now_ms=0) is None
        with pytest.raises(CorruptBatchError):
            logs.log.append_as_follower(batch(base_offset=20), now_ms=0)

    def test_follower_leaves_out_later_epochs(self) -> None:
        logs = LogHarness()
        fetched = batch(base_offset=0, leader_epoch=3) + batch(base_offset=1, leader_epoch=4)
        info = logs.log.append_as_follower(fetched, now_ms=0, leader_epoch=3)
        assert info is not None
        assert logs.log.log_end_offset == 1
        assert logs.log.append_as_follower(batch(base_offset=1, leader_epoch=4), now_ms=0, leader_epoch=3) is None

    def test_a_gap_too_wide_for_an_index_entry_rolls(self) -> None:
        logs = LogHarness()
        logs.log.append_as_follower(batch(base_offset=0), now_ms=0)
        logs.log.append_as_follower(batch(base_offset=1 << 33), now_ms=0)
        assert logs.log.segments.bases == [0, 1 << 33]


class TestRoll:
    def test_by_size(self) -> None:
        logs = LogHarness(config=SMALL)
        logs.fill(7)
        assert logs.log.segments.bases == [0, 3, 6]
        assert [s.size for s in logs.log.segments] == [3 * SIZE, 3 * SIZE, SIZE]

    def test_by_time_of_the_records(self) -> None:
        logs = LogHarness(config=log_config(segment_ms=100))
        for timestamp in (1000, 1100, 1101, 1150):
            logs.append(batch(timestamp=timestamp))
        assert logs.log.segments.bases == [0, 2]

    def test_by_time_survives_a_restart(self) -> None:
        logs = LogHarness(config=log_config(segment_ms=100))
        logs.append(batch(timestamp=1000))
        logs.restart()
        logs.append(batch(timestamp=1101))
        assert logs.log.segments.bases == [0, 1]

    def test_by_full_index(self) -> None:
        logs = LogHarness(config=log_config(segment_index_bytes=24, index_interval_bytes=0))
        logs.fill(4)
        assert logs.log.segments.bases == [0, 2]

    def test_jitter_is_bounded_and_repeatable(self) -> None:
        config = log_config(segment_jitter_ms=50, segment_ms=100)
        jitters = []
        for _ in range(2):
            logs = LogHarness(config=config)
            logs.append(batch())
            logs.log.roll(0)
            jitters.append(logs.log.segments.active.jitter_ms)
        assert jitters[0] == jitters[1]
        assert 0 <= jitters[0] < 50

    def test_empty_segment_does_not_roll(self) -> None:
        logs = LogHarness()
        logs.log.roll(0)
        assert logs.log.segments.bases == [0]

    def test_rolling_leaves_complete_index_files(self) -> None:
        logs = LogHarness(config=log_config(index_interval_bytes=SIZE))
        logs.fill(10)
        logs.log.roll(0)
        files = logs.disk.files(PATH)  # type: ignore[attr-defined]
        assert len(files["00000000000000000000.index"]) == 4 * 8
        assert len(files["00000000000000000000.timeindex"]) == 5 * 12  # the last one is the segment's youngest record
        assert "00000000000000000010.snapshot" in files
        assert "00000000000000000000.txnindex" not in files


class TestRead:
    def test_every_offset_from_every_offset(self) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=10 * SIZE, index_interval_bytes=2 * SIZE))
        for i in range(40):
            logs.append(batch(1 + i % 3))
        end = logs.log.log_end_offset
        for _ in range(2):
            for offset in range(end):
                result = logs.log.read(offset, 1)
                _, header = next(iter_batches(result.data))
                assert header.base_offset == result.first_offset
                assert header.base_offset <= offset <= header.last_offset
                assert len(result.data) == header.size
            logs.restart()

    def test_recent_batches_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("barnabas.server.storage.segments.recent_batches._BATCHES_MAX", 4)
        logs = LogHarness(config=log_config(index_interval_bytes=2 * SIZE))
        for i in range(30):
            logs.append(batch(2))
            for offset in range(2 * i + 2):
                assert logs.log.read(offset, 1).first_offset == offset // 2 * 2
        logs.log.truncate_to(40)
        assert logs.log.read(39, 1).first_offset == 38
        logs.append(batch(2))
        assert [logs.log.read(o, 1).first_offset for o in (0, 39, 40, 41)] == [0, 38, 40, 40]

    def test_limits(self) -> None:
        logs = LogHarness()
        logs.fill(5)
        assert logs.log.read(0, 10 * SIZE).size == 5 * SIZE
        assert logs.log.read(0, 2 * SIZE + 5).size == 2 * SIZE + 5  # a partial batch at the end is allowed
        assert logs.log.read(0, 10, min_one_batch=False).data == b""
        assert logs.log.read(0, 10 * SIZE, upper_offset=3).size == 3 * SIZE
        assert logs.log.read(3, 10 * SIZE, upper_offset=3).data == b""
        assert logs.log.read(5, 100).data == b""

    @pytest.mark.parametrize("offset", [-1, 6])
    def test_out_of_range(self, offset: int) -> None:
        logs = LogHarness()
        logs.fill(5)
        with pytest.raises(KafkaError) as e:
            logs.log.read(offset, 100)
        assert e.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_upper_offset_inside_a_sealed_segment(self) -> None:
        logs = LogHarness(config=SMALL)
        logs.fill(9)
        assert logs.log.read(0, 10 * SIZE, upper_offset=2).size == 2 * SIZE
        assert logs.log.read(3, 10 * SIZE, upper_offset=7).size == 3 * SIZE

    def test_gap_at_the_end_of_a_segment(self) -> None:
        logs = LogHarness()
        logs.log.append_as_follower(batch(base_offset=0), now_ms=0)
        logs.log.append_as_follower(batch(base_offset=5), now_ms=0)
        logs.log.roll(0)
        logs.log.append_as_follower(batch(base_offset=10), now_ms=0)
        assert logs.log.read(1, 10).first_offset == 5
        assert logs.log.read(6, 10).first_offset == 10

    def test_plan_survives_the_deletion_of_its_segment(self) -> None:
        logs = LogHarness(config=SMALL)
        logs.fill(7)
        plan = logs.log.plan_read(1, 10)
        logs.log.advance_log_start(6)
        logs.log.enforce_retention(0, 7)
        logs.log.delete_pending_files(1)
        assert plan.run().first_offset == 1

    def test_try_run_returns_none_if_it_would_wait(self) -> None:
        logs = LogHarness(config=SMALL)
        logs.fill(7)
        plan = logs.log.plan_read(6, 10)
        logs.disk.cold = True  # type: ignore[attr-defined]
        assert plan.try_run() is None
        logs.disk.cold = False  # type: ignore[attr-defined]
        found = plan.try_run()
        assert found is not None
        assert found.first_offset == 6

    def test_descriptors_are_bounded(self) -> None:
        logs = LogHarness(config=SMALL)
        logs.log._state.open_segments = OpenSegments(2)
        logs.fill(20)
        logs.log.flush()
        for offset in range(20):
            logs.log.read(offset, 10)
        held = [s for s in logs.log.segments if s._file is not None]
        assert len(held) <= 3, "two, and the first one, which has joined another pool"


class TestLookup:
    def test_by_timestamp(self) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=4 * SIZE, index_interval_bytes=0))
        for i, timestamp in enumerate((1000, 1500, 1200, 2000, 1800, 2500, 2400, 3000)):
            logs.append(batch(timestamp=timestamp), epoch=i // 4)
        for _ in range(2):
            log = logs.log
            assert log.offset_for_timestamp(0) == TimestampOffset(1000, 0, 0)
            assert log.offset_for_timestamp(1100) == TimestampOffset(1500, 1, 0)
            assert log.offset_for_timestamp(1501) == TimestampOffset(2000, 3, 0)
            assert log.offset_for_timestamp(2100) == TimestampOffset(2500, 5, 1)
            assert log.offset_for_timestamp(3001) is None
            assert log.offset_of_max_timestamp() == TimestampOffset(3000, 7, 1)
            logs.restart()

    def test_inside_a_batch(self) -> None:
        logs = LogHarness()
        logs.append(batch(10, timestamp=1000))
        assert logs.log.offset_for_timestamp(1004) == TimestampOffset(1004, 4, 0)
        assert logs.log.offset_of_max_timestamp() == TimestampOffset(1009, 9, 0)

    def test_lookup_ignores_records_below_the_log_start(self) -> None:
        logs = LogHarness()
        logs.fill(5)
        logs.log.advance_log_start(3)
        assert logs.log.offset_for_timestamp(0) == TimestampOffset(1003, 3, 0)

    def test_empty_log(self) -> None:
        logs = LogHarness()
        assert logs.log.offset_for_timestamp(0) is None
        assert logs.log.offset_of_max_timestamp() is None


class TestRetention:
    def test_by_time(self) -> None:
        logs = LogHarness(
            config=log_config(internal_segment_bytes=3 * SIZE, retention_ms=1000, file_delete_delay_ms=50)
        )
        logs.fill(7)
        assert logs.log.enforce_retention(now_ms=2002, high_watermark=7) == 0
        assert logs.log.enforce_retention(now_ms=2003, high_watermark=7) == 1
        assert logs.log.log_start_offset == 3
        names = logs.disk.listdir(PATH)
        assert "00000000000000000000.log.deleted" in names
        assert logs.log.delete_pending_files(2052) == 0
        assert logs.log.delete_pending_files(2053) == 1
        assert not [n for n in logs.disk.listdir(PATH) if n.endswith(".deleted")]

    def test_an_expired_active_segment_rolls_first(self) -> None:
        logs = LogHarness(config=log_config(retention_ms=1000))
        logs.fill(3)
        assert logs.log.enforce_retention(now_ms=10_000, high_watermark=3) == 1
        assert (logs.log.log_start_offset, logs.log.log_end_offset) == (3, 3)
        assert logs.append(batch()).first_offset == 3

    def test_retention_keeps_segments_above_the_high_watermark(self) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=3 * SIZE, retention_ms=1))
        logs.fill(7)
        assert logs.log.enforce_retention(now_ms=10**9, high_watermark=5) == 1

    def test_by_size(self) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=3 * SIZE, retention_bytes=5 * SIZE, retention_ms=-1))
        logs.fill(10)
        assert logs.log.enforce_retention(now_ms=0, high_watermark=10) == 1
        assert logs.log.size_bytes == 7 * SIZE

    def test_compacted_topics_lose_only_segments_below_the_log_start(self) -> None:
        logs = LogHarness(
            config=log_config(internal_segment_bytes=3 * SIZE, retention_ms=1, cleanup_policy=("compact",))
        )
        logs.fill(10)
        assert logs.log.enforce_retention(now_ms=10**9, high_watermark=10) == 0
        logs.log.advance_log_start(6)
        assert logs.log.enforce_retention(now_ms=10**9, high_watermark=10) == 2

    def test_delete_records(self) -> None:
        logs = LogHarness(config=SMALL)
        logs.fill(10)
        assert logs.log.delete_records(4, 10, now_ms=0) == 4
        assert logs.log.segments.bases == [3, 6, 9]
        assert logs.log.delete_records(2, 10, now_ms=0) == 4
        assert logs.log.delete_records(-1, 8, now_ms=0) == 8
        for offset in (9, -2):
            with pytest.raises(KafkaError) as e:
                logs.log.delete_records(offset, 8, now_ms=0)
            assert e.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        with pytest.raises(KafkaError):
            logs.log.read(7, 10)
        logs.log.update_config(log_config(cleanup_policy=("compact",)))
        with pytest.raises(KafkaError) as e:
            logs.log.delete_records(9, 10, now_ms=0)
        assert e.value.code is ErrorCode.POLICY_VIOLATION


class TestTruncate:
    @pytest.mark.parametrize("offset", range(10))
    def test_to_each_offset(self, offset: int) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=3 * SIZE, index_interval_bytes=0))
        for i in range(10):
            logs.append(batch(timestamp=1000 + i), epoch=i // 4)
        logs.log.flush()
        assert logs.log.truncate_to(offset)
        log = logs.log
        assert (log.log_end_offset, log.recovery_point) == (offset, offset)
        assert [h.base_offset for h in logs.headers()] == list(range(offset))
        assert [e.epoch for e in log.epoch_entries] == sorted({i // 4 for i in range(offset)})
        assert log.offset_for_timestamp(1000 + offset) is None
        info = logs.append(batch(timestamp=9999), epoch=7)
        assert info.first_offset == offset
        logs.kill()
        assert [h.base_offset for h in logs.headers()] == list(range(offset + 1))
        assert logs.log.offset_for_timestamp(2000) == TimestampOffset(9999, offset, 7)

    def test_at_or_beyond_the_end(self) -> None:
        logs = LogHarness()
        logs.fill(3)
        assert not logs.log.truncate_to(3)
        assert logs.log.log_end_offset == 3

    def test_truncation_at_the_end_removes_an_epoch_without_records(self) -> None:
        logs = LogHarness()
        logs.fill(3)
        latest = logs.log.latest_epoch
        logs.log.assign_epoch(9, 3)
        assert logs.log.latest_epoch == 9
        assert not logs.log.truncate_to(3)
        assert logs.log.latest_epoch == latest

    def test_below_the_first_segment(self) -> None:
        logs = LogHarness(config=SMALL)
        logs.fill(7)
        logs.log.delete_records(6, 7, now_ms=0)
        logs.log.truncate_to(2)
        assert (logs.log.log_start_offset, logs.log.log_end_offset) == (2, 2)
        assert logs.log.segments.bases == [2]

    def test_fully(self) -> None:
        logs = LogHarness(config=SMALL)
        logs.fill(7)
        logs.log.truncate_fully_and_start_at(100)
        assert (logs.log.log_start_offset, logs.log.log_end_offset, logs.log.size_bytes) == (100, 100, 0)
        assert logs.log.epoch_entries == ()
        assert logs.append(batch()).first_offset == 100
        logs.kill(log_start_offset=100)
        assert [h.base_offset for h in logs.headers()] == [100]


class TestEpochs:
    def test_end_offsets(self) -> None:
        logs = LogHarness()
        for epoch in (0, 0, 2, 5):
            logs.append(batch(), epoch=epoch)
        log = logs.log
        assert log.latest_epoch == 5
        assert log.epoch_end_offset(0) == EpochEndOffset(0, 2)
        assert log.epoch_end_offset(4) == EpochEndOffset(2, 3)
        assert log.epoch_end_offset(5) == EpochEndOffset(5, 4)
        assert log.epoch_for_offset(2) == 2
        log.assign_epoch(8, 4)
        assert logs.kill().latest_epoch is not None

    def test_log_start_truncates_the_oldest_epoch(self) -> None:
        logs = LogHarness()
        for epoch in (0, 0, 2, 5):
            logs.append(batch(), epoch=epoch)
        logs.log.advance_log_start(3)
        assert logs.log.epoch_entries == (EpochEntry(5, 3),)


class TestFlush:
    def test_flush_after_a_roll_omits_the_active_segment(self) -> None:
        logs = LogHarness(config=SMALL)
        assert not logs.log.flush_due(0)
        logs.fill(4)
        assert logs.log.flush_due(0)
        job = logs.log.flush_job(everything=False)
        assert job is not None
        assert logs.log.flush_job() is None  # one at a time
        job.run()
        job.finish()
        assert logs.log.recovery_point == 3
        assert f"{PATH}/00000000000000000003.log" not in logs.disk.syncs  # type: ignore[attr-defined]
        assert not logs.log.flush_due(0)

    def test_flush_messages_and_ms(self) -> None:
        logs = LogHarness(config=log_config(flush_messages=2, flush_ms=500))
        logs.append(batch())
        assert not logs.log.flush_due(logs.now_ms + 499)
        assert logs.log.flush_due(logs.now_ms + 500)
        logs.append(batch())
        assert logs.log.flush_due(logs.now_ms)
        logs.log.flush()
        assert logs.log.unflushed_messages == 0

    def test_truncation_during_a_flush_limits_the_recovery_point(self) -> None:
        logs = LogHarness()
        logs.fill(5)
        job = logs.log.flush_job()
        assert job is not None
        job.run()
        logs.log.truncate_to(2)
        logs.fill(5)
        job.finish()
        assert logs.log.recovery_point == 2

    def test_truncation_is_unsynced_until_a_flush(self) -> None:
        """What was cut off, and lay on the disk, is back after a power failure: nobody may count on more than is
        below, however much was appended since."""
        logs = LogHarness()
        logs.fill(4)
        logs.log.flush()
        assert logs.log.unsynced_truncation is None
        logs.log.truncate_to(2)
        logs.fill(3)
        logs.log.truncate_to(3)
        assert logs.log.unsynced_truncation == 2
        assert isinstance(logs.disk, MemoryDisk)
        before = logs.disk.clone()
        before.lose_power()
        assert LogHarness(before).open().log_end_offset == 4
        job = logs.log.flush_job()
        assert job is not None
        logs.log.truncate_to(1)
        job.run()
        job.finish()
        assert logs.log.unsynced_truncation == 1, "the flush had begun before"
        logs.log.flush()
        assert logs.log.unsynced_truncation is None
        logs.disk.lose_power()
        assert logs.open().log_end_offset == 1

    def test_flush_after_a_roll_syncs_a_truncation_below(self) -> None:
        """A flush after a roll covers a truncation only if it flushes the segment that was truncated."""
        logs = LogHarness(config=SMALL)
        logs.fill(2)
        logs.log.truncate_to(1)
        assert logs.log.flush_job(everything=False) is None
        while logs.log.segments.active.base_offset <= 1:
            logs.fill(1)
        job = logs.log.flush_job(everything=False)
        assert job is not None
        job.run()
        job.finish()
        assert logs.log.unsynced_truncation is None

    def test_flushed_records_survive_a_power_failure(self) -> None:
        logs = LogHarness(config=SMALL)
        disk = logs.disk
        assert isinstance(disk, MemoryDisk)
        disk.sync_dir("/")
        logs.fill(8)
        logs.log.flush()
        logs.fill(5)
        disk.lose_power(unsynced_bytes_kept=SIZE // 2)
        logs.open(recovery_point=8)
        assert [h.base_offset for h in logs.headers()] == list(range(8))
        assert logs.log.latest_epoch == 0


class TestReplaceSegments:
    def test_two_become_one(self) -> None:
        logs = LogHarness(config=replace(SMALL, cleanup_policy=("compact",)))
        logs.fill(8)
        log = logs.log
        old = list(log.segments)[:2]
        merged = logs.new_segment(0)
        for segment in old:
            data = segment.file().read_at(0, segment.size)
            (_, first), *_ = iter_batches(data)
            merged.append((data[: first.size],), (first,), first.size)
        merged.seal()
        logs.replace_segments(merged, old)
        assert log.segments.bases == [0, 6]
        assert [h.base_offset for h in logs.headers()] == [0, 3, 6, 7]
        assert log.read(4, 10).first_offset == 6
        assert log.delete_pending_files(0) == 2
        assert not [n for n in logs.disk.listdir(PATH) if n.count(".") > 1]
        logs.kill()
        assert [h.base_offset for h in logs.headers()] == [0, 3, 6, 7]


class TestConfig:
    def test_update(self) -> None:
        logs = LogHarness()
        logs.append(batch())
        logs.log.update_config(log_config(max_message_bytes=10))
        with pytest.raises(RecordValidationError):
            logs.append(batch())


@pytest.mark.parametrize("word", ["none", "brotli", ""])
def test_config_with_unknown_compression_type_is_rejected(word: str) -> None:
    with pytest.raises(KafkaError, match=r"compression\.type") as caught:
        TOPIC_CONFIGS.parse("compression.type", word)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


class TestMemory:
    """What the logs of a node with 20,000 partitions share instead of having it each."""

    def test_partitions_of_a_topic_share_their_validation_rules(self) -> None:
        config = log_config()
        one, other = LogHarness(config=config), LogHarness(config=config)
        assert one.log.client_rules is other.log.client_rules

    def test_logs_that_were_closed_cleanly_share_their_report(self) -> None:
        one, other = LogHarness(), LogHarness()
        for logs in (one, other):
            logs.append(batch())
            logs.restart()
        assert one.log.recovery is other.log.recovery
        assert one.log.recovery.clean
