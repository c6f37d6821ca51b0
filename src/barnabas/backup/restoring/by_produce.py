"""Shell: restores the records of a run by Produce, for targets that have no cluster links, such as Apache Kafka.

Offsets in the target are consecutive from 0. The log's end says how many records an interrupted restore has produced;
the next one goes on there. The producer is idempotent, so a repeated request adds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from barnabas.backup.errors import BackupError, DamagedBackupError
from barnabas.backup.restoring.rewriting import KeptBatch, kept_records, produced_batch
from barnabas.backup.restoring.translating import LogTransactions, OffsetTranslation
from barnabas.backup.serving.batches import LoadedObject, RunBatches
from barnabas.backup.store import BackupStore
from barnabas.backup.values import PartitionBackup, RunManifest
from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import LATEST
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import BatchHeader, check_crc, iter_records, read_header
from barnabas.protocol.records.control import EndTxn, parse_control
from barnabas.protocol.records.errors import CorruptBatchError
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_PARALLEL: Final = 8
_SEND_TIMEOUT_MS: Final = 120_000
_SEQUENCES: Final = 1 << 31


class ProduceRestore:
    """Produces the records of a run. `on_sent` gets the bytes of each batch."""

    def __init__(self, admin: AsyncAdmin, store: BackupStore, on_sent: Callable[[int], None]) -> None:
        self._admin = admin
        self._cluster = admin.cluster
        self._store = store
        self._on_sent = on_sent
        self._producer = (-1, -1)

    async def run(
        self, run: RunManifest, committed: Mapping[TopicPartition, Sequence[int]]
    ) -> dict[TopicPartition, dict[int, int]]:
        """Produce all records. Returns what the committed offsets become. Raises BackupError, KafkaError."""
        response = await self._cluster.retrying(
            "Getting a producer id", self._init_producer, deadline=self._cluster.deadline()
        )
        self._producer = (response.producer_id, response.producer_epoch)
        translated: dict[TopicPartition, dict[int, int]] = {}
        queue = iter(list(run.partitions()))

        async def work(queue: Iterator[tuple[TopicPartition, PartitionBackup]]) -> None:
            for name, partition in queue:
                translated[name] = await self._restore(name, partition, committed.get(name, ()))

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(_PARALLEL):
                    tasks.create_task(work(queue))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return translated

    async def _init_producer(self) -> Any:
        response = await self._cluster.send_any(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_SEND_TIMEOUT_MS)
        )
        if response.error_code:
            raise KafkaError(error_code(response.error_code))
        return response

    async def _restore(
        self, name: TopicPartition, partition: PartitionBackup, committed: Sequence[int]
    ) -> dict[int, int]:
        end = (await self._admin.list_offsets({name: LATEST}))[name]
        if isinstance(end, KafkaError):
            raise end
        batches = RunBatches(self._store, kept_bytes=0)
        transactions = await _transactions(batches, partition)
        translation = OffsetTranslation(committed)
        target = sequence = 0
        for stored in partition.objects:
            loaded = await batches.load(stored)
            for position, header in _headers(loaded):
                if header.next_offset <= partition.log_start or not _has_data(header):
                    continue
                if not transactions.is_committed(header):
                    continue
                kept = _kept(loaded, position, header, partition.log_start)
                if not kept.offsets:
                    continue
                translation.on_records(kept.offsets, target)
                if target >= end.offset:
                    batch = produced_batch(loaded.data, position, header, kept, self._producer, sequence)
                    await self._send(name, batch, target)
                    sequence = (sequence + len(kept.offsets)) % _SEQUENCES
                target += len(kept.offsets)
        if target < end.offset:
            raise BackupError(f"{name} has {end.offset} records on the target, more than the backup: delete the topic.")
        return translation.finish(target)

    async def _send(self, name: TopicPartition, batch: bytes, target: int) -> None:
        cluster = self._cluster

        async def attempt() -> int:
            try:
                leader = await cluster.leader(name)
                view = await cluster.topic(name.topic)
                data = PartitionProduceData(index=name.partition, records=batch)
                topic = TopicProduceData(name=name.topic, topic_id=view.topic_id, partition_data=[data])
                request = ProduceRequest(acks=-1, timeout_ms=cluster.options.request_timeout_ms, topic_data=[topic])
                response = await cluster.send(leader.leader, request)
                answer = response.responses[0].partition_responses[0]
                if answer.error_code and answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    code = error_code(answer.error_code)
                    raise KafkaError(code, f"{name}: {answer.error_message or code.message}")
                return target if answer.error_code else answer.base_offset
            except KafkaError as error:
                cluster.note_error(name, error.code)
                raise

        written: int = await cluster.retrying(
            f"Producing to {name}", attempt, deadline=cluster.deadline(_SEND_TIMEOUT_MS)
        )
        if written not in (target, -1):
            raise BackupError(
                f"{name} got other records during the restore: a batch was written at {written} instead of {target}. "
                "Stop the producers, delete the topics, and restore again."
            )
        self._on_sent(len(batch))


def _headers(loaded: LoadedObject) -> Iterator[tuple[int, BatchHeader]]:
    for position in loaded.positions:
        yield position, read_header(loaded.data, position)


def _has_data(header: BatchHeader) -> bool:
    return header.record_count > 0 and not header.is_control


def _kept(loaded: LoadedObject, position: int, header: BatchHeader, log_start: int) -> KeptBatch:
    try:
        check_crc(loaded.data, position, header)
        return kept_records(loaded.data, position, header, log_start)
    except CorruptBatchError as error:
        raise DamagedBackupError(f"The batch at offset {header.base_offset} is damaged: {error}") from error


async def _transactions(batches: RunBatches, partition: PartitionBackup) -> LogTransactions:
    """The markers of the partition. Reads only objects that have some."""
    found = LogTransactions()
    for stored in partition.objects:
        if not stored.transactional:
            continue
        loaded = await batches.load(stored)
        for position, header in _headers(loaded):
            if not header.is_control or not header.record_count:
                continue
            for record in iter_records(loaded.data, position, header):
                marker = parse_control(record)
                if isinstance(marker, EndTxn):
                    found.on_marker(header.producer_id, record.offset, commit=marker.commit)
    return found
