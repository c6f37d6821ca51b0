"""`FoundLogs`: a log belongs to its topic by the id in partition.metadata, also if one character of it is damaged."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.log_files import encode_topic_id
from barnabas.server.replication.directories.found_logs import FoundLogs
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.fs import read_file, replace_file
from barnabas.server.storage.log import Log
from tests.configs import log_config
from tests.unit.server.storage.memory_disk import MemoryDisk

T0 = TopicPartition("t", 0)
TOPIC_ID = UUID("6f1c0a52-93d4-4f0e-8a77-0d5b2c9e4410")
OTHER_ID = UUID("0b9b63c7-2f51-4a0c-9d0e-5e2a7f6b8c31")
CONFIG = log_config()
METADATA = "/data/t-0/partition.metadata"


def open_dir(disk: MemoryDisk) -> LogDir:
    disk.locks.clear()
    return LogDir.open(disk, "/data", cluster_id="c", node_id=1, new_directory_id=UUID(int=8_000))


def take(disk: MemoryDisk, topic_id: UUID) -> Log | None:
    """The log of the partition of a topic with this id, as a restart finds it."""
    directory = open_dir(disk)
    found = FoundLogs(lambda: UUID(int=5))
    list(found.discover([directory]))
    taken = found.take(T0, topic_id, CONFIG, directory.directory_id, 0)
    return None if taken is None else taken[1]


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    directory = open_dir(disk)
    directory.create_log(T0, TOPIC_ID, CONFIG, now_ms=0)
    directory.close()
    return disk


def test_a_damaged_character_of_the_topic_id_is_corrected_and_logged(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    text = encode_topic_id(TOPIC_ID)
    start = text.index(b"topic_id: ") + len(b"topic_id: ")
    for at in range(start, start + 21):
        damaged = bytearray(text)
        damaged[at] = ord("A") if damaged[at] != ord("A") else ord("B")
        replace_file(disk, METADATA, bytes(damaged), durable=False)
        caplog.clear()
        assert take(disk, TOPIC_ID) is not None, f"position {at}"
        assert "the topic id in partition.metadata is damaged" in caplog.text
        assert read_file(disk, METADATA) == text
    caplog.clear()
    assert take(disk, TOPIC_ID) is not None
    assert not caplog.text


def test_the_log_of_an_earlier_topic_of_this_name_is_set_aside(disk: MemoryDisk) -> None:
    assert take(disk, OTHER_ID) is None
    assert [name for name in disk.listdir("/data") if name.startswith("t-0")] == [
        "t-0.00000000000000000000000000000005-stray"
    ]
