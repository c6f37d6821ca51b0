"""A segment that is missing, or has another size, takes its log offline at the next start, and nothing else."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.errors import DamagedLogError
from tests.configs import log_config
from tests.unit.server.storage.logs import batch
from tests.unit.server.storage.memory_disk import MemoryDisk

SIZE = len(batch())
CONFIG = log_config(internal_segment_bytes=4 * SIZE)
NAMES = [TopicPartition("a", 0), TopicPartition("b", 0)]


def open_dir(disk: MemoryDisk) -> LogDir:
    return LogDir.open(disk, "/data", cluster_id="c", node_id=1, new_directory_id=UUID(int=7))


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    home = open_dir(disk)
    for name in NAMES:
        log = home.create_log(name, UUID(int=9), CONFIG, now_ms=0)
        for _ in range(14):
            log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
    home.close(broker_epoch=17)
    return disk


def opened(disk: MemoryDisk) -> tuple[LogDir, list[str]]:
    """The directory, and the texts of the errors with which its logs did not open."""
    disk.locks.clear()
    home = open_dir(disk)
    errors = []
    for found in home.scan():
        try:
            home.open_log(found, CONFIG, now_ms=0)
        except DamagedLogError as error:
            errors.append(str(error))
    return home, errors


def test_unchanged_directory_opens(disk: MemoryDisk) -> None:
    home, errors = opened(disk)
    assert (home.failure, errors) == (None, [])
    home.close(broker_epoch=18)
    assert opened(disk)[1] == []


def test_deleted_segment_takes_its_log_offline_at_every_start(disk: MemoryDisk) -> None:
    path = f"/data/a-0/{4:020d}.log"
    content = bytes(disk.data(path))
    disk.unlink(path)
    for epoch in (18, 19):
        home, [error] = opened(disk)
        assert f"{path} was deleted: it had {4 * SIZE} bytes" in error
        assert home.failure is None
        assert list(home.logs) == NAMES[1:]
        home.close(broker_epoch=epoch)
    disk.put(path, content)
    assert opened(disk)[1] == []


def test_shortened_segment_takes_its_log_offline(disk: MemoryDisk) -> None:
    del disk.data(f"/data/b-0/{8:020d}.log")[3 * SIZE :]
    [error] = opened(disk)[1]
    assert f"it had {4 * SIZE} bytes when the broker was stopped, and has {3 * SIZE} bytes" in error


def test_sizes_of_another_shutdown_do_not_count(disk: MemoryDisk) -> None:
    """Apache Kafka has used the directory since, and has left its own marker."""
    disk.put("/data/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":30}')
    disk.unlink(f"/data/a-0/{4:020d}.log")
    assert opened(disk)[1] == []


@pytest.fixture
def crashed() -> MemoryDisk:
    """A directory after kill -9, whose recovery point is the end of the logs."""
    disk = MemoryDisk()
    home = open_dir(disk)
    for name in NAMES:
        log = home.create_log(name, UUID(int=9), CONFIG, now_ms=0)
        for _ in range(14):
            log.append_as_leader(batch(), leader_epoch=0, now_ms=0)
        log.flush()
    home.checkpoint_recovery_points(durable=True)
    disk.locks.clear()  # the process is dead
    return disk


def test_unchanged_directory_opens_after_a_crash(crashed: MemoryDisk) -> None:
    home, errors = opened(crashed)
    assert (home.failure, errors) == (None, [])


@pytest.mark.parametrize("base", [4, 8])
def test_segment_below_the_recovery_point_that_was_deleted_is_noticed_after_a_crash(
    crashed: MemoryDisk, base: int
) -> None:
    path = f"/data/a-0/{base:020d}.log"
    content = bytes(crashed.data(path))
    crashed.unlink(path)
    home, (error,) = opened(crashed)
    assert f"{base - 4:020d}.log" in error
    assert f"offset {base}" in error
    assert list(home.logs) == [NAMES[1]]
    crashed.put(path, content)
    assert opened(crashed)[1] == []


@pytest.mark.parametrize("size", [0, 10, SIZE, 2 * SIZE + 20, 3 * SIZE])
def test_segment_below_the_recovery_point_that_was_shortened_is_noticed_after_a_crash(
    crashed: MemoryDisk, size: int
) -> None:
    path = f"/data/b-0/{4:020d}.log"
    content = bytes(crashed.data(path))
    crashed.put(path, content[:size])
    home, (error,) = opened(crashed)
    assert f"{path}" in error
    assert list(home.logs) == [NAMES[0]]
    crashed.put(path, content)
    assert opened(crashed)[1] == []


def test_damaged_index_below_the_recovery_point_is_no_missing_segment(crashed: MemoryDisk) -> None:
    path = f"/data/b-0/{4:020d}.index"
    crashed.put(path, b"\0\0\0\x02\x7f\0\0\0")
    assert opened(crashed)[1] == []
