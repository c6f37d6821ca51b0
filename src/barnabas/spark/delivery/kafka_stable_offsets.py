"""Shell: the last stable offsets of partitions, and the open transactions that hold them back."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.transactions import TransactionDescription
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.offsets import list_offsets
from barnabas.client.values import LATEST, IsolationLevel
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.delivery.visibility import Holder


class KafkaStableOffsets:
    """The partitions of a cluster."""

    def __init__(self, cluster: Cluster, admin: AsyncAdmin) -> None:
        self._cluster = cluster
        self._admin = admin

    async def stable(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, LATEST)
        found = await list_offsets(self._cluster, wanted, isolation=IsolationLevel.READ_COMMITTED)
        offsets: dict[TopicPartition, int] = {}
        for partition, answer in found.items():
            if not isinstance(answer, KafkaError):
                offsets[partition] = answer.offset
            elif answer.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise answer
        return offsets

    async def holders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Holder]:
        described = await self._admin.describe_producers(partitions)
        first = {
            partition: min(open_ones, key=lambda producer: producer.open_since)
            for partition, producers in described.items()
            if not isinstance(producers, KafkaError)
            and (open_ones := [producer for producer in producers if producer.open_since >= 0])
        }
        transactions = await self._transactions({producer.producer_id for producer in first.values()})
        holders = {}
        for partition, producer in first.items():
            found = transactions.get(producer.producer_id)
            known = found is not None and found.started_ms >= 0
            holders[partition] = Holder(
                producer.producer_id,
                producer.open_since,
                None if found is None else found.transactional_id,
                found.started_ms if found is not None and known else producer.last_timestamp_ms,
                is_last_write=not known,
            )
        return holders

    async def _transactions(self, producer_ids: Iterable[int]) -> dict[int, TransactionDescription]:
        """The transactions of these producers whose coordinators show them to this principal."""
        ids = sorted(producer_ids)
        listed = await self._admin.list_transactions(producer_ids=ids) if ids else []
        described = await self._admin.describe_transactions([each.transactional_id for each in listed])
        return {each.producer_id: each for each in described.values() if not isinstance(each, KafkaError)}
