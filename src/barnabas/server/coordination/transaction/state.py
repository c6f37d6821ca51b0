"""Value: the state of one transactional id, and the permitted transitions between states.

                       ┌────────────────────── InitProducerId ──────────────────────┐
                       ▼                                                             │
    (new) ─────────► Empty ──┐                                                       │
                       │     ├─ partitions ─► Ongoing ─ EndTxn ─► PrepareCommit ─ markers ─► CompleteCommit
                       │     │                  ▲ │                                  │ │
                       │     └──────────────────┘ ├─ EndTxn, timeout, fence ──► PrepareAbort ─ markers ─► CompleteAbort
                       └─ EndTxn abort (TV2) ─────┘                                                     │
                  ◄── expired: the record is removed ───────────────────────────────────────────────────┘

In state Prepare… the decision is in the log. This coordinator or the next one completes the transaction.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from msgspec import Struct

from barnabas.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from barnabas.server.coordination.operation import CoordinatorRecord
from barnabas.server.coordination.transaction.records import PartitionsSchema, TransactionLogKey, TransactionLogValue


class TxnState(IntEnum):
    """The value is stored in the log; `label` is the name in ListTransactions."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Kafka's name of the state, for example PrepareCommit."""
        return self.name.title().replace("_", "")


BY_LABEL: Final = {state.label: state for state in TxnState}

_S = TxnState
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""The states without an open or ending transaction."""
PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""The decision is in the log, and the markers are being written."""

FOLLOWS: Final = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""State -> the permitted previous states. PrepareEpochFence and Dead are never written: fencing writes PrepareAbort,
and the record of a dead id is removed."""

EPOCH_MAX: Final = 32_767
NO_TIMEOUT_MS: Final = 2_147_483_647
"""The timeout of a two-phase transaction (KIP-939), whose outcome an external coordinator decides: infinite."""


def is_exhausted(epoch: int) -> bool:
    """Whether a producer cannot get a higher epoch. The highest epoch is reserved for fencing."""
    return epoch >= EPOCH_MAX - 1


class TransactionMetadata(Struct, frozen=True):
    """The state of one transactional id (Kafka's TransactionMetadata)."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    """While a transaction is open or ending, `producer_id` and `epoch` are those of its batches and markers."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    next_epoch: int = NO_PRODUCER_EPOCH
    """The producer's id and epoch after the end of this transaction, if the id changes. A producer that kept a prepared
    transaction (KIP-939) already uses them. An id without an epoch means epoch 0."""
    last_epoch: int = NO_PRODUCER_EPOCH
    """The previous epoch, if the producer with that epoch requested the current epoch; that producer may repeat
    the request. Otherwise -1, for example if a new incarnation of the producer requested the current epoch."""
    timeout_ms: int = 0
    state: TxnState = TxnState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    client_version: int = 0
    """The transaction version of the producer's last request. With version 2 EndTxn increments the epoch (KIP-890)."""

    @property
    def kept(self) -> bool:
        """Whether a previous incarnation of the producer prepared the open transaction. The current incarnation uses
        `next_producer_id` and `next_epoch` (KIP-939)."""
        return self.state is TxnState.ONGOING and self.next_producer_id != NO_PRODUCER_ID

    @property
    def identity(self) -> tuple[int, int]:
        """The id and epoch of the current incarnation of the producer."""
        if self.kept:
            return self.next_producer_id, self.next_epoch
        return self.producer_id, self.epoch

    @property
    def identity_after(self) -> tuple[int, int]:
        """The id and epoch of the producer after the ending transaction has ended."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, max(self.next_epoch, 0)
        return self.producer_id, self.epoch

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS


def to_record(transactional_id: str, txn: TransactionMetadata, version: int) -> CoordinatorRecord:
    """The record of a transactional id. `version` is 0 if the cluster's transaction.version is 0, else 1."""
    partitions: list[PartitionsSchema] | None = None
    if txn.state is not TxnState.EMPTY:
        by_topic: dict[str, list[int]] = {}
        for tp in sorted(txn.partitions):
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        previous_producer_id=txn.previous_producer_id,
        next_producer_id=txn.next_producer_id,
        producer_epoch=txn.epoch,
        next_producer_epoch=txn.next_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=int(txn.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=txn.updated_ms,
        transaction_start_timestamp_ms=txn.started_ms,
        client_transaction_version=txn.client_version,
        last_producer_epoch=txn.last_epoch,
    )
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), value, version)


def from_record(value: TransactionLogValue) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_epoch=value.next_producer_epoch,
        last_epoch=value.last_producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TxnState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(entry.topic, partition)
            for entry in value.transaction_partitions or ()
            for partition in entry.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
