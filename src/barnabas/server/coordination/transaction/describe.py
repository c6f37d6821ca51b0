"""Machine: ListTransactions and DescribeTransactions (KIP-664), which read the committed state."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.describe_transactions import TopicData
from barnabas.protocol.wire.messages.describe_transactions import TransactionState as DescribedTransaction
from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.wire.messages.list_transactions import TransactionState as ListedTransaction
from barnabas.server.coordination.transaction.shard import TransactionShard
from barnabas.server.coordination.transaction.state import BY_LABEL, TransactionMetadata, TxnState


class Filter(Struct, frozen=True):
    """The filters of ListTransactions besides the pattern. An empty set admits all transactions."""

    states: frozenset[TxnState]
    producer_ids: frozenset[int]
    longer_than_ms: int

    def wants(self, txn: TransactionMetadata, now_ms: int) -> bool:
        if self.states and txn.state not in self.states:
            return False
        if self.producer_ids and txn.producer_id not in self.producer_ids:
            return False
        return not (self.longer_than_ms >= 0 and now_ms - txn.started_ms <= self.longer_than_ms)


def filter_of(request: ListTransactionsRequest) -> tuple[Filter | None, list[str]]:
    """The filter of a request, and the unknown state names in the request. The filter is None if all requested states
    are unknown, so that no transaction matches."""
    known = frozenset(BY_LABEL[name] for name in request.state_filters if name in BY_LABEL)
    unknown = [name for name in request.state_filters if name not in BY_LABEL]
    if unknown and not known:
        return None, unknown
    return Filter(known, frozenset(request.producer_id_filters), request.duration_filter), unknown


def list_transactions(shard: TransactionShard, wanted: Filter, now_ms: int) -> Iterator[ListedTransaction]:
    for transactional_id, txn in sorted(shard.transactions.committed_items()):
        if wanted.wants(txn, now_ms):
            yield ListedTransaction(
                transactional_id=transactional_id, producer_id=txn.producer_id, transaction_state=txn.state.label
            )


def describe(shard: TransactionShard, transactional_id: str) -> DescribedTransaction:
    """DescribeTransactions for one transactional id. Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND."""
    txn = shard.transactions.committed_get(transactional_id)
    if txn is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, TopicData] = {}
    for tp in sorted(txn.partitions):
        topics.setdefault(tp.topic, TopicData(topic=tp.topic)).partitions.append(tp.partition)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=txn.state.label,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.started_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        topics=list(topics.values()),
    )


class ProducerTransaction(Struct, frozen=True):
    """The transactional id of a producer id, and the state of its transaction."""

    transactional_id: str
    state: str
    started_ms: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]


def producer_transactions(
    shard: TransactionShard, producer_ids: Collection[int]
) -> Iterator[tuple[int, ProducerTransaction]]:
    """For each transactional id with one of these producer ids: the producer id and the state of the transaction."""
    for transactional_id, txn in shard.transactions.committed_items():
        if txn.producer_id in producer_ids:
            holder = ProducerTransaction(
                transactional_id, txn.state.label, txn.started_ms, txn.timeout_ms, txn.partitions
            )
            yield txn.producer_id, holder
