"""Opening logs after a clean shutdown, a crash, or an interrupted operation."""

from __future__ import annotations

import pytest

from barnabas.protocol.records.batch import iter_batches
from barnabas.server.storage.values import RecoveryReport
from tests.configs import log_config
from tests.unit.server.storage.logs import PATH, LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk

SIZE = len(batch())
SMALL = log_config(internal_segment_bytes=4 * SIZE, index_interval_bytes=SIZE)


def path(base: int, suffix: str) -> str:
    return f"{PATH}/{base:020d}{suffix}"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def logs(disk: MemoryDisk) -> LogHarness:
    harness = LogHarness(disk=disk, config=SMALL)
    harness.fill(14)
    return harness


def offsets(logs: LogHarness) -> list[int]:
    return [h.base_offset for h in logs.headers()]


class TestCleanStart:
    def test_clean_start_scans_no_segment(self, logs: LogHarness, disk: MemoryDisk) -> None:
        logs.log.close()
        disk.opened.clear()
        logs.open(clean=True)
        assert logs.log.recovery == RecoveryReport(clean=True)
        assert (logs.log.log_end_offset, logs.log.recovery_point) == (14, 14)
        assert [p for p in disk.opened if p.endswith(".log")] == [path(12, ".log")]
        assert offsets(logs) == list(range(14))

    def test_closing_an_untouched_log_writes_nothing(self, logs: LogHarness, disk: MemoryDisk) -> None:
        logs.restart()
        disk.syncs.clear()
        logs.log.close()
        assert disk.syncs == []

    def test_indexes_are_complete_after_a_clean_shutdown(self, logs: LogHarness, disk: MemoryDisk) -> None:
        logs.log.close()
        for name, data in disk.files(PATH).items():
            if name.endswith(".index"):
                assert len(data) % 8 == 0
            if name.endswith(".timeindex"):
                assert len(data) % 12 == 0
                assert len(data) > 0

    def test_appends_continue_after_a_restart(self, logs: LogHarness) -> None:
        logs.restart()
        logs.fill(10)
        logs.restart()
        assert offsets(logs) == list(range(24))

    def test_a_missing_index_is_rebuilt(self, logs: LogHarness, disk: MemoryDisk) -> None:
        logs.log.close()
        before = disk.files(PATH)
        disk.unlink(path(4, ".index"))
        logs.open(clean=True)
        assert logs.log.recovery.indexes_rebuilt == 1
        assert disk.files(PATH) == before
        assert offsets(logs) == list(range(14))

    def test_a_damaged_index_does_not_lose_records(self, logs: LogHarness, disk: MemoryDisk) -> None:
        logs.log.close()
        for base in (4, 12):
            disk.data(path(base, ".index"))[:] = b"\x7f" * 24
        logs.open(clean=True)
        assert offsets(logs) == list(range(14))
        logs.fill(3)
        assert offsets(logs) == list(range(17))

    def test_an_index_that_leads_into_a_batch_is_rebuilt_after_a_crash(
        self, logs: LogHarness, disk: MemoryDisk
    ) -> None:
        """Its last entry has a flipped bit: the position is inside of a batch, where no header begins."""
        logs.log.close()
        for base in (0, 4, 8):
            index = disk.data(path(base, ".index"))
            if index:
                index[-1] ^= 1
        logs.kill(recovery_point=14)
        assert offsets(logs) == list(range(14))

    @pytest.mark.parametrize("damage", [b"", b"\0" * 24, b"\x7f" * 7])
    def test_a_damaged_time_index_is_read_from_the_log(self, logs: LogHarness, disk: MemoryDisk, damage: bytes) -> None:
        logs.log.close()
        for base in (4, 12):
            disk.data(path(base, ".timeindex"))[:] = damage
        logs.open(clean=True)
        if damage:  # an empty one is what Kafka writes when no record has a timestamp
            assert [s.max_timestamp for s in logs.log.segments] == [1003, 1007, 1011, 1013]
        found = logs.log.offset_for_timestamp(1009)
        assert found is not None
        assert found.offset == 9
        assert not logs.log.failed

    @pytest.mark.parametrize("lost", [12, 24])
    def test_a_lost_page_of_a_time_index_does_not_expire_records(
        self, logs: LogHarness, disk: MemoryDisk, lost: int
    ) -> None:
        disk.data(path(4, ".timeindex"))[:] = bytes(lost)
        logs.kill(recovery_point=12)  # segment 4 was synced before it was closed, its index was not
        assert logs.log.offset_for_timestamp(1005) is not None  # reads the whole index, as a roll or a truncation does
        assert [s.max_timestamp for s in logs.log.segments] == [1003, 1007, 1011, 1013]

    def test_incomplete_last_batch_is_truncated_after_a_clean_shutdown(
        self, logs: LogHarness, disk: MemoryDisk
    ) -> None:
        logs.log.close()
        del disk.data(path(12, ".log"))[-5:]
        logs.open(clean=True)
        assert logs.log.log_end_offset == 13
        logs.fill(1)
        assert offsets(logs) == list(range(14))

    def test_preallocated_index_files_of_kafka(self, logs: LogHarness, disk: MemoryDisk) -> None:
        logs.log.close()
        disk.data(path(12, ".index")).extend(bytes(4096))
        disk.data(path(12, ".timeindex")).extend(bytes(4092))
        logs.kill(recovery_point=12)
        assert offsets(logs) == list(range(14))
        assert not disk.exists(path(12, ".index"))  # two batches: no entry is due yet, and a short segment has no index


