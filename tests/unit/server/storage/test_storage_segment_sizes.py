"""After a clean shutdown, a segment that is missing or has another size takes its log offline, and nothing else."""

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
