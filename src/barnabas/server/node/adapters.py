"""Shell: implements ports of the packages below `node`. Each class implements a port of one package with the
objects of another package."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Executor

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicId, TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.protocol.records.batch import check_crc, iter_batches
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.protocol.records.validate import Origin
from barnabas.server.coordination.group.service import GroupCoordinator
from barnabas.server.coordination.ports import CatalogTopic, LogRecord, Marker, ProducerIdAndEpoch
from barnabas.server.coordination.transaction.service import TransactionCoordinator
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.image.cluster import ClusterImage, TopicImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.storage.errors import DamagedLogError, TransientStorageError

DAMAGED = (
    "This broker does not coordinate the groups or transactions of this partition. What to do: docs/OPERATIONS.md, "
    "section Damaged files."
)
_LOAD_BYTES = 256 * 1024
"""The number of bytes whose records are applied in one turn of the event loop, in some tens of milliseconds."""
_READ_AGAIN_S = 0.5
"""Seconds until a log is read again that could not be opened, for example for want of file descriptors."""
_NEVER = 1e12
"""Seconds until a deadline that never comes: the wait for a commit ends only if this broker loses the leadership."""
logger = get_logger("barnabas.server.node")


class ReplicatedWriter:
    """Implements `PartitionWriter` of the coordination package with `Partitions` of the replication package."""

    def __init__(self, partitions: Partitions, disk: Executor, codec: CompressionType = CompressionType.NONE) -> None:
        """`codec` compresses the batches of records; `disk` executes the reads that miss the page cache."""
        self._partitions = partitions
        self._disk = disk
        self._codec = codec

    def append(
        self, tp: TopicPartition, records: Sequence[LogRecord], now_ms: int, producer: ProducerIdAndEpoch | None = None
    ) -> int:
        by = producer or ProducerIdAndEpoch()
        batch = build_batch(
            [SimpleRecord(record.key, record.value, now_ms) for record in records],
            codec=self._codec,
            producer_id=by.producer_id,
            producer_epoch=by.epoch,
            transactional=producer is not None,
        )
        return self._leader(tp).append(batch, -1, now_ms, Origin.COORDINATOR).next_offset

    def append_marker(self, tp: TopicPartition, marker: Marker, now_ms: int) -> int:
        batch = build_end_txn_marker(
            EndTxn(marker.committed, marker.coordinator_epoch),
            producer_id=marker.producer.producer_id,
            producer_epoch=marker.producer.epoch,
            timestamp=now_ms,
        )
        return self._leader(tp).append(batch, -1, now_ms, Origin.COORDINATOR).next_offset

    def high_watermark(self, tp: TopicPartition) -> int:
        return self._leader(tp).high_watermark

    async def wait_committed(self, tp: TopicPartition, offset: int) -> None:
        code = await self._leader(tp).wait_committed(offset, asyncio.get_running_loop().time() + _NEVER)
        if code not in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            raise KafkaError(code)

    async def read_log(self, tp: TopicPartition) -> AsyncIterator[Buffer]:
        partition = self._leader(tp)
        assert partition.log is not None
        offset, end = partition.log.log_start_offset, partition.log.log_end_offset
        while offset < end:
            log = partition.log  # changes if the replica is moved to another directory
            if log is None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log directory of {tp} is offline.")
            try:
                plan = log.plan_read(offset, _LOAD_BYTES, upper_offset=end)
                result = plan.try_run()
                if result is None:
                    result = await asyncio.get_running_loop().run_in_executor(self._disk, plan.run)
            except TransientStorageError as error:
                # Otherwise this partition's groups would have no coordinator before the next election.
                logger.warning("a coordinator cannot read its log yet; trying again", partition=tp, reason=str(error))
                await asyncio.sleep(_READ_AGAIN_S)
                self._leader(tp)
                continue
            whole = 0
            try:
                for position, header in iter_batches(result.data):
                    check_crc(result.data, position, header)
                    whole = position + header.size
                    offset = header.next_offset
            except CorruptBatchError as error:
                # Records before the damage must not be served either: later records may have replaced them.
                raise DamagedLogError(f"{log.path} is damaged behind offset {offset}: {error}. {DAMAGED}") from error
            if not whole:
                raise DamagedLogError(f"{log.path} cannot be read beyond offset {offset}. {DAMAGED}")
            yield memoryview(result.data)[:whole]
            await asyncio.sleep(0)  # bytes from the page cache are read without a suspension

    def _leader(self, tp: TopicPartition) -> Partition:
        partition = self._partitions.get(tp.topic, tp.partition)
        if partition is None or not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition


class ImageCatalog:
    """Implements `TopicCatalog` of the coordination package with a cluster image."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._racks = {broker.broker_id: broker.rack for broker in image.brokers if broker.rack}
        self._names: frozenset[str] | None = None

    def by_name(self, name: str) -> CatalogTopic | None:
        topic = self._image.topics.get(name)
        return None if topic is None else self._view(topic)

    def by_id(self, topic_id: TopicId) -> CatalogTopic | None:
        topic = self._image.topics.get_by_id(topic_id)
        return None if topic is None else self._view(topic)

    def existing(self, names: Iterable[str]) -> set[str]:
        if self._names is None:
            self._names = frozenset(self._image.topics.by_name)
        return set(self._names.intersection(names))

    def names(self) -> Sequence[str]:
        return self._image.topics.names()

    def _view(self, topic: TopicImage) -> CatalogTopic:
        racks = self._racks
        by_partition = (
            tuple(frozenset(racks[r] for r in p.replicas if r in racks) for p in topic.partitions) if racks else ()
        )
        return CatalogTopic(topic.name, topic.topic_id, len(topic.partitions), by_partition)


