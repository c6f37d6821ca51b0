"""kill -9 and a power cut before every single operation on the disk, while a replica moves to another directory.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import copy
import random
from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.server.replication.directories.found_logs import FoundLogs, is_contained
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.log import Log
from barnabas.testing.sim.disk import MemoryDisk
from tests.configs import log_config
from tests.unit.server.replication.brokers import Cluster, in_virtual_time
from tests.unit.server.replication.test_replication_dir_moves import home, under_way

PATHS = ("/data", "/data1")
NAME = TopicPartition("t", 0)


class WatchedDisk(MemoryDisk):
    """Takes a picture of itself, and of what was promised by then, before anything changes."""

    def __init__(self) -> None:
        super().__init__()
        self.watching = False
        self.pictures: list[tuple[str, MemoryDisk, int]] = []
        self.acknowledged = 0
        self.topic_id = UUID(int=0)
        self.fail_syncs = self._before_sync
        self.fail_writes = self._before_write
        self.fail_truncates = self._before_write

    def _picture(self, what: str) -> None:
        if self.watching:
            self.watching = False
            plain = MemoryDisk()
            memo: dict[int, object] = {}
            plain._names = copy.deepcopy(self._names, memo)
            plain._durable_names = copy.deepcopy(self._durable_names, memo)
            self.pictures.append((what, plain, self.acknowledged))
            self.watching = True

    def _before_sync(self, path: str) -> bool:
        self._picture(f"sync {path}")
        return False

    def _before_write(self, path: str) -> bool:
        if not path.endswith(".log") or random.Random(len(self.pictures)).random() < 0.2:
            self._picture(f"write {path}")
        return False

    def rename(self, source: str, target: str) -> None:
        self._picture(f"rename {source} to {target}")
        super().rename(source, target)
        self._picture(f"renamed {source} to {target}")

    def unlink(self, path: str) -> None:
        self._picture(f"unlink {path}")
        super().unlink(path)


def left_on(disk: MemoryDisk, topic_id: UUID) -> tuple[int, int, bool]:
    """Where the log begins and ends by what a restart makes of the disk, and whether there were two."""
    disk.locks.clear()
    unique = iter(UUID(int=n) for n in range(100))
    directories = [
        LogDir.open(disk.mount(), path, cluster_id="c", node_id=1, new_directory_id=UUID(int=8_000)) for path in PATHS
    ]
    found = FoundLogs(lambda: next(unique))
    list(found.discover(directories))
    two = sum("t-0" in disk.listdir(path) for path in PATHS) == 2
    taken = found.take(NAME, topic_id, log_config(internal_segment_bytes=2_000), UUID(int=9_011), 0)
    assert taken is not None
    log = taken[1]
    assert log is not None
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1).data
        assert b"value %d." % offset in bytes(data), "the records are those that were written there"
        offset += 1
    assert not any("-stray" in name for path in PATHS for name in disk.listdir(path)), "one contains the other"
    return log.log_start_offset, log.log_end_offset, two


def moved(flush: bool, seed: int = 1) -> WatchedDisk:
    """A topic with several segments moves while it is written to; the pictures of it."""
    disk = WatchedDisk()
    configs = {"internal_segment_bytes": "2000", **({"flush_messages": "1"} if flush else {})}

    async def main(cluster: Cluster) -> None:
        broker = cluster.add(1, dirs=2, disk=disk)
        cluster.create("t", [[1]], **configs)
        await cluster.until(lambda: len(broker.partitions) == 1)

        async def write() -> None:
            n = broker.end()
            assert await broker.produce(b"value %d." % n) is ErrorCode.NONE
            disk.acknowledged = max(disk.acknowledged, n + 1)

        async def keep_writing(pause_s: float) -> None:
            while under_way(broker):
                await write()
                await asyncio.sleep(pause_s)

        for _ in range(60):
            await write()
        disk.topic_id = broker.partition().topic_id
        disk.watching = True
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        await asyncio.gather(*(keep_writing(pause_s) for pause_s in (0.0004, 0.0007, 0.0011)))
        await asyncio.sleep(0.05)
        for _ in range(3):
            await write()
        disk.watching = False
        assert home(broker) == "/data1"

    in_virtual_time(main, brokers=0, seed=seed)
    return disk


@pytest.mark.parametrize("flush", [False, True])
def test_acknowledged_records_survive_a_kill_at_every_step(flush: bool) -> None:
    disk = moved(flush)
    both = 0
    for what, picture, acknowledged in disk.pictures:
        picture.crash()
        start, end, two = left_on(picture, disk.topic_id)
        assert (start, end >= acknowledged) == (0, True), what
        both += two
    assert len(disk.pictures) > 60
    assert both > 3, "the moment in which there are two logs was among them"


@pytest.mark.parametrize("seed", range(4))
def test_flushed_records_survive_a_power_failure_at_every_step(seed: int) -> None:
    disk = moved(True, seed)
    for number, (what, picture, acknowledged) in enumerate(disk.pictures):
        picture.lose_power(rng=None if seed % 2 else random.Random(1_000 * seed + number))
        start, end, _ = left_on(picture, disk.topic_id)
        assert (start, end >= acknowledged) == (0, True), what


def test_two_different_logs_are_both_kept() -> None:
    """Nothing that a move leaves behind looks like this; somebody may have copied directories by hand."""
    disk = MemoryDisk()

    def opened(path: str, *, epoch: int, count: int) -> Log:
        directory = LogDir.open(
            disk.mount(), path, cluster_id="c", node_id=1, new_directory_id=UUID(int=hash(path) % 99)
        )
        log = directory.create_log(NAME, UUID(int=7), log_config(), now_ms=0)
        from barnabas.protocol.records.build import SimpleRecord, build_batch

        for n in range(count):
            batch = build_batch([SimpleRecord(None, b"value %d." % n, 0)])
            log.append_as_leader(batch, leader_epoch=epoch, now_ms=0)
        return log

    longer, newer = opened("/data", epoch=1, count=9), opened("/data1", epoch=2, count=5)
    assert (is_contained(longer, newer), is_contained(newer, longer)) == (False, False)
    disk.crash()
    directories = [
        LogDir.open(disk.mount(), path, cluster_id="c", node_id=1, new_directory_id=UUID(int=8)) for path in PATHS
    ]
    found = FoundLogs(lambda: UUID(int=5))
    list(found.discover(directories))
    taken = found.take(NAME, UUID(int=7), log_config(), UUID(int=0), 0)
    assert taken is not None
    assert (taken[0].path, taken[1] and taken[1].log_end_offset) == ("/data1", 5), "the later epoch goes before the end"
    assert [n for n in disk.listdir("/data") if n.startswith("t-0")] == [f"t-0.{UUID(int=5).hex}-stray"]
