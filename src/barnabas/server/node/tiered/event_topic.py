"""Shell: `__remote_log_metadata` over the brokers of the cluster; implements `EventTopic` of the tiering package.

A partition that this broker leads is read and written directly, the others by Fetch and Produce requests, as a client
would. Brokers therefore need the permission to do so: with an authorizer they are super users, as in Kafka.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import NO_LEADER, REMOTE_LOG_METADATA_TOPIC, TopicPartition
from barnabas.protocol.records.batch import check_crc, iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.server.metadata.image.cluster import TopicImage
from barnabas.server.node.tiered.settings import MetadataTopicSettings
from barnabas.server.peers.peer_router import PeerRouter
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.purgatory import wait_for_bytes
from barnabas.server.tiering.errors import RemoteStorageError
from barnabas.server.tiering.ports import EventBatch

_CREATE_TOPICS_VERSION: Final = 7
_READ_BYTES: Final = 1024 * 1024
_WAIT_MS: Final = 5_000
"""How long a read waits for the first event."""


class PeerEventTopic:
    """The topic, wherever its partitions are led."""

    def __init__(self, router: PeerRouter, settings: MetadataTopicSettings, clock: Clock) -> None:
        self._router = router
        self._settings = settings
        self._clock = clock

    # -- creation ------------------------------------------------------------------------------------------------------

    async def partition_count(self) -> int:
        topic = self._topic()
        if topic is None:
            await self._create()
            topic = self._topic()
        if topic is None:
            raise RemoteStorageError(f"{REMOTE_LOG_METADATA_TOPIC} is being created.")
        return len(topic.partitions)

    def _topic(self) -> TopicImage | None:
        return self._router.local.metadata.image.topics.get(REMOTE_LOG_METADATA_TOPIC)

    async def _create(self) -> None:
        settings = self._settings
        configs = {
            "cleanup.policy": "delete",
            "min.insync.replicas": str(settings.min_insync_replicas),
            "retention.bytes": "-1",
            "retention.ms": str(settings.retention_ms),
            "unclean.leader.election.enable": "false",
        }
        wanted = CreatableTopic(
            name=REMOTE_LOG_METADATA_TOPIC,
            num_partitions=settings.partitions,
            replication_factor=settings.replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        try:
            response = await self._router.local.controller.call(
                CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), _CREATE_TOPICS_VERSION, None
            )
        except KafkaError as error:
            raise RemoteStorageError(f"{REMOTE_LOG_METADATA_TOPIC} could not be created: {error}") from error
        assert isinstance(response, CreateTopicsResponse)
        for result in response.topics:
            code = error_code(result.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise RemoteStorageError(
                    f"{REMOTE_LOG_METADATA_TOPIC} could not be created ({code.name}): {result.error_message} Check "
                    "that the cluster has at least rlmm.config.remote.log.metadata.topic.replication.factor brokers."
                )

    # -- writing -------------------------------------------------------------------------------------------------------

    async def append(self, partition: int, value: bytes) -> int:
        batch = build_batch([SimpleRecord(None, value, self._clock.now_ms())])
        leader = self._leader(partition)
        try:
            if self._router.is_local(leader):
                return await self._append_here(partition, batch)
            return await self._append_there(leader, partition, batch)
        except RemoteStorageError:
            raise
        except KafkaError as error:
            raise RemoteStorageError(
                f"An event could not be written to {REMOTE_LOG_METADATA_TOPIC}-{partition}: {error}"
            ) from error

    def _leader(self, partition: int) -> int:
        leader = self._router.leader(TopicPartition(REMOTE_LOG_METADATA_TOPIC, partition))
        if leader is None or leader == NO_LEADER:
            raise RemoteStorageError(f"{REMOTE_LOG_METADATA_TOPIC}-{partition} has no leader.")
        return leader

    async def _append_here(self, partition: int, batch: bytes) -> int:
        local = self._router.local
        led = local.partitions.require(REMOTE_LOG_METADATA_TOPIC, partition)
        info = led.append(batch, -1, local.clock.now_ms())
        deadline = asyncio.get_running_loop().time() + local.broker_config.current.request_timeout_ms / 1000
        code = await led.wait_committed(info.next_offset, deadline)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return info.first_offset

    async def _append_there(self, leader: int, partition: int, batch: bytes) -> int:
        topic = self._topic()
        assert topic is not None, "its leader is known"
        data = TopicProduceData(
            name=REMOTE_LOG_METADATA_TOPIC,
            topic_id=topic.topic_id,
            partition_data=[PartitionProduceData(index=partition, records=batch)],
        )
        timeout_ms = self._router.local.broker_config.current.request_timeout_ms
        request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data])
        response = await self._router.send(leader, request, "remote-log-metadata")
        assert isinstance(response, ProduceResponse)
        for answer in (p for topic_answer in response.responses for p in topic_answer.partition_responses):
            if answer.error_code:
                raise KafkaError(error_code(answer.error_code), answer.error_message)
            return answer.base_offset
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Broker {leader} did not answer for the partition.")

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self, partition: int, offset: int, *, wait: bool) -> EventBatch:
        max_wait_ms = _WAIT_MS if wait else 0
        leader = self._leader(partition)
        try:
            if self._router.is_local(leader):
                return await self._read_here(partition, offset, max_wait_ms)
            return await self._read_there(leader, partition, offset, max_wait_ms)
        except RemoteStorageError:
            raise
        except KafkaError as error:
            raise RemoteStorageError(
                f"{REMOTE_LOG_METADATA_TOPIC}-{partition} cannot be read at offset {offset}: {error}"
            ) from error

    async def _read_here(self, partition: int, offset: int, max_wait_ms: int) -> EventBatch:
        local = self._router.local
        deadline = asyncio.get_running_loop().time() + max_wait_ms / 1000
        led = local.partitions.require(REMOTE_LOG_METADATA_TOPIC, partition)
        data, high_watermark = await self._records_here(led, offset)
        if not data and max_wait_ms:
            await wait_for_bytes([led.consumer_fetches], 1, deadline)
            data, high_watermark = await self._records_here(led, offset)
        return _events(data, offset, high_watermark)

    async def _records_here(self, led: Partition, offset: int) -> tuple[Buffer, int]:
        found = led.read(offset, _READ_BYTES)
        if found.pending is not None:
            found = await led.read_from_disk(found, self._router.local.disk)
        return found.data, found.high_watermark

    async def _read_there(self, leader: int, partition: int, offset: int, max_wait_ms: int) -> EventBatch:
        """Each partition has a connection of its own, because the leader may delay the response."""
        topic = self._topic()
        assert topic is not None, "its leader is known"
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_READ_BYTES)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=_READ_BYTES,
            topics=[FetchTopic(topic=REMOTE_LOG_METADATA_TOPIC, topic_id=topic.topic_id, partitions=[wanted])],
        )
        response = await self._router.send(leader, request, f"remote-log-metadata-{partition}")
        assert isinstance(response, FetchResponse)
        if response.error_code:
            raise KafkaError(error_code(response.error_code))
        for answer in (p for topic_answer in response.responses for p in topic_answer.partitions):
            if answer.error_code:
                raise KafkaError(error_code(answer.error_code))
            records = answer.records
            assert records is None or isinstance(records, bytes | bytearray | memoryview)
            return _events(b"" if records is None else records, offset, answer.high_watermark)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Broker {leader} did not answer for the partition.")


def _events(data: Buffer, offset: int, high_watermark: int) -> EventBatch:
    """The events in fetched batches. Raises CorruptBatchError."""
    records: list[tuple[int, bytes]] = []
    following = offset
    for position, header in iter_batches(data):
        check_crc(data, position, header)
        following = header.next_offset
        if not header.is_control:
            records += [(r.offset, bytes(r.value or b"")) for r in iter_records(data, position, header)]
    return EventBatch([record for record in records if record[0] >= offset], following, high_watermark)