class ImageGroupConfigs:
    """Implements `GroupConfigs` of the coordination package: the dynamic configs of a group in the newest image."""

    def __init__(self, image: Callable[[], ClusterImage], view: Callable[[ClusterImage], ConfigView]) -> None:
        self._image = image
        self._view = view

    def consumer_session_timeout_ms(self, group_id: str) -> int | None:
        return self._number(group_id, "consumer.session.timeout.ms")

    def consumer_heartbeat_interval_ms(self, group_id: str) -> int | None:
        return self._number(group_id, "consumer.heartbeat.interval.ms")

    def consumer_assignment_interval_ms(self, group_id: str) -> int | None:
        return self._number(group_id, "consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms")

    def share_session_timeout_ms(self, group_id: str) -> int | None:
        return self._number(group_id, "share.session.timeout.ms")

    def share_heartbeat_interval_ms(self, group_id: str) -> int | None:
        return self._number(group_id, "share.heartbeat.interval.ms")

    def share_assignment_interval_ms(self, group_id: str) -> int | None:
        return self._number(group_id, "share.assignment.interval.ms", "group.share.assignment.interval.ms")

    def _number(self, group_id: str, name: str, of_broker: str = "") -> int | None:
        """The config of the group; without one, the config `of_broker`, if it can change while the broker runs."""
        image = self._image()
        text = image.configs.group(group_id).get(name)
        if text is None:
            return self._view(image).broker_int(of_broker) if of_broker else None
        value = self._view(image).limited_to_bounds(name, int(text))
        assert isinstance(value, int)
        return value


class GroupCoordinatorListener:
    """Notifies the group coordinator of leaderships (`LeadershipListener`) and images (`ImageSubscriber`)."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        if partition.topic == CONSUMER_OFFSETS_TOPIC:
            self._groups.on_elected(partition.partition, leader_epoch)

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        if partition.topic == CONSUMER_OFFSETS_TOPIC:
            self._groups.on_resigned(partition.partition, leader_epoch)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if not delta.topics and not _racks_changed(delta, image):
            return
        topic = image.topics.get(CONSUMER_OFFSETS_TOPIC)
        self._groups.on_partition_count(0 if topic is None else len(topic.partitions))
        deleted = frozenset(topic.name for topic in delta.topics.deleted.values() if topic.name not in image.topics)
        self._groups.on_topics_changed(ImageCatalog(image), deleted)


def _racks_changed(delta: ClusterDelta, image: ClusterImage) -> bool:
    """Whether a broker's rack has changed. Other changes of brokers do not affect assignments."""

    def racks(of: ClusterImage) -> dict[int, str]:
        return {broker.broker_id: broker.rack for broker in of.brokers if broker.rack}

    return bool(delta.brokers) and racks(delta.before) != racks(image)


class TransactionCoordinatorListener:
    """Notifies the transaction coordinator of leaderships, of its topic's partition count, and of
    `transaction.version`."""

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._transactions = transactions

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        if partition.topic == TRANSACTION_STATE_TOPIC:
            self._transactions.on_elected(partition.partition, leader_epoch)

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        if partition.topic == TRANSACTION_STATE_TOPIC:
            self._transactions.on_resigned(partition.partition, leader_epoch)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self._transactions.on_feature_level(image.features.levels.get("transaction.version", 0))
        if delta.topics:
            # Called later, because the channel reads the leaders from MetadataCache, which gets the image after this
            # subscriber.
            asyncio.get_running_loop().call_soon(self._transactions.markers.on_leaders_changed)
            topic = image.topics.get(TRANSACTION_STATE_TOPIC)
            self._transactions.on_partition_count(0 if topic is None else len(topic.partitions))
