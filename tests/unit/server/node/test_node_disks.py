"""A disk that fails takes its own partitions offline and nothing else; settings that reach the disk; maintenance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.client_conn import ClientConnection
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.schema import Request, Response
from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from barnabas.server.replication.partitions import Partitions
from barnabas.server.storage.errors import DiskIoError
from barnabas.server.storage.fs import Access, File, OsFileSystem


class BreakableDisk(OsFileSystem):
    """The real disk, until `broken` names a directory whose files can no longer be written."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = ""
        self.log_syncs = 0
        """Syncs of segments. Other files, such as those that name the topic of a log, have syncs of their own."""

    def open(self, path: str, access: Access) -> File:
        return BreakableFile(super().open(path, access), self)


class BreakableFile:
    def __init__(self, file: File, disk: BreakableDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        if self._disk.broken and self._file.path.startswith(self._disk.broken):
            raise DiskIoError("the test broke this disk")
        return self._file.write_at(position, buffers)

    def sync(self) -> None:
        if self._file.path.endswith(".log") and "__cluster_metadata" not in self._file.path:
            self._disk.log_syncs += 1
        self._file.sync()


Call = Callable[[Request, int], Awaitable[Response]]


async def with_node(
    directories: list[Path], scenario: Callable[[Node, Call], Awaitable[None]], fs: OsFileSystem | None = None
) -> None:
    """Run `scenario` against a node over a real socket."""
    config = build_config(
        {"log.dirs": ",".join(map(str, directories)), "listeners": "PLAINTEXT://127.0.0.1:0"}, metadata_fsync=False
    )
    node = Node(config, fs=fs)
    ready = asyncio.Event()
    running = asyncio.ensure_future(node.run(lambda _: ready.set()))
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
    assert not running.done(), running.exception()
    reader, writer = await asyncio.open_connection("127.0.0.1", node.endpoints[0].port)
    connection = ClientConnection("test")

    async def call(request: Request, version: int) -> Response:
        _, parts = connection.send(request, version)
        writer.writelines(parts)
        while True:
            for _, response in connection.feed(await reader.read(1 << 16)):
                return response

    try:
        await scenario(node, call)
    finally:
        writer.close()
        node.stop()
        await running


async def create(call: Call, topic: str, partitions: int = 1, **configs: str) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
            )
        ]
    )
    response = await call(request, 7)
    assert [t.error_code for t in response.topics] == [0]  # type: ignore[attr-defined]


async def produce(call: Call, topic: str, partition: int = 0) -> ErrorCode:
    records = build_batch([SimpleRecord(None, b"value", 1_000_000)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
    response = await call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)  # type: ignore[attr-defined]


async def log_start(call: Call, topic: str) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-2)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    response = await call(request, 9)
    return int(response.topics[0].partitions[0].offset)  # type: ignore[attr-defined]


def partitions_of(node: Node) -> Partitions:
    assert node.broker is not None
    return node.broker.partitions


def test_a_failing_directory_takes_only_its_own_partitions_offline(tmp_path: Path) -> None:
    disk = BreakableDisk()
    good, bad = tmp_path / "good", tmp_path / "bad"

    async def scenario(node: Node, call: Call) -> None:
        await create(call, "t", 6)
        homes = {p.name.partition: partitions_of(node).log_dir_of(p) for p in partitions_of(node)}
        on_bad = sorted(i for i, home in homes.items() if home is not None and home.path == str(bad))
        assert len(on_bad) == 3, "new logs spread evenly over the directories"
        assert [await produce(call, "t", i) for i in range(6)] == [ErrorCode.NONE] * 6
        disk.broken = str(bad)
        expected = [ErrorCode.KAFKA_STORAGE_ERROR if i in on_bad else ErrorCode.NONE for i in range(6)]
        assert [await produce(call, "t", i) for i in range(6)] == expected
        disk.broken = ""
        assert [await produce(call, "t", i) for i in range(6)] == expected, "offline stays offline until a restart"
        dirs = {d.log_dir: d.error_code for d in (await call(DescribeLogDirsRequest(topics=None), 4)).results}  # type: ignore[attr-defined]
        assert dirs == {str(good): 0, str(bad): ErrorCode.KAFKA_STORAGE_ERROR}
        await create(call, "later", 2)
        assert [await produce(call, "later", i) for i in range(2)] == [ErrorCode.NONE] * 2

    asyncio.run(with_node([good, bad], scenario, disk))
    assert (good / ".kafka_cleanshutdown").exists()
    assert not (bad / ".kafka_cleanshutdown").exists()

    async def after_restart(node: Node, call: Call) -> None:
        assert [await produce(call, "t", i) for i in range(6)] == [ErrorCode.NONE] * 6

    asyncio.run(with_node([good, bad], after_restart))


