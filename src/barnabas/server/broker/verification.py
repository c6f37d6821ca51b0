"""Shell: verifies that a transactional batch belongs to an open transaction before it is appended (KIP-890).

Before a producer's first batch of a transaction is appended to a partition, the partition's leader sends a request to
the transaction coordinator. For a client of transaction protocol 2 the request adds the partition to the transaction.
For an older client, which has sent AddPartitionsToTxn itself, the request verifies that the partition is in the
transaction. A batch that arrives after its transaction has ended is rejected. Appended, it would be an open transaction
that no coordinator knows, and would hold back the last stable offset for ever.

The transaction may end between the coordinator's response and the append. Each request therefore leaves a guard, which
the marker of the transaction removes; a batch without its guard is not appended. A guard is valid for one leader epoch:
another leader may have appended the marker since, and this broker may have replicated it. A guard also holds the lowest
sequence of the batches for which requests were sent. While the first batch is rejected and sent again, a later batch
must not become the first one (Kafka's VerificationStateEntry).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum, auto
from typing import Final, Protocol

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.server.replication.partition import Partition

REQUESTS_MAX: Final = 3
"""The number of requests for one batch, if markers remove its guard again and again."""
GUARDS_MAX: Final = 100_000
"""The largest number of guards. The guard of a batch that was rejected and not sent again remains; when there are too
many guards, the oldest one is dropped."""


class TransactionChannel(Protocol):
    """Sends requests to the coordinator of a transactional id."""

    async def send(self, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        """AddPartitionsToTxn 5 for one transaction. Raises KafkaError if the coordinator does not answer."""
        ...


class TransactionSupportedOperation(Enum):
    """What a client's request version supports (Kafka's enum of this name)."""

    ADD_PARTITION = auto()
    """Transaction protocol 2: a write adds its partition to the transaction (Produce 12, TxnOffsetCommit 5)."""
    GENERIC_ERROR_SUPPORTED = auto()
    """The client knows TRANSACTION_ABORTABLE (Produce 11, TxnOffsetCommit 4)."""
    DEFAULT_ERROR = auto()
    """A client that is older than the other values."""


class _Guard(Struct):
    producer_epoch: int
    leader_epoch: int
    lowest_sequence: int


class TransactionalWrite(Struct, frozen=True):
    """A transactional batch that is to be appended to `partition`."""

    partition: Partition
    producer_id: int
    producer_epoch: int
    sequence: int = -1


class _Queue(Struct):
    lock: asyncio.Lock
    users: int = 0


class TransactionVerifier:
    """Verifies transactional writes. A broker has one."""

    def __init__(self, channel: TransactionChannel) -> None:
        self._channel = channel
        self._guards: OrderedDict[tuple[TopicPartition, int], _Guard] = OrderedDict()
        self._queues: dict[str, _Queue] = {}

    @asynccontextmanager
    async def in_order(self, transactional_id: str) -> AsyncIterator[None]:
        """Let the writes of one producer through one after the other, in the order of their arrival.

        Does not suspend while no other write of the producer is in progress.
        """
        queue = self._queues.setdefault(transactional_id, _Queue(asyncio.Lock()))
        queue.users += 1
        try:
            async with queue.lock:
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[transactional_id]

    async def verify(
        self,
        transactional_id: str,
        writes: Sequence[TransactionalWrite],
        supported: TransactionSupportedOperation,
        *,
        transaction_partition_verification_enable: bool = True,
        add_partitions_to_txn_retry_backoff_ms: int = 20,
        add_partitions_to_txn_retry_backoff_max_ms: int = 100,
    ) -> Mapping[TopicPartition, KafkaError]:
        """The errors of the writes that must not be appended. The caller must append the other writes before its next
        await.

        Does not suspend if every partition is in the transaction already. Without
        `transaction_partition_verification_enable` the writes of older clients are not verified.
        """
        enabled = transaction_partition_verification_enable
        rejected: dict[TopicPartition, KafkaError] = {}
        unverified: list[TransactionalWrite] = []
        for write in writes:
            try:
                if self._needs_verification(write, supported, enabled=enabled):
                    unverified.append(write)
            except KafkaError as error:
                rejected[write.partition.name] = error
        if unverified:
            await self._verify_at_coordinator(
                transactional_id,
                unverified,
                supported,
                add_partitions_to_txn_retry_backoff_ms,
                add_partitions_to_txn_retry_backoff_max_ms,
                rejected,
            )
            for write in writes:  # the other writes have waited for the coordinator too
                if write not in unverified and write.partition.name not in rejected:
                    self._check_again(write, supported, enabled, rejected)
        return rejected

    def _check_again(
        self,
        write: TransactionalWrite,
        supported: TransactionSupportedOperation,
        enabled: bool,
        rejected: dict[TopicPartition, KafkaError],
    ) -> None:
        """Reject a write that needed no verification before `verify` waited for the coordinator, but needs it now.

        Meanwhile this broker has become the leader, or a transaction marker was appended. The client sends the write
        again.
        """
        try:
            if self._needs_verification(write, supported, enabled=enabled):
                rejected[write.partition.name] = KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    "The partition changed while other partitions were verified. Send the batch again.",
                )
        except KafkaError as error:
            rejected[write.partition.name] = error

    def on_marker(self, tp: TopicPartition, producer_id: int) -> None:
        """The producer's transaction has ended in this partition: writes that are being verified lose their guard."""
        self._guards.pop((tp, producer_id), None)

    def _needs_verification(
        self, write: TransactionalWrite, supported: TransactionSupportedOperation, *, enabled: bool
    ) -> bool:
        """Whether the coordinator has to confirm the write. Raises KafkaError if the write must be rejected."""
        if not write.partition.is_leader:
            return False  # the append will be rejected with the right error
        known = write.partition.producer(write.producer_id)
        if known is not None and write.producer_epoch < known.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"The epoch {write.producer_epoch} of producer {write.producer_id} is older than the last one in the "
                f"partition, which is {known.epoch}.",
            )
        if known is not None and known.epoch == write.producer_epoch and known.txn_first_offset >= 0:
            return False
        adds_partition = supported is TransactionSupportedOperation.ADD_PARTITION
        if adds_partition and known is None and write.sequence > 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"The first batch of a transaction must begin with sequence 0, not {write.sequence}.",
            )
        return enabled or adds_partition

    async def _verify_at_coordinator(
        self,
        transactional_id: str,
        writes: Sequence[TransactionalWrite],
        supported: TransactionSupportedOperation,
        backoff_ms: int,
        backoff_max_ms: int,
        rejected: dict[TopicPartition, KafkaError],
    ) -> None:
        verified: list[tuple[TransactionalWrite, _Guard]] = []
        for _ in range(REQUESTS_MAX):
            guarded = [(write, self._guard(write)) for write in writes]
            codes = await self._send(transactional_id, writes, supported, backoff_ms, backoff_max_ms)
            for write, guard in guarded:
                code = _for_client(codes.get(write.partition.name, ErrorCode.UNKNOWN_SERVER_ERROR), supported)
                if code is not ErrorCode.NONE:
                    rejected[write.partition.name] = KafkaError(
                        code, "The transaction coordinator did not confirm that the partition is in the transaction."
                    )
                else:
                    verified.append((write, guard))
            # All guards are checked after the last await: a marker may overtake a write of an earlier iteration.
            overtaken = [write for write, guard in verified if not self._is_guarded(write, guard, rejected)]
            verified = [
                (write, guard)
                for write, guard in verified
                if write.partition.name not in rejected and write not in overtaken
            ]
            writes = [write for write in overtaken if write.partition.name not in rejected]
            if not writes:
                break
            # A marker was appended here, or perhaps at another leader, while the request was in flight. In most cases
            # this is the marker of the previous transaction, which the coordinator completes after its EndTxn response.
            # If the marker is that of this transaction, the next request gets an error.
        for write in writes:
            rejected[write.partition.name] = KafkaError(
                ErrorCode.INVALID_TXN_STATE, "The transaction ended before the batch was appended."
            )
        for write, _ in verified:
            self._guards.pop((write.partition.name, write.producer_id), None)

    def _is_guarded(self, write: TransactionalWrite, guard: _Guard, rejected: dict[TopicPartition, KafkaError]) -> bool:
        """Whether the guard is still valid. If not, this method adds an error of the write to `rejected`, or leaves
        `rejected` unchanged, and then the caller verifies the write again."""
        tp = write.partition.name
        if not write.partition.is_leader:
            rejected[tp] = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return False
        if self._guards.get((tp, write.producer_id)) is not guard or write.partition.leader_epoch != guard.leader_epoch:
            return False
        if write.sequence > guard.lowest_sequence >= 0:
            rejected[tp] = KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Sequence {guard.lowest_sequence} of this transaction must be appended before {write.sequence}.",
            )
            return False
        return True

    def _guard(self, write: TransactionalWrite) -> _Guard:
        """The guard of the write's producer and partition. A guard with another producer epoch or another leader epoch
        is replaced."""
        key = (write.partition.name, write.producer_id)
        epochs = (write.producer_epoch, write.partition.leader_epoch)
        guard = self._guards.get(key)
        if guard is None or (guard.producer_epoch, guard.leader_epoch) != epochs:
            guard = self._guards[key] = _Guard(*epochs, write.sequence)
            if len(self._guards) > GUARDS_MAX:
                self._guards.popitem(last=False)
        elif 0 <= write.sequence < guard.lowest_sequence:
            guard.lowest_sequence = write.sequence
        return guard

    async def _send(
        self,
        transactional_id: str,
        writes: Sequence[TransactionalWrite],
        supported: TransactionSupportedOperation,
        backoff_ms: int,
        backoff_max_ms: int,
    ) -> dict[TopicPartition, ErrorCode]:
        """The error codes of the coordinator's response.

        CONCURRENT_TRANSACTIONS means that the coordinator is still completing the previous transaction. A request that
        adds partitions is then repeated, for `backoff_max_ms` at most, because that is faster than a retry by the
        client.
        """
        adds_partition = supported is TransactionSupportedOperation.ADD_PARTITION
        transaction = _request(transactional_id, writes, verify_only=not adds_partition)
        waited = 0
        while True:
            try:
                result = await self._channel.send(transaction)
            except KafkaError as error:
                return dict.fromkeys((write.partition.name for write in writes), error.code)
            codes = {
                TopicPartition(topic.name, p.partition_index): error_code(p.partition_error_code)
                for topic in result.topic_results
                for p in topic.results_by_partition
            }
            retriable = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not retriable or not adds_partition or waited >= backoff_max_ms:
                return codes
            await asyncio.sleep(backoff_ms / 1000)
            waited += backoff_ms


def _request(
    transactional_id: str, writes: Sequence[TransactionalWrite], *, verify_only: bool
) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for write in writes:
        tp = write.partition.name
        topics.setdefault(tp.topic, AddPartitionsToTxnTopic(name=tp.topic)).partitions.append(tp.partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=writes[0].producer_id,
        producer_epoch=writes[0].producer_epoch,
        verify_only=verify_only,
        topics=list(topics.values()),
    )


def _for_client(code: ErrorCode, supported: TransactionSupportedOperation) -> ErrorCode:
    """The error code for the producer, which may not know the coordinator's error code."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # after this error a producer may abort its transaction and continue
    if code is ErrorCode.TRANSACTION_ABORTABLE and supported is TransactionSupportedOperation.DEFAULT_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return code
