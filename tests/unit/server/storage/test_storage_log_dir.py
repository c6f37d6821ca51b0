"""A data directory: identity, lock, checkpoints, clean and unclean starts, deletion, failure."""

from __future__ import annotations

import logging
from pathlib import Path
from uuid import UUID

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.server.storage.directory.flush_all import VOLUME_SYNC_LOGS
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import (
    DiskIoError,
    LogDirError,
    LogDirLockedError,
    LogDirMismatchError,
    LogFailedError,
    StorageError,
)
from barnabas.server.storage.fs import Access, FileSystem, OsFileSystem
from tests.configs import log_config
from tests.logs import logged
from tests.unit.server.storage.logs import batch
from tests.unit.server.storage.memory_disk import MemoryDisk

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
TOPIC_ID = UUID(int=42)
NEW_ID = UUID(int=1 << 90)
UNIQUE = UUID(int=7)
CONFIG = log_config(file_delete_delay_ms=100)


def open_dir(fs: FileSystem, path: str = "/data", **changes: object) -> LogDir:
    options: dict[str, object] = {"cluster_id": "cluster", "node_id": 1, "new_directory_id": NEW_ID} | changes
    return LogDir.open(fs, path, **options)  # type: ignore[arg-type]


def append(directory: LogDir, tp: TopicPartition, count: int = 1) -> None:
    for _ in range(count):
        directory.logs[tp].append_as_leader(batch(), leader_epoch=0, now_ms=0)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


class TestIdentity:
    def test_new_directory_gets_meta_properties(self, disk: MemoryDisk) -> None:
        first = open_dir(disk)
        assert (first.cluster_id, first.directory_id, first.clean_shutdown) == ("cluster", NEW_ID, False)
        first.close()
        second = open_dir(disk, cluster_id=None, new_directory_id=UUID(int=5))
        assert (second.cluster_id, second.directory_id) == ("cluster", NEW_ID)

    def test_a_new_directory_needs_a_cluster(self, disk: MemoryDisk) -> None:
        with pytest.raises(LogDirError, match="cluster id"):
            open_dir(disk, cluster_id=None)
        open_dir(disk)  # the lock was released

    @pytest.mark.parametrize("change", [{"cluster_id": "other"}, {"node_id": 2}])
    def test_directory_of_another_cluster_or_node_is_rejected(
        self, disk: MemoryDisk, change: dict[str, object]
    ) -> None:
        open_dir(disk).close()
        with pytest.raises(LogDirMismatchError):
            open_dir(disk, **change)

    def test_lock(self, tmp_path: Path) -> None:
        fs = OsFileSystem()
        first = open_dir(fs, str(tmp_path))
        with pytest.raises(LogDirLockedError):
            open_dir(fs, str(tmp_path))
        first.close()
        open_dir(fs, str(tmp_path)).close()


