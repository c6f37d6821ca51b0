"""Logs that cannot be opened at the start: for want of a descriptor they are opened later, damaged ones are not."""

from __future__ import annotations

import random
from uuid import UUID

from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition
from barnabas.server.metadata.image.topics import UNASSIGNED_DIRECTORY
from barnabas.server.replication.directories.replica_directories import ReplicaDirectories
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.testing.sim.disk import MemoryDisk
from tests.configs import log_config

NAME = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)


def _open_dir(disk: MemoryDisk) -> LogDir:
    return LogDir.open(disk.mount(), "/data", cluster_id="c", node_id=1, new_directory_id=UUID(int=1))


def _directories(disk: MemoryDisk) -> ReplicaDirectories:
    directories = ReplicaDirectories([_open_dir(disk)], (), SystemClock(), random.Random(1))
    list(directories.discover())
    return directories


def test_a_log_that_finds_no_descriptor_is_opened_later() -> None:
    disk = MemoryDisk()
    home = _open_dir(disk)
    home.create_log(NAME, TOPIC_ID, log_config(), now_ms=0)
    home.close()
    directories = _directories(disk)
    disk.lacks_descriptors = lambda path: True
    opened = directories.open(NAME, TOPIC_ID, log_config(), UNASSIGNED_DIRECTORY, is_new=False)
    assert opened.log is None
    assert opened.is_postponed
    disk.lacks_descriptors = lambda path: False
    directories.set_rest_aside()
    again = directories.open(NAME, TOPIC_ID, log_config(), UNASSIGNED_DIRECTORY, is_new=True)
    assert again.log is not None
    assert again.was_found
    assert disk.listdir("/data").count("t-0") == 1


def test_a_new_log_that_finds_no_descriptor_is_created_later() -> None:
    disk = MemoryDisk()
    directories = _directories(disk)
    disk.lacks_descriptors = lambda path: True
    opened = directories.open(NAME, TOPIC_ID, log_config(), UNASSIGNED_DIRECTORY, is_new=True)
    assert opened.log is None
    assert opened.is_postponed
    disk.lacks_descriptors = lambda path: False
    assert directories.open(NAME, TOPIC_ID, log_config(), UNASSIGNED_DIRECTORY, is_new=True).log is not None


def test_a_log_on_a_failing_disk_is_not_tried_again() -> None:
    disk = MemoryDisk()
    directories = _directories(disk)
    disk.fail_writes = lambda path: True
    opened = directories.open(NAME, TOPIC_ID, log_config(), UNASSIGNED_DIRECTORY, is_new=True)
    assert opened.log is None
    assert not opened.is_postponed


def test_logs_opened_early_are_returned_once() -> None:
    disk = MemoryDisk()
    home = _open_dir(disk)
    home.create_log(NAME, TOPIC_ID, log_config(), now_ms=0)
    home.close()
    directories = _directories(disk)
    assert directories.found_count == 1
    assert directories.open_found(NAME, TOPIC_ID, log_config(), UNASSIGNED_DIRECTORY)
    assert directories.found_count == 0
    assert not directories.open_found(NAME, TOPIC_ID, log_config(), UNASSIGNED_DIRECTORY)
    opened = directories.open(NAME, TOPIC_ID, log_config(), UNASSIGNED_DIRECTORY, is_new=False)
    assert opened.log is not None
    assert opened.was_found
    directories.set_rest_aside()
    assert disk.exists("/data/t-0")


def test_a_log_opened_early_whose_partition_is_gone_is_set_aside() -> None:
    disk = MemoryDisk()
    home = _open_dir(disk)
    home.create_log(NAME, TOPIC_ID, log_config(), now_ms=0)
    home.close()
    directories = _directories(disk)
    directories.open_found(NAME, TOPIC_ID, log_config(), UNASSIGNED_DIRECTORY)
    directories.set_rest_aside()
    (name,) = (name for name in disk.listdir("/data") if name.startswith("t-0."))
    assert name.endswith("-stray")
