"""`FoundLogs`: a log belongs to its topic by the id in partition.metadata, also if one character of it is damaged."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.log_files import encode_topic_id
from barnabas.server.replication.directories.found_logs import FoundLogs
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.fs import read_file, replace_file
from barnabas.server.storage.log import Log
from tests.configs import log_config
from tests.logs import logged
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
    taken = home(disk, topic_id)
    return None if taken is None else taken[1]


def home(disk: MemoryDisk, topic_id: UUID) -> tuple[LogDir, Log | None] | None:
    """As `take`, with the directory: a log in it that is None is offline."""
    directory = open_dir(disk)
    found = FoundLogs(lambda: UUID(int=5))
    list(found.discover([directory]))
    return found.take(T0, topic_id, CONFIG, directory.directory_id, 0)


def damage(disk: MemoryDisk, content: bytes | None) -> None:
    if content is None:
        disk.unlink(METADATA)
    else:
        replace_file(disk, METADATA, content)


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
    assert not logged(caplog, "barnabas.server.replication")


@pytest.mark.parametrize("content", [None, b"", bytes(44), b"version: 0\ntopic_id: 6f1c0a5"])
def test_a_log_whose_topic_is_unknown_is_offline_and_stays_as_it_is(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    directory = open_dir(disk)
    opened = directory.open_log(directory.scan()[0], CONFIG, now_ms=0)
    opened.append_as_leader(build_batch([SimpleRecord(None, b"of the first topic", 0)]), leader_epoch=0, now_ms=0)
    directory.close()
    damage(disk, content)
    before = disk.files("/data/t-0")
    for topic_id in (OTHER_ID, TOPIC_ID):
        caplog.clear()
        taken = home(disk, topic_id)
        assert taken is not None
        assert taken[1] is None
        (offline,) = [one for one in caplog.records if "partition is offline" in one.message]
        assert "partition.metadata" in vars(offline)["fields"]["reason"]
        assert disk.files("/data/t-0") == before


@pytest.mark.parametrize("content", [None, b""])
def test_a_log_without_records_gets_its_topic_id_again(disk: MemoryDisk, content: bytes | None) -> None:
    """A crash between the creation of the directory and the sync of the file leaves this."""
    damage(disk, content)
    assert take(disk, TOPIC_ID) is not None
    assert read_file(disk, METADATA) == encode_topic_id(TOPIC_ID)


def test_an_empty_log_that_has_had_records_is_not_taken_for_a_new_one(disk: MemoryDisk) -> None:
    directory = open_dir(disk)
    opened = directory.open_log(directory.scan()[0], CONFIG, now_ms=0)
    opened.truncate_fully_and_start_at(300, now_ms=0)
    directory.close()
    damage(disk, b"")
    taken = home(disk, OTHER_ID)
    assert taken is not None
    assert taken[1] is None


def test_a_directory_that_fails_during_the_scan_does_not_stop_the_others(disk: MemoryDisk) -> None:
    broken = open_dir(disk)
    other = LogDir.open(disk, "/other", cluster_id="c", node_id=1, new_directory_id=UUID(int=8_001))
    other.create_log(T0, TOPIC_ID, CONFIG, now_ms=0)
    disk.fail_reads = lambda path: path == METADATA
    found = FoundLogs(lambda: UUID(int=5))
    list(found.discover([broken, other]))
    assert broken.failure is not None
    taken = found.take(T0, TOPIC_ID, CONFIG, other.directory_id, 0)
    assert taken is not None
    assert taken[0] is other


def test_the_log_of_an_earlier_topic_of_this_name_is_set_aside(disk: MemoryDisk) -> None:
    assert take(disk, OTHER_ID) is None
    assert [name for name in disk.listdir("/data") if name.startswith("t-0")] == [
        "t-0.00000000000000000000000000000005-stray"
    ]
