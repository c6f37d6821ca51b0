"""Replicas move between the directories of one broker (AlterReplicaLogDirs). Sleeps take virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.server.metadata.image.cluster import ResourceType
from barnabas.server.storage.cleaner.cleanable import CleaningVerdict, assess
from barnabas.server.storage.errors import DiskIoError
from barnabas.server.storage.log import Log
from tests.unit.server.replication.brokers import Broker, Cluster, in_virtual_time

Main = Callable[[Cluster, Broker], Coroutine[Any, Any, None]]


def on_one_broker(main: Main, *, dirs: int = 2, **configs: str) -> None:
    """A broker with a topic `t` of one partition, which lies in the first of its directories."""

    async def begin(cluster: Cluster) -> None:
        broker = cluster.add(1, dirs=dirs)
        cluster.create("t", [[1]], **configs)
        await cluster.until(lambda: len(broker.partitions) == 1)
        assert home(broker) == "/data"
        await main(cluster, broker)

    in_virtual_time(begin, brokers=0)


def home(broker: Broker, index: int = 0) -> str:
    directory = broker.partitions.log_dir_of(broker.partition("t", index))
    assert directory is not None
    return directory.path


def log_of(broker: Broker, index: int = 0) -> Log:
    log = broker.partition("t", index).log
    assert log is not None
    return log


async def alter(cluster: Cluster, broker: Broker, path: str, topic: str = "t", index: int = 0) -> ErrorCode:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[index])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    task = broker.process.spawn(cluster.loop, broker.serve(request, 2))
    answer = cast("AlterReplicaLogDirsResponse", await task)
    assert [(r.topic_name, [p.partition_index for p in r.partitions]) for r in answer.results] == [(topic, [index])]
    return ErrorCode(answer.results[0].partitions[0].error_code)


async def described(cluster: Cluster, broker: Broker) -> list[tuple[str, int, bool, int]]:
    """(directory, partition, whether it is a copy, lag)"""
    task = broker.process.spawn(cluster.loop, broker.serve(DescribeLogDirsRequest(topics=None), 4))
    answer = cast("DescribeLogDirsResponse", await task)
    return [
        (d.log_dir, p.partition_index, p.is_future_key, p.offset_lag)
        for d in answer.results
        for t in d.topics
        for p in t.partitions
    ]


def known(cluster: Cluster, broker: Broker) -> UUID:
    state = cluster.image.topics.partition("t", 0)
    assert state is not None
    return state.directory_of(broker.number)


def under_way(broker: Broker) -> bool:
    return bool(broker.mover._moves)


def folders(broker: Broker, path: str) -> list[str]:
    """Of partitions, without what makes their names unique."""
    names = [n for n in broker.disk.listdir(path) if n.startswith("t-")]
    return sorted(n[:4] + n[36:] if "." in n else n for n in names)


def test_replica_moves_during_appends() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        for n in range(300):
            broker.append(b"%d" % n, acks=1)
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        assert [(d.path, [(r.lag, r.future) for r in d.replicas]) for d in broker.partitions.describe_dirs()] == [
            ("/data", [(0, False)]),
            ("/data1", [(300, True)]),
        ]
        n = 300
        while under_way(broker):
            assert await broker.produce(b"%d" % n) is ErrorCode.NONE
            n += 1
            await asyncio.sleep(0.0003)
        assert n > 302
        assert home(broker) == "/data1"
        assert await broker.produce(b"%d" % n) is ErrorCode.NONE
        assert broker.values() == [b"%d" % i for i in range(n + 1)]
        assert broker.partition().high_watermark == n + 1
        assert await described(cluster, broker) == [("/data1", 0, False, 0)]
        assert known(cluster, broker) == UUID(int=9_011)
        assert (folders(broker, "/data"), folders(broker, "/data1")) == (["t-0.-delete"], ["t-0"])

        broker.kill()
        broker.start()
        await cluster.until(lambda: len(broker.partitions) == 1)
        assert (home(broker), broker.values()) == ("/data1", [b"%d" % i for i in range(n + 1)])
        await cluster.until(lambda: known(cluster, broker) == UUID(int=9_011))

    on_one_broker(main, flush_messages="1")


def test_replica_moves_to_another_directory_and_back() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        for n in range(6):
            await broker.produce(b"%d" % n)
            target = "/data1" if home(broker) == "/data" else "/data"
            assert await alter(cluster, broker, target) is ErrorCode.NONE
            await cluster.until(lambda: not under_way(broker))
            assert home(broker) == target
        assert broker.values() == [b"%d" % n for n in range(6)]
        assert (folders(broker, "/data"), folders(broker, "/data1")) == (
            ["t-0"] + ["t-0.-delete"] * 3,
            ["t-0.-delete"] * 3,
        )

    on_one_broker(main)


def test_move_keeps_state_that_batches_do_not_contain() -> None:
    """Epochs without records, a start inside a batch, producers whose records are gone."""

    async def main(cluster: Cluster, broker: Broker) -> None:
        broker.append(b"a", b"b", b"c", producer_id=7, producer_epoch=0, base_sequence=0)
        broker.append(b"d", b"e", b"f")
        broker.append(b"g")
        await broker.partition().wait_committed(7, cluster.loop.time() + 5)
        broker.process.run(broker.partition().delete_records, 4, 0)
        log_of(broker).assign_epoch(5, 7)
        before = log_of(broker)
        entries = before.epoch_entries
        assert await alter(cluster, broker, "/data1") is ErrorCode.NONE
        await cluster.until(lambda: not under_way(broker))
        after = log_of(broker)
        assert (after.path, after is before) == ("/data1/t-0", False)
        assert (after.log_start_offset, after.log_end_offset, after.epoch_entries) == (4, 7, entries)
        assert broker.values() == [b"e", b"f", b"g"]
        again = broker.append(b"a", b"b", b"c", producer_id=7, producer_epoch=0, base_sequence=0)
        assert (again, after.log_end_offset) == (3, 7), "a duplicate is known"
        assert broker.append(b"h", producer_id=7, producer_epoch=0, base_sequence=3) == 8

        broker.kill()
        broker.start()
        await cluster.until(lambda: len(broker.partitions) == 1)
        assert (log_of(broker).log_start_offset, broker.values()) == (4, [b"e", b"f", b"g", b"h"])
        assert broker.append(b"h", producer_id=7, producer_epoch=0, base_sequence=3) == 8

    on_one_broker(main)


def test_an_empty_log_moves_and_keeps_its_offsets() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        await broker.produce(b"a", b"b")
        broker.process.run(broker.partition().delete_records, -1, 0)
        assert await alter(cluster, broker, "/data1") is ErrorCode.NONE
        await cluster.until(lambda: not under_way(broker))
        assert (home(broker), log_of(broker).log_start_offset, broker.append(b"c")) == ("/data1", 2, 3)

    on_one_broker(main)


def test_a_copy_follows_truncation_and_deletion() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        for n in range(200):
            broker.append(b"%d" % n, acks=1)
        cut_at = iter((150, 90, 40))

        def seen() -> None:
            """Whenever the copy has grown, the log is cut and grows again with other records."""
            log = log_of(broker)
            at = next(cut_at, None)
            if at is not None and not broker.mover._moves[broker.partition().name].swapped:
                log.truncate_to(at)
                for n in range(at, at + 30):
                    broker.append(b"again %d" % n, acks=1)
                broker.process.run(log.advance_log_start, at // 10)

        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        copy = broker.mover._moves[broker.partition().name].copy
        append = copy.append_as_follower

        def appended(*args: Any, **options: Any) -> Any:
            done = append(*args, **options)
            seen()
            return done

        copy.append_as_follower = appended  # type: ignore[method-assign]
        await cluster.until(lambda: not under_way(broker))
        assert home(broker) == "/data1"
        log = log_of(broker)
        assert (log.log_start_offset, log.log_end_offset) == (15, 70)
        assert broker.values() == [b"%d" % n for n in range(15, 40)] + [b"again %d" % n for n in range(40, 70)]

    on_one_broker(main)


def test_follower_restarts_its_log_during_a_move() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        for n in range(50):
            broker.append(b"%d" % n, acks=1)
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        await cluster.until(lambda: broker.mover._moves[broker.partition().name].copy.log_end_offset == 50)
        log_of(broker).truncate_fully_and_start_at(1_000)
        broker.append(b"far", acks=1)
        await cluster.until(lambda: not under_way(broker))
        log = log_of(broker)
        assert (home(broker), log.log_start_offset, log.log_end_offset) == ("/data1", 1_000, 1_001)

    on_one_broker(main)


def test_move_respects_the_rate_limit() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.settings = replace(cluster.settings, replica_alter_log_dirs_io_max_bytes_per_second=1_000_000)
        broker = cluster.add(1, dirs=2)
        cluster.create("t", [[1]])
        await cluster.until(lambda: len(broker.partitions) == 1)
        for _ in range(50):
            broker.append(bytes(100_000), acks=1)
        begun = cluster.loop.time()
        assert await alter(cluster, broker, "/data1") is ErrorCode.NONE
        await cluster.until(lambda: not under_way(broker))
        assert 2.5 < cluster.loop.time() - begun < 4.5, "5 MB at 1 MB/s, the first and the last of them at once"

        cluster.settings = replace(
            cluster.settings, replica_lag_time_max_ms=30_000, replica_alter_log_dirs_io_max_bytes_per_second=100_000_000
        )
        cluster.configure(ResourceType.BROKER, "1", "replica.alter.log.dirs.io.max.bytes.per.second", "100000000")
        begun = cluster.loop.time()
        assert await alter(cluster, broker, "/data") is ErrorCode.NONE
        await cluster.until(lambda: not under_way(broker))
        assert cluster.loop.time() - begun < 1.5

    in_virtual_time(main, brokers=0)


def test_move_is_cancelled_and_redirected() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        for n in range(10):
            broker.append(b"%d" % n, acks=1)
        assert await alter(cluster, broker, "/data1") is ErrorCode.NONE
        assert await alter(cluster, broker, "/data1") is ErrorCode.NONE
        assert await alter(cluster, broker, "/data2") is ErrorCode.NONE
        assert [r[:3] for r in await described(cluster, broker)] == [("/data", 0, False), ("/data2", 0, True)]
        assert await alter(cluster, broker, "/data") is ErrorCode.NONE
        assert (under_way(broker), log_of(broker).moving) == (False, False)
        assert await described(cluster, broker) == [("/data", 0, False, 0)]
        await asyncio.sleep(1)
        assert [folders(broker, p) for p in broker.paths] == [["t-0"], ["t-0.-delete"], ["t-0.-delete"]]
        assert await alter(cluster, broker, "/data2") is ErrorCode.NONE
        await cluster.until(lambda: home(broker) == "/data2")
        assert await alter(cluster, broker, "/data1") is ErrorCode.NONE, "while the first log is still there"
        await cluster.until(lambda: home(broker) == "/data1" and not under_way(broker))
        assert broker.values() == [b"%d" % n for n in range(10)]

    on_one_broker(main, dirs=3)


def test_move_waits_for_an_unreachable_controller_and_can_be_cancelled() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        await broker.produce(b"a")
        cluster.cut.add(frozenset({0, 1}))
        assert await alter(cluster, broker, "/data1") is ErrorCode.NONE
        await asyncio.sleep(3)
        assert (home(broker), await described(cluster, broker)) == (
            "/data",
            [("/data", 0, False, 0), ("/data1", 0, True, 0)],
        )
        cluster.cut.clear()
        await cluster.until(lambda: known(cluster, broker) == UUID(int=9_011))
        assert home(broker) == "/data", "the controller knows first"
        assert await alter(cluster, broker, "/data") is ErrorCode.NONE
        await cluster.until(lambda: known(cluster, broker) == UUID(int=9_010))
        assert (home(broker), under_way(broker)) == ("/data", False)

    on_one_broker(main)


def test_alter_replica_log_dirs_error_codes() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        cluster.add(2)
        cluster.create("elsewhere", [[2]])
        cluster.create("x" * 214, [[1]])
        await cluster.until(lambda: len(broker.partitions) == 2)
        assert await alter(cluster, broker, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
        assert await alter(cluster, broker, "/data1", "missing") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(cluster, broker, "/data1", index=7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter(cluster, broker, "/data1", "elsewhere") is ErrorCode.REPLICA_NOT_AVAILABLE
        assert await alter(cluster, broker, "/data1", "x" * 214) is ErrorCode.INVALID_TOPIC_EXCEPTION
        broker.process.run(broker.partitions.log_dirs[1].fail, DiskIoError("the cable is out"))
        assert await alter(cluster, broker, "/data1") is ErrorCode.KAFKA_STORAGE_ERROR
        broker.process.run(broker.partitions.log_dirs[0].fail, DiskIoError("the other one, too"))
        assert await alter(cluster, broker, "/data2") is ErrorCode.KAFKA_STORAGE_ERROR

    on_one_broker(main, dirs=3)


def test_future_replica_is_created_in_the_requested_directory() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        other = cluster.add(2)
        cluster.create("u", [[2]])
        await cluster.until(lambda: len(other.partitions) == 1)
        for path in ("/data2", "/data1"):
            assert await alter(cluster, broker, path, "u") is ErrorCode.REPLICA_NOT_AVAILABLE
        topic = cluster.image.topics.get("u")
        assert topic is not None
        cluster.create("v", [[1]])
        await other.produce(b"a", topic="u")
        from barnabas.server.metadata.records.topics import PartitionChangeRecord

        cluster.commit(
            [
                PartitionChangeRecord(
                    topic_id=topic.topic_id, partition_id=0, replicas=[2, 1], directories=[UUID(int=9_020), UUID(int=0)]
                )
            ]
        )
        await cluster.until(lambda: broker.partitions.get("u", 0) is not None)
        directory = broker.partitions.log_dir_of(broker.partition("u"))
        assert directory is not None
        assert directory.path == "/data1"
        await cluster.until(lambda: broker.values("u") == [b"a"])

    on_one_broker(main, dirs=3)


@pytest.mark.parametrize("swapped", [False, True])
def test_deleting_a_partition_deletes_its_copy(swapped: bool) -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        broker.append(b"a")
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        if swapped:
            await cluster.until(lambda: broker.mover._moves[broker.partition().name].swapped)
        broker.process.run(broker.partitions._drop, ("t", 0))
        assert not under_way(broker)
        assert (folders(broker, "/data"), folders(broker, "/data1")) == (["t-0.-delete"], ["t-0.-delete"])

    on_one_broker(main)


@pytest.mark.parametrize("swapped", [False, True])
def test_failed_target_directory_ends_the_move(swapped: bool) -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        await broker.produce(b"a")
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        if swapped:
            await cluster.until(lambda: broker.mover._moves[broker.partition().name].swapped)
        broker.process.run(broker.partitions.log_dirs[1].fail, DiskIoError("the cable is out"))
        broker.heartbeat()
        assert not under_way(broker)
        if swapped:
            assert (broker.partition().log, folders(broker, "/data")) == (None, ["t-0.-stray"])
        else:
            assert await broker.produce(b"b") is ErrorCode.NONE
            assert broker.values() == [b"a", b"b"]
            await cluster.until(lambda: known(cluster, broker) == UUID(int=9_010))

    on_one_broker(main)


def test_failed_source_directory_ends_the_move() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        await broker.produce(b"a")
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        broker.process.run(broker.partitions.log_dirs[0].fail, DiskIoError("the cable is out"))
        assert (under_way(broker), broker.partition().log) == (False, None)
        assert folders(broker, "/data1") == ["t-0.-future"], "it may be all that is left"

    on_one_broker(main)


def test_full_target_disk_cancels_only_the_move() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        for _ in range(20):
            broker.append(bytes(100_000), acks=1)
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        broker.disk.capacity = broker.disk.used + 500_000
        await cluster.until(lambda: not under_way(broker))
        broker.disk.capacity = 1 << 40
        assert home(broker) == "/data"
        assert broker.partitions.offline_dirs == []
        assert await broker.produce(b"on") is ErrorCode.NONE
        assert folders(broker, "/data1") == ["t-0.-delete"]

    on_one_broker(main)


def test_move_continues_after_a_restart() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        for n in range(10):
            broker.append(b"%d" % n, acks=1)
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        broker.kill()
        assert folders(broker, "/data1") == ["t-0.-future"]
        broker.start()
        await cluster.until(lambda: len(broker.partitions) == 1)
        assert home(broker) == "/data"
        await cluster.until(lambda: home(broker) == "/data1" and not under_way(broker))
        assert broker.values() == [b"%d" % n for n in range(10)]

    on_one_broker(main)


def test_threads_limit_concurrent_moves() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.settings = replace(
            cluster.settings, replica_lag_time_max_ms=30_000, num_replica_alter_log_dirs_threads=1
        )
        broker = cluster.add(1, dirs=2)
        cluster.create("t", [[1]] * 4)
        await cluster.until(lambda: len(broker.partitions) == 4)
        for index in range(4):
            broker.append(b"x", index=index, acks=1)
            target = next(d for d in broker.partitions.log_dirs if d.path != home(broker, index))
            broker.process.run(broker.mover.alter, broker.partition("t", index), target)
        before = [home(broker, index) for index in range(4)]
        moved: list[int] = []

        def one_after_the_other() -> bool:
            busy = [m for m in broker.mover._moves.values() if m.copy.log_end_offset]
            assert len(busy) <= 1
            moved[:] = [i for i in range(4) if home(broker, i) != before[i]]
            return not under_way(broker)

        await cluster.until(one_after_the_other)
        assert moved == [0, 1, 2, 3]

    in_virtual_time(main, brokers=0)


def test_move_does_not_wait_for_a_removed_log() -> None:
    """A flush that somebody waits for is not lost when the log moves."""

    async def main(cluster: Cluster, broker: Broker) -> None:
        for n in range(20):
            broker.append(b"%d" % n, acks=1)
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        errors: list[KafkaError] = []

        async def write() -> None:
            while home(broker) == "/data" or under_way(broker):
                end = broker.append(b"more", acks=1)
                try:
                    await broker.flusher.flushed(log_of(broker), end)
                except KafkaError as error:
                    errors.append(error)

        await broker.process.spawn(cluster.loop, write())
        assert errors == []

    on_one_broker(main, flush_messages="5")


def keyed(broker: Broker, n: int) -> int:
    batch = build_batch([SimpleRecord(b"k", b"%d" % n, 0)])
    return broker.process.run(lambda: broker.partition().append(batch, 1, 0)).next_offset


def test_log_is_not_compacted_during_a_move() -> None:
    async def main(cluster: Cluster, broker: Broker) -> None:
        for n in range(100):
            keyed(broker, n)
        log = log_of(broker)
        log.roll(0)
        keyed(broker, 100)
        broker.partition().on_config()
        assert assess(log, broker.partition().high_watermark, 0).verdict.possible
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        assert assess(log, broker.partition().high_watermark, 0).verdict is CleaningVerdict.MOVING
        await cluster.until(lambda: not under_way(broker))
        assert assess(log_of(broker), broker.partition().high_watermark, 0).verdict is not CleaningVerdict.MOVING

    on_one_broker(main, cleanup_policy="compact")


def test_move_of_a_log_whose_last_records_were_compacted() -> None:
    """The active segment is empty and begins behind a gap: the copy ends there, too."""

    async def main(cluster: Cluster, broker: Broker) -> None:
        for n in range(10):
            keyed(broker, n)
        log = log_of(broker)
        log.skip_to(25, now_ms=0)
        broker.process.run(broker.mover.alter, broker.partition(), broker.partitions.log_dirs[1])
        await cluster.until(lambda: not under_way(broker))
        assert (home(broker), log_of(broker).log_end_offset, keyed(broker, 1)) == ("/data1", 25, 26)
        broker.kill()
        broker.start()
        await cluster.until(lambda: len(broker.partitions) == 1)
        assert log_of(broker).log_end_offset == 26

    on_one_broker(main, cleanup_policy="compact")