class TestLifeCycle:
    def test_truncation_lowers_the_recovery_point_checkpoint(self, disk: MemoryDisk) -> None:
        """The checkpoint must not contain offsets of truncated records, which a crash could restore."""
        first = open_dir(disk)
        log = first.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        append(first, A, 5)
        log.flush()
        first.checkpoint_recovery_points(durable=True)
        log.truncate_to(4)
        assert bytes(disk.data("/data/recovery-point-offset-checkpoint")).splitlines()[2:] == [b"a 0 4"]
        append(first, A, 2)
        log.truncate_to(5)  # nothing of that was synced
        assert bytes(disk.data("/data/recovery-point-offset-checkpoint")).splitlines()[2:] == [b"a 0 4"]

    def test_clean_stop_and_start(self, disk: MemoryDisk) -> None:
        first = open_dir(disk)
        for tp in (A, B):
            first.create_log(tp, TOPIC_ID, CONFIG, now_ms=0)
        append(first, A, 3)
        first.logs[A].advance_log_start(2)
        first.checkpoint_high_watermarks({A: 3, B: 0})
        first.close(broker_epoch=77)
        assert disk.exists("/data/.kafka_cleanshutdown")

        second = open_dir(disk)
        assert (second.clean_shutdown, second.previous_broker_epoch) == (True, 77)
        assert not disk.exists("/data/.kafka_cleanshutdown")
        found = second.scan()
        assert [(f.topic_partition, f.topic_id, f.future) for f in found] == [
            (A, TOPIC_ID, False),
            (B, TOPIC_ID, False),
        ]
        log = second.open_log(found[0], CONFIG, now_ms=0)
        assert log.recovery.clean
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (2, 3, 3)
        assert second.high_watermarks == {A: 3, B: 0}
        assert log.size_bytes == 3 * len(batch())

    def test_kill_and_start(self, disk: MemoryDisk) -> None:
        first = open_dir(disk)
        first.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        append(first, A, 2)
        first.logs[A].flush()
        first.checkpoint_recovery_points()
        append(first, A, 2)
        disk.crash()
        second = open_dir(disk)
        assert not second.clean_shutdown
        log = second.open_log(second.scan()[0], CONFIG, now_ms=0)
        assert not log.recovery.clean
        assert (log.log_end_offset, log.recovery_point) == (4, 2)

    def test_checkpoints_of_logs_not_opened_are_kept(self, disk: MemoryDisk) -> None:
        first = open_dir(disk)
        for tp in (A, B):
            first.create_log(tp, TOPIC_ID, CONFIG, now_ms=0)
            append(first, tp, 2)
            first.logs[tp].advance_log_start(1)
        first.close()
        for _ in range(2):
            directory = open_dir(disk)
            directory.open_log(directory.scan()[0], CONFIG, now_ms=0)
            directory.close()
        last = open_dir(disk)
        assert last.clean_shutdown
        log = last.open_log(last.scan()[1], CONFIG, now_ms=0)
        assert (log.log_start_offset, log.log_end_offset, log.recovery.clean) == (1, 2, True)

    @pytest.mark.parametrize("scanned", [True, False])
    def test_no_clean_shutdown_marker_if_logs_were_not_opened(self, disk: MemoryDisk, scanned: bool) -> None:
        """Simulator seed 255: the process stopped before it had opened the logs."""
        first = open_dir(disk)
        first.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        append(first, A, 2)
        disk.crash()
        second = open_dir(disk)
        if scanned:
            second.scan()
        second.close()
        assert not open_dir(disk).clean_shutdown

    def test_corrupt_checkpoints_cause_a_full_recovery(self, disk: MemoryDisk) -> None:
        first = open_dir(disk)
        first.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        append(first, A, 2)
        first.checkpoint_recovery_points()
        disk.crash()
        disk.data("/data/recovery-point-offset-checkpoint")[:] = b"\0\0\0"
        second = open_dir(disk)
        assert second.open_log(second.scan()[0], CONFIG, now_ms=0).log_end_offset == 2

    def test_files_that_apache_kafka_has_created_empty_cause_no_warning(
        self, disk: MemoryDisk, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Kafka creates its checkpoints without bytes, and writes log-start-offset-checkpoint a minute later."""
        first = open_dir(disk)
        log = first.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        first.checkpoint_recovery_points()
        first.checkpoint_log_starts()
        disk.crash()
        empty = [f"{log.path}/leader-epoch-checkpoint"]
        empty += [f"/data/{name}-offset-checkpoint" for name in ("recovery-point", "log-start", "cleaner")]
        for path in empty:
            disk.open(path, Access.REPLACE).close()
        second = open_dir(disk)
        assert second.open_log(second.scan()[0], CONFIG, now_ms=0).log_end_offset == 0
        assert [one for one in logged(caplog, "barnabas.server.storage") if one.levelno >= logging.WARNING] == []


class TestDeletion:
    def test_renamed_then_removed(self, disk: MemoryDisk) -> None:
        directory = open_dir(disk)
        log = directory.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        append(directory, A)
        directory.delete_log(A, unique=UNIQUE, now_ms=0)
        assert A not in directory.logs
        assert f"a-0.{UNIQUE.hex}-delete" in disk.listdir("/data")
        with pytest.raises(LogFailedError):
            log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
        assert directory.create_log(A, UUID(int=43), CONFIG, now_ms=0).log_end_offset == 0
        assert directory.delete_pending(99) == 0
        assert directory.delete_pending(100) == 1
        assert [n for n in disk.listdir("/data") if n.startswith("a-0")] == ["a-0"]
        assert directory.failure is None

    def test_interrupted_deletion_is_finished_by_the_next_process(self, disk: MemoryDisk) -> None:
        directory = open_dir(disk)
        directory.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        directory.delete_log(A, unique=UNIQUE, now_ms=0)
        disk.crash()
        directory = open_dir(disk)
        assert directory.scan() == []
        assert directory.delete_pending(0) == 1

    def test_stray_directories_are_kept_and_not_scanned(self, disk: MemoryDisk) -> None:
        directory = open_dir(disk)
        directory.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        directory.close()
        directory = open_dir(disk)
        directory.set_aside(directory.scan()[0], unique=UNIQUE)
        directory.close()
        directory = open_dir(disk)
        assert directory.scan() == []
        assert f"a-0.{UNIQUE.hex}-stray" in disk.listdir("/data")

    def test_other_directories_are_ignored(self, disk: MemoryDisk) -> None:
        for name in ("lost+found", "__cluster_metadata-0", f"c-1.{UNIQUE.hex}-future"):
            disk.mkdir(f"/data/{name}")
        directory = open_dir(disk)
        assert [(f.topic_partition, f.future) for f in directory.scan()] == [(TopicPartition("c", 1), True)]


class TestFailure:
    def test_failed_log_takes_only_its_directory_offline(self, disk: MemoryDisk) -> None:
        reported: list[tuple[LogDir, StorageError]] = []
        bad = open_dir(disk, "/bad", on_failure=lambda d, e: reported.append((d, e)))
        good = open_dir(disk, "/good")
        for tp in (A, B):
            bad.create_log(tp, TOPIC_ID, CONFIG, now_ms=0)
        good.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        disk.fail_writes = lambda path: path.startswith("/bad/a-0")
        with pytest.raises(DiskIoError) as e:
            append(bad, A)
        assert reported == [(bad, e.value)]
        with pytest.raises(LogFailedError):
            append(bad, B)
        for refused in (bad.checkpoint_recovery_points, bad.checkpoint_log_starts):
            with pytest.raises(LogFailedError):
                refused()
        append(good, A)
        bad.close()
        good.close()
        assert not disk.exists("/bad/.kafka_cleanshutdown")
        assert disk.exists("/good/.kafka_cleanshutdown")

    def test_failed_sync_at_shutdown_writes_no_marker(self, disk: MemoryDisk) -> None:
        directory = open_dir(disk)
        directory.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        append(directory, A)
        disk.fail_syncs = lambda path: path.endswith(".log")
        directory.close()
        assert directory.failure is not None
        assert not disk.exists("/data/.kafka_cleanshutdown")
        assert "/data/.lock" not in disk.locks

    def test_unused_partitions_cost_no_syncs_at_shutdown(self, disk: MemoryDisk) -> None:
        """A regression: closing a topic of 1,000 partitions took 20 s."""
        directory = open_dir(disk)
        for tp in (A, B):
            directory.create_log(tp, TOPIC_ID, CONFIG, now_ms=0)
        append(directory, B)
        synced: list[str] = []
        disk.fail_syncs = lambda path: bool(synced.append(path))
        directory.close()
        assert [path for path in synced if path.startswith("/data/a-0")] == []
        assert [path for path in synced if path.startswith("/data/b-3")]
        assert disk.exists("/data/.kafka_cleanshutdown")
        again = open_dir(disk)
        assert again.clean_shutdown


class TestManyLogs:
    """A clean stop syncs the volume once instead of seven files of each log."""

    def open_many(self, disk: MemoryDisk) -> LogDir:
        directory = open_dir(disk)
        for partition in range(VOLUME_SYNC_LOGS):
            tp = TopicPartition("many", partition)
            directory.create_log(tp, TOPIC_ID, CONFIG, now_ms=0)
            append(directory, tp, 2)
        disk.syncs.clear()
        return directory

    def test_everything_is_durable_after_one_sync_of_the_volume(self, disk: MemoryDisk) -> None:
        self.open_many(disk).close()
        assert disk.syncs.count("/") == 1
        assert [path for path in disk.syncs if path.startswith("/data/many")] == []
        disk.lose_power()
        again = open_dir(disk)
        assert again.clean_shutdown
        logs = [again.open_log(found, CONFIG, now_ms=0) for found in again.scan()]
        assert {(log.log_end_offset, log.recovery_point, log.recovery.clean) for log in logs} == {(2, 2, True)}

    def test_a_volume_that_cannot_be_synced_gets_no_marker(self, disk: MemoryDisk) -> None:
        directory = self.open_many(disk)
        disk.fail_syncs = lambda path: path == "/"
        directory.close()
        assert directory.failure is not None
        assert not disk.exists("/data/.kafka_cleanshutdown")

    def test_each_file_is_synced_where_the_system_has_no_such_call(
        self, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = self.open_many(disk)
        monkeypatch.setattr(disk, "sync_volume", lambda path: False)
        directory.close()
        assert len([path for path in disk.syncs if path.endswith(".log")]) == VOLUME_SYNC_LOGS
        disk.lose_power()
        assert open_dir(disk).clean_shutdown


class TestTopicIds:
    """A log and its topic id become durable together."""

    @pytest.mark.parametrize("flushed", [False, True])
    def test_the_topic_id_of_a_new_log_is_durable_with_its_name(self, disk: MemoryDisk, *, flushed: bool) -> None:
        directory = open_dir(disk)
        created = directory.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        append(directory, A)
        if flushed:
            created.flush()
        else:
            directory.sync_created(directory.take_created())
        disk.lose_power()
        (found,) = open_dir(disk).scan()
        assert (found.topic_id, found.problem) == (TOPIC_ID, "")

    def test_many_new_logs_cost_one_sync(self, disk: MemoryDisk) -> None:
        directory = open_dir(disk)
        for partition in range(VOLUME_SYNC_LOGS):
            directory.create_log(TopicPartition("many", partition), TOPIC_ID, CONFIG, now_ms=0)
        disk.syncs.clear()
        created = directory.take_created()
        directory.sync_created(created)
        assert (len(created), directory.take_created(), disk.syncs) == (VOLUME_SYNC_LOGS, [], ["/"])

    def test_logs_that_a_killed_process_has_created_are_synced_by_the_next_one(self, disk: MemoryDisk) -> None:
        open_dir(disk).create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        disk.crash()
        second = open_dir(disk)
        second.open_log(second.scan()[0], CONFIG, now_ms=0)
        assert second.take_created() == ["/data/a-0"]
        second.close()
        third = open_dir(disk)
        third.open_log(third.scan()[0], CONFIG, now_ms=0)
        assert third.take_created() == []


class TestBrokerEpoch:
    """The broker epoch of the last clean stop, without which the controller takes the stop for an unclean one."""

    def stopped_in_order(self, disk: MemoryDisk) -> None:
        directory = open_dir(disk)
        directory.create_log(A, TOPIC_ID, CONFIG, now_ms=0)
        append(directory, A)
        directory.close(broker_epoch=17)

    def test_a_start_that_fails_keeps_it(self, disk: MemoryDisk) -> None:
        self.stopped_in_order(disk)
        open_dir(disk).close(broker_epoch=-1)
        third = open_dir(disk)
        assert (third.clean_shutdown, third.previous_broker_epoch) == (True, 17)

    def test_a_start_that_fails_after_an_unclean_stop_makes_none(self, disk: MemoryDisk) -> None:
        self.stopped_in_order(disk)
        open_dir(disk)
        disk.crash()
        open_dir(disk).close(broker_epoch=-1)
        third = open_dir(disk)
        assert (third.clean_shutdown, third.previous_broker_epoch) == (False, -1)

    @pytest.mark.parametrize("damaged", [b"", b'{"version":0,"brokerEpo', bytes(32)])
    def test_a_damaged_marker_does_not_lose_it(self, disk: MemoryDisk, damaged: bytes) -> None:
        self.stopped_in_order(disk)
        disk.put("/data/.kafka_cleanshutdown", damaged)
        second = open_dir(disk)
        assert (second.clean_shutdown, second.previous_broker_epoch) == (True, 17)
