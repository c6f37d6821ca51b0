"""A disk fills up during a produce: the broker rejects writes without loss, and continues when space is free again."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.testing.process import BrokerProcess
from tests.system.broker.wire_client import WireClient

SIZE = 8 << 20
SETTINGS = ("offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB. Only root can make one."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


class Talk:
    """The few requests that this test needs, on one connection."""

    def __init__(self, address: str) -> None:
        self._client = WireClient(address)

    def close(self) -> None:
        self._client.socket.close()

    def create(self, name: str) -> ErrorCode:
        configs = [CreatableTopicConfig(name="internal.segment.bytes", value="500000")]
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
        return ErrorCode(self._client.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code)

    def topics(self) -> set[str]:
        return {topic.name for topic in self._client.call(MetadataRequest(topics=None), 9).topics}

    def produce(self, topic: str, key: bytes, value: bytes) -> tuple[ErrorCode, int]:
        records = build_batch([SimpleRecord(key, value, int(time.time() * 1000))])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        request = ProduceRequest(acks=-1, timeout_ms=9000, topic_data=[data])
        answer = self._client.call(request, 9).responses[0].partition_responses[0]
        return ErrorCode(answer.error_code), answer.base_offset

    def commit(self, offset: int) -> ErrorCode:
        assert self._client.call(FindCoordinatorRequest(key="g"), 3).error_code == 0
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="m" * 1000
        )
        topic = OffsetCommitRequestTopic(name="full", partitions=[partition])
        answer = self._client.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def committed(self) -> int:
        answer = self._fetch_offset()
        assert answer.error_code == 0
        offset: int = answer.topics[0].partitions[0].committed_offset
        return offset

    def until_coordinated(self) -> None:
        while self._fetch_offset().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass

    def _fetch_offset(self) -> Any:
        asked = OffsetFetchRequestTopic(name="full", partition_indexes=[0])
        return self._client.call(OffsetFetchRequest(group_id="g", topics=[asked]), 7)

    def read(self, topic: str) -> dict[int, bytes]:
        """The key of every record in partition 0, by offset."""
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])])
            answer = self._client.call(request, 11).responses[0].partitions[0]
            assert answer.error_code == 0
            if not answer.records:
                return found
            for position, header in iter_batches(answer.records):
                offset = header.next_offset
                for record in iter_records(answer.records, position, header):
                    found[record.offset] = bytes(record.key or b"")


def fill_up(folder: Path) -> Path:
    """Fills the remaining space of the file system with another file."""
    stranger = folder / "somebody-else's"
    with stranger.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return stranger


def test_full_disk_rejects_writes_and_recovers_when_space_is_free(tiny_disk: Path, tmp_path: Path) -> None:
    broker = BrokerProcess(tiny_disk / "data", settings=SETTINGS)
    broker.log_path = tmp_path / "log.txt"
    broker.start()
    talk = Talk(broker.bootstrap_servers)
    assert (talk.create("full"), talk.create("other")) == (ErrorCode.NONE, ErrorCode.NONE)
    assert talk.commit(1) is ErrorCode.NONE
    kept: dict[int, bytes] = {}
    value = random.Random(7).randbytes(20_000)
    for number in range(2 * SIZE // len(value)):
        key = b"%d" % number
        code, offset = talk.produce("full", key, value)
        if code is ErrorCode.NONE:
            kept[offset] = key
        else:
            assert (code, offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert SIZE * 0.8 / len(value) < len(kept) < SIZE / len(value)
    stranger = fill_up(tiny_disk)

    assert talk.produce("other", b"k", value)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    committed = 1
    while committed < 100 and talk.commit(committed + 1) is ErrorCode.NONE:  # the last page of its log has room
        committed += 1
    assert committed < 100, "a commit that cannot be written must not be acknowledged"
    assert talk.committed() == committed, "a rejected commit must have no effect"
    refused = talk.create("late")
    assert talk.read("full") == kept, "the stored records must be readable"
    assert {"full", "other"} <= talk.topics()

    stranger.unlink()
    subprocess.run(["mount", "-o", f"remount,size={4 * SIZE}", str(tiny_disk)], check=True)
    code, offset = talk.produce("full", b"after", b"")
    assert code is ErrorCode.NONE, "writes must succeed again without a restart when space is free"
    kept[offset] = b"after"
    assert talk.commit(1000) is ErrorCode.NONE
    assert talk.create("later") is ErrorCode.NONE

    talk.close()
    assert broker.stop() == 0
    broker.start()
    talk = Talk(broker.bootstrap_servers)
    assert talk.read("full") == kept
    talk.until_coordinated()
    assert talk.committed() == 1000
    expected = {"full", "other", "later", *({"late"} if refused is ErrorCode.NONE else ())}
    assert talk.topics() - {"__consumer_offsets"} == expected
    assert talk.produce("other", b"k", value)[0] is ErrorCode.NONE
    assert talk.produce("later", b"k", value)[0] is ErrorCode.NONE
    talk.close()
    broker.stop()
