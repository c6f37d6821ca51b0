"""Full disks, I/O errors and failed syncs."""

from __future__ import annotations

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.server.storage.errors import DiskFullError, DiskIoError, LogFailedError
from tests.configs import log_config
from tests.unit.server.storage.logs import PATH, LogHarness, batch
from tests.unit.server.storage.memory_disk import MemoryDisk

SIZE = len(batch())


def offsets(logs: LogHarness) -> list[int]:
    return [h.base_offset for h in logs.headers()]


class TestDiskFull:
    @pytest.mark.parametrize("room", [0, 1, 60, SIZE - 1])
    def test_partially_written_batch_is_removed(self, room: int) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        logs.fill(3)
        disk.capacity = disk.used + room
        with pytest.raises(DiskFullError) as e:
            logs.append(batch())
        assert e.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(disk.data(f"{PATH}/{0:020d}.log")) == 3 * SIZE
        assert not logs.log.failed
        assert offsets(logs) == [0, 1, 2]
        disk.capacity = 1 << 30
        assert logs.append(batch()).first_offset == 3
        logs.kill()
        assert offsets(logs) == [0, 1, 2, 3]

    def test_log_line_names_the_log_and_what_to_do(self, caplog: pytest.LogCaptureFixture) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        disk.capacity = disk.used
        with pytest.raises(DiskFullError):
            logs.append(batch())
        assert "records were not written" in [record.getMessage() for record in caplog.records]

    def test_producer_state_is_untouched(self) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        data = batch(producer_id=1, producer_epoch=0, base_sequence=0)
        logs.append(batch(), epoch=0)
        disk.capacity = disk.used
        with pytest.raises(DiskFullError):
            logs.append(data)
        disk.capacity = 1 << 30
        assert not logs.append(data).duplicate

    @pytest.mark.parametrize("room", range(0, 200, 7))
    def test_while_rolling(self, room: int) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk, config=log_config(internal_segment_bytes=3 * SIZE, index_interval_bytes=0))
        logs.fill(3)
        disk.capacity = disk.used + room
        refused = False
        try:
            logs.append(batch())
        except DiskFullError:
            refused = True
        disk.capacity = 1 << 30
        assert refused == (logs.log.log_end_offset == 3)
        logs.fill(5)
        end = 8 if refused else 9
        assert offsets(logs) == list(range(end))
        logs.restart()
        assert offsets(logs) == list(range(end))

    def test_epoch_checkpoint_is_written_once_there_is_space(self) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        logs.append(batch(), epoch=0)
        disk.capacity = disk.used + SIZE
        logs.append(batch(), epoch=1)
        assert logs.log._state.epochs.changed
        disk.capacity = 1 << 30
        logs.log.flush()
        assert disk.files(PATH)["leader-epoch-checkpoint"] == b"0\n2\n0 0\n1 1\n"

    def test_recovery_point_stays_until_the_leader_epochs_are_written(self) -> None:
        """After a crash nobody looks for the epochs of batches below the recovery point."""
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        logs.append(batch(), epoch=0)
        logs.log.flush()
        disk.capacity = disk.used + SIZE
        logs.append(batch(), epoch=1)
        with pytest.raises(DiskFullError, match="leader epochs"):
            logs.log.flush_job(everything=True)
        assert logs.log.recovery_point == 1
        assert logs.log.failure is None
        disk.capacity = 1 << 30
        logs.log.flush()
        assert logs.log.recovery_point == 2
        assert disk.files(PATH)["leader-epoch-checkpoint"] == b"0\n2\n0 0\n1 1\n"


class TestIoErrors:
    def test_failed_write_takes_the_log_offline(self) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        logs.fill(2)
        disk.fail_writes = lambda path: path.endswith(".log")
        with pytest.raises(DiskIoError):
            logs.append(batch())
        assert logs.log.failed
        assert len(logs.failures) == 1
        disk.fail_writes = lambda path: False
        with pytest.raises(LogFailedError):
            logs.append(batch())
        with pytest.raises(LogFailedError):
            logs.log.read(0, 100)
        assert not logs.log.flush_due(10**12)
        assert logs.log.enforce_retention(10**12, 2) == 0
        assert logs.log.delete_pending_files(10**12) == 0
        logs.kill()
        assert offsets(logs) == [0, 1]

    def test_failed_removal_of_a_partial_batch_takes_the_log_offline(self) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        logs.fill(2)
        disk.capacity = disk.used + 10
        disk.fail_truncates = lambda path: True
        with pytest.raises(DiskIoError):
            logs.append(batch())
        assert logs.log.failed

    def test_failed_read_takes_the_log_offline(self) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        logs.fill(2)
        disk.fail_reads = lambda path: True
        with pytest.raises(DiskIoError):
            logs.log.read(0, 100)
        assert len(logs.failures) == 1

    def test_failed_sync_is_not_retried(self) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        logs.fill(2)
        disk.fail_syncs = lambda path: path.endswith(".log")
        job = logs.log.flush_job()
        assert job is not None
        with pytest.raises(DiskIoError) as e:
            job.run()
        job.failed(e.value)
        disk.fail_syncs = lambda path: False
        assert logs.log.failed
        assert logs.failures == [e.value]
        assert logs.log.recovery_point == 0
        with pytest.raises(LogFailedError):
            logs.log.flush()

    def test_close_of_an_offline_log_raises_nothing(self) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        logs.fill(2)
        disk.fail_syncs = lambda path: True
        with pytest.raises(DiskIoError):
            logs.log.close()
        logs.log.close()
        assert len(logs.failures) == 1


def test_a_segment_flushed_to_its_end_and_then_rolled_keeps_its_indexes() -> None:
    """A regression: after a power failure, records of an aborted transaction were read as committed."""
    disk = MemoryDisk()
    logs = LogHarness(disk=disk, config=log_config(internal_segment_bytes=4 * SIZE, index_interval_bytes=0))
    logs.append(batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    logs.marker(1, 0, commit=False)
    logs.log.flush()
    assert logs.log.recovery_point == 2
    logs.log.roll(logs.now_ms)
    assert logs.log.flush_due(logs.now_ms)
    logs.append(batch())
    logs.log.flush()
    disk.sync_dir("/")
    point = logs.log.recovery_point
    disk.lose_power()
    logs.open(recovery_point=point)
    assert [(t.producer_id, t.first_offset) for t in logs.log.aborted_transactions(0, 3)] == [(1, 0)]
