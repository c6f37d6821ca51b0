"""Shell: reads an internal topic to its end, again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.record_stream import RecordStream
from barnabas.client.errors import OffsetOutOfRangeError
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.offsets import offsets_at
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.values import EARLIEST, LATEST, IsolationLevel
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.spark.mirror.errors import MirrorRecordError

log = get_logger("barnabas.mirror")

_LIMITS: Final = ConsumerFetchConfig(
    max_bytes=52_428_800, partition_max_bytes=8_388_608, isolation=IsolationLevel.READ_COMMITTED
)
_TAKEN_MAX: Final = 10_000
OnRecord = Callable[[bytes, bytes | None], None]
"""Called with the key and the value of each record; a MirrorRecordError that it raises is logged."""


class TopicReader:
    """The committed records of some partitions of a topic, in the order of each partition."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int = 1) -> None:
        self._cluster = cluster
        self._topic = topic
        self._reader = PartitionReader(cluster, _LIMITS)
        self._positions: dict[TopicPartition, int] = {}
        self._partitions = [TopicPartition(topic, index) for index in range(partitions)]

    async def read_new(self, on_record: OnRecord) -> None:
        """Pass on the records that were written since the last call, up to the end that the topic has now. Raises
        KafkaError, UNKNOWN_TOPIC_OR_PARTITION if there is no such topic."""
        unread = [partition for partition in self._partitions if partition not in self._positions]
        if unread:
            self._positions |= await self._offsets(unread, EARLIEST)
        ends = await self._offsets(self._partitions, LATEST)
        ranges = [OffsetRange(tp, self._positions[tp], end) for tp, end in ends.items() if self._positions[tp] < end]
        try:
            async for batches in self._reader.batches(ranges):
                end = ends[batches.partition]
                stream = RecordStream(batches, isolation=IsolationLevel.READ_COMMITTED, check_crcs=True)
                while records := stream.take(_TAKEN_MAX):
                    for record in records:
                        if self._positions[batches.partition] <= record.offset < end:
                            self._positions[batches.partition] = record.offset + 1
                            self._pass_on(on_record, record.offset, record.key, record.value)
        except OffsetOutOfRangeError:
            self._positions.clear()  # the topic was created anew, or its beginning was deleted: read it all next time
            raise
        self._positions |= ends

    def _pass_on(self, on_record: OnRecord, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        try:
            on_record(key, value)
        except MirrorRecordError as error:
            log.warning("a record was skipped", topic=self._topic, offset=offset, reason=str(error))

    async def _offsets(self, partitions: list[TopicPartition], which: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, which)
        return await offsets_at(self._cluster, wanted, isolation=IsolationLevel.READ_COMMITTED)


async def partition_count(cluster: Cluster, topic: str) -> int:
    """The partitions of a topic; 0 if it does not exist. Raises KafkaError."""
    from barnabas.client.admin import AsyncAdmin

    found = (await AsyncAdmin(cluster=cluster).describe_topics([topic])).get(topic)
    if isinstance(found, KafkaError):
        if found.code.name == "UNKNOWN_TOPIC_OR_PARTITION":
            return 0
        raise found
    return 0 if found is None else found.partition_count