def test_a_node_ends_when_its_last_directory_fails(tmp_path: Path) -> None:
    """It can keep nothing; were it to stay, the controller would give it partitions."""

    async def make_topic(node: Node, call: Call) -> None:
        await create(call, "t")

    async def main() -> list[str]:
        disk = BreakableDisk()
        node = Node(build_config({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}), fs=disk)
        ready = asyncio.Event()
        running = asyncio.ensure_future(node.run(lambda _: ready.set()))
        await ready.wait()
        disk.broken = f"{tmp_path}/t-0"
        with pytest.raises(KafkaError):
            partitions_of(node).require("t", 0).append(build_batch([SimpleRecord(None, b"value", 0)]), -1, 0)
        assert len(node.health().problems) == 1
        await asyncio.wait((running,))
        return _sentences(running.exception())

    asyncio.run(with_node([tmp_path], make_topic))
    told = f"All data directories are offline: {tmp_path}: the test broke this disk"
    assert asyncio.run(main()) == [told]
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def _sentences(error: BaseException | None) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [sentence for inner in error.exceptions for sentence in _sentences(inner)]
    return [str(error)]


def test_flush_messages_syncs_before_the_response(tmp_path: Path) -> None:
    disk = BreakableDisk()

    async def scenario(node: Node, call: Call) -> None:
        await create(call, "careful", flush_messages="1")
        await create(call, "usual")
        before = disk.log_syncs
        assert await produce(call, "usual") is ErrorCode.NONE
        assert disk.log_syncs == before
        assert await produce(call, "careful") is ErrorCode.NONE
        assert disk.log_syncs > before
        partition = partitions_of(node).require("careful", 0)
        assert partition.log is not None
        assert partition.log.recovery_point == partition.log.log_end_offset == 1

    asyncio.run(with_node([tmp_path], scenario, disk))


def test_topic_configs_reach_the_log_while_it_runs(tmp_path: Path) -> None:
    async def scenario(node: Node, call: Call) -> None:
        await create(call, "t")

        async def alter(kind: int, name: str, config: str, value: str) -> None:
            change = AlterableConfig(name=config, config_operation=0, value=value)
            request = IncrementalAlterConfigsRequest(
                resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])]
            )
            assert (await call(request, 1)).responses[0].error_code == 0  # type: ignore[attr-defined]

        log = partitions_of(node).require("t", 0).log
        assert log is not None
        await alter(4, "", "log.retention.bytes", "5555")
        assert log.config.retention_bytes == 5555, "a broker-wide default"
        await alter(2, "t", "retention.bytes", "7777")
        assert log.config.retention_bytes == 7777, "the topic's own beats it"
        await alter(4, "", "max.decompressed.message.bytes", "60")
        assert log.config.max_decompressed_message_bytes == 60
        await alter(2, "t", "max.decompressed.message.bytes", "50")
        assert log.config.validation_rules("t").max_decompressed_message_bytes == 50
        await alter(2, "t", "max.message.bytes", "70")
        assert await produce(call, "t") is ErrorCode.MESSAGE_TOO_LARGE

    asyncio.run(with_node([tmp_path], scenario))


def test_retention_deletes_old_segments(tmp_path: Path) -> None:
    async def scenario(node: Node, call: Call) -> None:
        await create(call, "t", retention_ms="1000")
        assert await produce(call, "t") is ErrorCode.NONE
        assert await log_start(call, "t") == 0
        partition = partitions_of(node).require("t", 0)
        assert partition.log is not None
        assert partition.log.enforce_retention(2_000_000_000_000, partition.high_watermark) == 1
        assert await log_start(call, "t") == 1

    asyncio.run(with_node([tmp_path], scenario))
