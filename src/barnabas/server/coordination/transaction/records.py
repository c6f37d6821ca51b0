"""Table: the record of `__transaction_state`, as Apache Kafka 4.3 reads and writes it.

Fields are those of transaction-coordinator/src/main/resources/common/message. There is one kind of record. Its key is a
transactional id, its value the whole state of the id. A tombstone means that the id has expired.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.wire.schema import Message, MessageStruct, array, int8, int16, int32, int64, string
from barnabas.server.coordination.log_format import LogFormat, RecordKind


class TransactionLogKey(Message, versions="0"):
    transactional_id: str = string()


class PartitionsSchema(MessageStruct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0, ignorable=True)
    next_producer_id: int = int64("1+", default=-1, tag=1, ignorable=True)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", default=-1, tag=3, ignorable=True)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, null="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", default=0, tag=2, ignorable=True)
    last_producer_epoch: int = int16("1+", default=-1, tag=10_000, ignorable=True)
    """A field that Kafka does not have and ignores, as any unknown tag. The new coordinator uses this field to
    recognize a producer's retry of InitProducerId (KIP-360). Kafka does not store the last epoch, so that its new
    coordinator fences such a producer."""


FORMAT: Final = LogFormat([RecordKind(0, TransactionLogKey, TransactionLogValue, write_version=1)])
