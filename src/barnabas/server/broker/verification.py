"""Shell: no transactional write reaches a partition that is not in its producer's open transaction (KIP-890).

Before a producer's first batch of a transaction is appended to a partition, the partition's leader asks the
coordinator: to take the partition into the transaction (clients of protocol 2 leave that to us), or whether it is in it
(older clients said so themselves). What comes late, after the transaction has ended, is refused instead of hanging: an
open transaction that no coordinator knows would hold back every read_committed reader for ever.

Between the question and the append the transaction may end. So each question leaves a guard behind that the
partition's marker takes away; without it nothing is appended. A guard is worth nothing after the leadership in which
it was set up: another leader may have written the marker meanwhile, and this one have copied it. The guard also
remembers the lowest sequence that was asked for: while the first batch is refused and sent again, a later one must not
become the first (Kafka's VerificationStateEntry).
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

ASKS_MAX: Final = 3
"""How often the coordinator is asked about a write that markers overtake."""
GUARDS_MAX: Final = 100_000
"""Guards of writes that were refused and never came again; the oldest go first."""


class TransactionChannel(Protocol):
    """The way to the coordinator of a transactional id."""

    async def ask(self, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        """AddPartitionsToTxn 5 for one transaction. Raises KafkaError when the coordinator cannot be asked."""
        ...


class Protocol890(Enum):
    """What the client's request version says about it."""

    IMPLICIT = auto()
    """Protocol 2: a write takes its partition into the transaction (Produce 12, TxnOffsetCommit 5)."""
    ABORTABLE = auto()
    """Knows TRANSACTION_ABORTABLE (Produce 11, TxnOffsetCommit 4)."""
    LEGACY = auto()


class _Guard(Struct):
    epoch: int
    leader_epoch: int
    lowest_sequence: int


class Write(Struct, frozen=True):
    """A transactional batch on its way to a partition."""

    partition: Partition
    producer_id: int
    epoch: int
    sequence: int = -1


class _Line(Struct):
    lock: asyncio.Lock
    users: int = 0