class TestAfterACrash:
    def test_recovery_keeps_all_written_records(self, logs: LogHarness) -> None:
        logs.kill()
        assert offsets(logs) == list(range(14))
        assert logs.log.recovery == RecoveryReport(
            clean=False, segments_checked=4, bytes_checked=14 * SIZE, indexes_rebuilt=4
        )

    def test_recovery_checks_segments_from_the_recovery_point(self, logs: LogHarness) -> None:
        logs.kill(recovery_point=9)
        assert logs.log.recovery.segments_checked == 2
        assert logs.log.recovery_point == 9
        assert offsets(logs) == list(range(14))

    def test_lost_page_truncates_the_log(self, logs: LogHarness, disk: MemoryDisk) -> None:
        disk.data(path(4, ".log"))[2 * SIZE : 3 * SIZE] = bytes(SIZE)
        logs.kill()
        assert offsets(logs) == list(range(6))
        report = logs.log.recovery
        assert (report.bytes_truncated, report.segments_dropped) == (2 * SIZE, 2)
        assert logs.log.segments.bases == [0, 4]
        assert logs.append(batch()).first_offset == 6

    def test_damage_below_the_recovery_point_is_not_detected(self, logs: LogHarness, disk: MemoryDisk) -> None:
        disk.data(path(0, ".log"))[70] ^= 1
        logs.kill(recovery_point=12)
        assert logs.log.log_end_offset == 14

    def test_decreasing_offset_truncates_the_log(self, logs: LogHarness, disk: MemoryDisk) -> None:
        disk.data(path(12, ".log"))[SIZE : SIZE + 8] = (3).to_bytes(8, "big")  # outside the CRC
        logs.kill()
        assert logs.log.log_end_offset == 13

    def test_truncated_records_do_not_reappear(self, disk: MemoryDisk) -> None:
        """The power fails after a truncation: the log file has the old batches, the epoch checkpoint the new epochs."""
        logs = LogHarness(disk=disk)
        for epoch in (0, 1, 1):
            logs.append(batch(), epoch=epoch)
        before = bytes(disk.data(path(0, ".log")))
        logs.log.truncate_to(1)
        logs.append(batch(value=b"other"), epoch=2)
        disk.data(path(0, ".log"))[:] = before
        logs.kill()
        assert (logs.log.log_end_offset, logs.log.recovery.bytes_truncated) == (1, 2 * SIZE)
        assert [(e.epoch, e.start_offset) for e in logs.log.epoch_entries] == [(0, 0)]

    def test_epochs_are_rebuilt_from_the_log(self, disk: MemoryDisk) -> None:
        logs = LogHarness(disk=disk, config=SMALL)
        for epoch in (0, 0, 3, 3, 3, 7):
            logs.append(batch(), epoch=epoch)
        entries = logs.log.epoch_entries
        disk.data(f"{PATH}/leader-epoch-checkpoint")[:] = b""
        logs.kill(recovery_point=4)
        assert logs.log.epoch_entries == entries

    def test_log_start_beyond_the_end_empties_the_log(self, logs: LogHarness) -> None:
        logs.kill(log_start_offset=50)
        assert (logs.log.log_start_offset, logs.log.log_end_offset) == (50, 50)
        assert logs.append(batch()).first_offset == 50

    def test_two_recoveries_in_a_row(self, logs: LogHarness) -> None:
        logs.kill()
        logs.kill()
        logs.fill(3)
        logs.kill()
        assert offsets(logs) == list(range(17))

    def test_an_empty_directory(self, disk: MemoryDisk) -> None:
        logs = LogHarness(disk=disk)
        logs.kill(log_start_offset=7)
        assert logs.append(batch()).first_offset == 7

    def test_a_batch_larger_than_a_read(self, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("barnabas.server.storage.scanning._CHUNK", 100)
        logs = LogHarness(disk=disk)
        for size in (10, 500, 20, 3000):
            logs.append(batch(value=b"x" * size))
        logs.kill()
        assert offsets(logs) == [0, 1, 2, 3]

    @pytest.mark.parametrize("kept", [0, 2])
    def test_segments_after_a_gap_are_removed(self, logs: LogHarness, disk: MemoryDisk, kept: int) -> None:
        """A power failure removed whole batches at the end of a segment and left the next segment, without partial
        batches."""
        del disk.data(path(4, ".log"))[kept * SIZE :]
        logs.kill()
        assert offsets(logs) == list(range(4 + kept))
        assert logs.log.log_end_offset == 4 + kept

    @pytest.mark.parametrize(("cleaned", "end"), [(8, 14), (7, 6)])
    def test_gap_below_the_cleaned_offset_is_kept(
        self, logs: LogHarness, disk: MemoryDisk, cleaned: int, end: int
    ) -> None:
        """The log was compacted before cleanup.policy changed."""
        del disk.data(path(4, ".log"))[2 * SIZE :]
        logs.kill(cleaned_offset=cleaned)
        assert logs.log.log_end_offset == end

    def test_gap_copied_by_a_follower_is_kept(self, logs: LogHarness) -> None:
        """The leader's log was compacted. The new segment begins at the log's end, so recovery finds no gap."""
        end = logs.log.log_end_offset
        logs.log.roll(0)
        assert logs.log.append_as_follower(batch(base_offset=end + 5, leader_epoch=0), now_ms=0) is not None
        for base in range(end + 7, end + 20, 2):  # more than a segment
            assert logs.log.append_as_follower(batch(base_offset=base, leader_epoch=0), now_ms=0) is not None
        before = offsets(logs)
        logs.kill()
        assert offsets(logs) == before

    def test_a_compacted_log_may_have_gaps(self, disk: MemoryDisk) -> None:
        compacted = log_config(internal_segment_bytes=4 * SIZE, index_interval_bytes=SIZE, cleanup_policy=("compact",))
        logs = LogHarness(disk=disk, config=compacted)
        logs.fill(14)
        del disk.data(path(4, ".log"))[2 * SIZE :]
        logs.kill()
        assert offsets(logs) == [0, 1, 2, 3, 4, 5, *range(8, 14)]


class TestLeftovers:
    def test_deleted_and_temporary_files_are_removed(self, logs: LogHarness, disk: MemoryDisk) -> None:
        for name in ("00000000000000000000.log.deleted", "00000000000000000004.index.cleaned", "x.tmp"):
            disk.put(f"{PATH}/{name}", b"junk")
        disk.put(f"{PATH}/quorum-state", b"{}")
        logs.kill()
        assert not [n for n in disk.listdir(PATH) if n.endswith((".deleted", ".cleaned", ".tmp"))]
        assert disk.exists(f"{PATH}/quorum-state")
        assert offsets(logs) == list(range(14))

    def test_index_without_log_is_ignored(self, logs: LogHarness, disk: MemoryDisk) -> None:
        disk.put(path(8, ".index.deleted"), b"")
        disk.put(path(99, ".timeindex"), b"")
        logs.kill()
        assert offsets(logs) == list(range(14))

    def test_replacement_survives_a_crash_at_each_step(self) -> None:
        """Compaction of segments 0 and 4 into one with offsets 0 and 7. After a crash the log is the old or the new
        one."""
        before, after = list(range(14)), [0, 7, *range(8, 14)]
        outcomes = []
        steps = 0
        while True:
            disk = StepDisk()
            logs = LogHarness(disk=disk, config=SMALL)
            logs.fill(14)
            replacement = logs.new_segment(0)
            for segment, wanted in zip(list(logs.log.segments)[:2], (0, 7), strict=True):
                data = segment.file().read_at(0, segment.size)
                for position, header in iter_batches(data):
                    if header.base_offset == wanted:
                        replacement.append((data[position : position + header.size],), (header,), header.size)
            replacement.seal()
            disk.steps_left = steps
            finished = False
            try:
                logs.replace_segments(replacement, list(logs.log.segments)[:2])
                finished = True
            except PowerCutError:
                pass
            disk.steps_left = None
            logs.kill()
            found = offsets(logs)
            assert found in (before, after), f"killed after {steps} steps"
            outcomes.append(found)
            assert not [n for n in disk.listdir(PATH) if n.endswith((".swap", ".cleaned", ".deleted"))]
            if finished:
                break
            steps += 1
        assert outcomes[0] == before
        assert outcomes[-1] == after
        assert outcomes == sorted(outcomes, key=lambda o: o == after)


class PowerCutError(Exception):
    """Raised in place of a rename."""


class StepDisk(MemoryDisk):
    """A disk that fails after a number of renames."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_left: int | None = None

    def rename(self, source: str, target: str) -> None:
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise PowerCutError
            self.steps_left -= 1
        super().rename(source, target)