class TransactionGate:
    """Admits transactional writes. One per broker."""

    def __init__(self, channel: TransactionChannel) -> None:
        self._channel = channel
        self._guards: OrderedDict[tuple[TopicPartition, int], _Guard] = OrderedDict()
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def in_line(self, transactional_id: str) -> AsyncIterator[None]:
        """Writes of one producer pass one after the other, in the order in which they came; without suspending
        when nobody is before."""
        line = self._lines.setdefault(transactional_id, _Line(asyncio.Lock()))
        line.users += 1
        try:
            async with line.lock:
                yield
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[transactional_id]

    async def admit(
        self,
        transactional_id: str,
        writes: Sequence[Write],
        client: Protocol890,
        *,
        verify: bool = True,
        backoff_ms: int = 20,
        retry_ms: int = 100,
    ) -> Mapping[TopicPartition, KafkaError]:
        """Who must not be appended, and why; append the others at once, before the next await.

        Does not suspend when every partition is in the transaction already. `verify` False: believe older clients.
        """
        refused: dict[TopicPartition, KafkaError] = {}
        unknown: list[Write] = []
        for write in writes:
            try:
                if self._must_ask(write, client, verify=verify):
                    unknown.append(write)
            except KafkaError as error:
                refused[write.partition.name] = error
        if unknown:
            await self._ask(transactional_id, unknown, client, backoff_ms, retry_ms, refused)
            for write in writes:  # those that had nothing to ask have waited for the others
                if write not in unknown and write.partition.name not in refused:
                    self._look_again(write, client, verify, refused)
        return refused

    def _look_again(
        self, write: Write, client: Protocol890, verify: bool, refused: dict[TopicPartition, KafkaError]
    ) -> None:
        """Meanwhile this broker may have become the leader, or the transaction may have ended: the client asks anew."""
        try:
            if self._must_ask(write, client, verify=verify):
                refused[write.partition.name] = KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, "The partition changed while others were asked about; try again."
                )
        except KafkaError as error:
            refused[write.partition.name] = error

    def on_marker(self, tp: TopicPartition, producer_id: int) -> None:
        """The producer's transaction has ended in this partition: who still asks about it comes too late."""
        self._guards.pop((tp, producer_id), None)

    def _must_ask(self, write: Write, client: Protocol890, *, verify: bool) -> bool:
        if not write.partition.is_leader:
            return False  # the append will say so better
        known = write.partition.producer(write.producer_id)
        if known is not None and known.epoch == write.epoch and known.in_transaction:
            return False
        if client is Protocol890.IMPLICIT and known is None and write.sequence > 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"The first batch of a transaction begins with sequence 0, not {write.sequence}.",
            )
        return verify or client is Protocol890.IMPLICIT

    async def _ask(
        self,
        transactional_id: str,
        writes: Sequence[Write],
        client: Protocol890,
        backoff_ms: int,
        retry_ms: int,
        refused: dict[TopicPartition, KafkaError],
    ) -> None:
        admitted: list[tuple[Write, _Guard]] = []
        for _ in range(ASKS_MAX):
            asked = [(write, self._guard(write)) for write in writes]
            codes = await self._codes(transactional_id, writes, client, backoff_ms, retry_ms)
            for write, guard in asked:
                code = _for_client(codes.get(write.partition.name, ErrorCode.UNKNOWN_SERVER_ERROR), client)
                if code is not ErrorCode.NONE:
                    refused[write.partition.name] = KafkaError(
                        code, "The partition could not be found in the transaction."
                    )
                else:
                    admitted.append((write, guard))
            # looked at together, after the last await: what was admitted in an earlier round may be overtaken in this
            overtaken = [write for write, guard in admitted if not self._stands(write, guard, refused)]
            admitted = [
                (write, guard)
                for write, guard in admitted
                if write.partition.name not in refused and write not in overtaken
            ]
            writes = [write for write in overtaken if write.partition.name not in refused]
            if not writes:
                break
            # a marker came while we asked, or may have come to another leader: mostly that of the transaction before,
            # whose end the producer has been told of already; if it was this one's, the coordinator will say so
        for write in writes:
            refused[write.partition.name] = KafkaError(
                ErrorCode.INVALID_TXN_STATE, "The transaction ended while the batch was on its way."
            )
        for write, _ in admitted:
            self._guards.pop((write.partition.name, write.producer_id), None)

    def _stands(self, write: Write, guard: _Guard, refused: dict[TopicPartition, KafkaError]) -> bool:
        """The guard is still there. False: ask again, unless the write is among the refused now."""
        tp = write.partition.name
        if not write.partition.is_leader:
            refused[tp] = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return False
        if self._guards.get((tp, write.producer_id)) is not guard or write.partition.leader_epoch != guard.leader_epoch:
            return False
        if write.sequence > guard.lowest_sequence >= 0:
            refused[tp] = KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Sequence {guard.lowest_sequence} of this transaction comes before {write.sequence}.",
            )
            return False
        return True

    def _guard(self, write: Write) -> _Guard:
        key = (write.partition.name, write.producer_id)
        leader_epoch = write.partition.leader_epoch
        guard = self._guards.get(key)
        if guard is None or (guard.epoch, guard.leader_epoch) != (write.epoch, leader_epoch):
            guard = self._guards[key] = _Guard(write.epoch, leader_epoch, write.sequence)
            if len(self._guards) > GUARDS_MAX:
                self._guards.popitem(last=False)
        elif 0 <= write.sequence < guard.lowest_sequence:
            guard.lowest_sequence = write.sequence
        return guard

    async def _codes(
        self, transactional_id: str, writes: Sequence[Write], client: Protocol890, backoff_ms: int, retry_ms: int
    ) -> dict[TopicPartition, ErrorCode]:
        """The coordinator's answer. While the transaction before is being completed, a new one begins with
        CONCURRENT_TRANSACTIONS: asking again here is quicker than through the client."""
        transaction = _question(transactional_id, writes, verify_only=client is not Protocol890.IMPLICIT)
        waited = 0
        while True:
            try:
                result = await self._channel.ask(transaction)
            except KafkaError as error:
                return dict.fromkeys((write.partition.name for write in writes), error.code)
            codes = {
                TopicPartition(topic.name, p.partition_index): error_code(p.partition_error_code)
                for topic in result.topic_results
                for p in topic.results_by_partition
            }
            busy = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
            if not busy or client is not Protocol890.IMPLICIT or waited >= retry_ms:
                return codes
            await asyncio.sleep(backoff_ms / 1000)
            waited += backoff_ms


def _question(transactional_id: str, writes: Sequence[Write], *, verify_only: bool) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for write in writes:
        tp = write.partition.name
        topics.setdefault(tp.topic, AddPartitionsToTxnTopic(name=tp.topic)).partitions.append(tp.partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=writes[0].producer_id,
        producer_epoch=writes[0].epoch,
        verify_only=verify_only,
        topics=list(topics.values()),
    )


def _for_client(code: ErrorCode, client: Protocol890) -> ErrorCode:
    """What the coordinator said, in words that a producing client of this age understands."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # a producer may abort and go on after this one
    if code is ErrorCode.TRANSACTION_ABORTABLE and client is Protocol890.LEGACY:
        return ErrorCode.INVALID_TXN_STATE
    return code
