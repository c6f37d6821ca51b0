"""Shell: transactions (KIP-664): list, describe, find hanging ones, abort them, end those of other producers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.cluster.fanout import by_topic, send_to_leaders
from barnabas.client.cluster.versions import Versioned
from barnabas.client.producer.transaction_requests import END_TXN_VERSION_MAX, FEATURE, IMPLICIT_FROM
from barnabas.client.values import HandedOverTransaction
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from barnabas.protocol.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in the list of its coordinator."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its transaction. `started_ms` is -1 without a transaction."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """The state of a producer at a partition's leader. `open_since` is the first offset of its open transaction, or
    -1."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    open_since: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no coordinator has."""

    partition: TopicPartition
    producer: ActiveProducer


async def list_transactions(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
    deadline: float,
) -> list[TransactionListing]:
    """Ask all brokers for their transactional ids, because each broker has only those that it coordinates. The result
    is sorted by transactional id."""
    wanted_states, wanted_ids = list(states), list(producer_ids)
    await cluster.refresh(deadline=deadline)

    def build(version: int) -> ListTransactionsRequest:
        if (longer_than_ms >= 0 and version < 1) or (pattern is not None and version < 2):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "The broker's version does not support this filter of transactions."
            )
        return ListTransactionsRequest(
            state_filters=wanted_states,
            producer_id_filters=wanted_ids,
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

    async def ask(broker_id: int) -> list[TransactionListing]:
        async def attempt() -> list[TransactionListing]:
            request = Versioned(ApiKey.LIST_TRANSACTIONS, build)
            response: ListTransactionsResponse = await cluster.send(broker_id, request, deadline=deadline)
            if response.error_code:
                raise item_error(response.error_code, None, f"Listing transactions of broker {broker_id}")
            if response.unknown_state_filters:
                unknown = ", ".join(response.unknown_state_filters)
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown transaction state: {unknown}.")
            return [
                TransactionListing(t.transactional_id, broker_id, t.producer_id, t.transaction_state)
                for t in response.transaction_states
            ]

        found: list[TransactionListing] = await cluster.retrying("Listing transactions", attempt, deadline=deadline)
        return found

    parts = await asyncio.gather(*(ask(broker_id) for broker_id in sorted(cluster.metadata.brokers)))
    return sorted((listing for part in parts for listing in part), key=lambda listing: listing.transactional_id)


async def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str], *, deadline: float
) -> dict[str, TransactionDescription | KafkaError]:
    """Ask the coordinator of each transactional id for the state of its transaction."""
    wanted = list(dict.fromkeys(transactional_ids))

    async def describe(transactional_id: str) -> TransactionDescription | KafkaError:
        async def attempt() -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            try:
                response: DescribeTransactionsResponse = await cluster.send_coordinator(
                    CoordinatorType.TRANSACTION, transactional_id, request, deadline=deadline
                )
                (state,) = response.transaction_states
                if state.error_code:
                    raise item_error(state.error_code, None, f"Describing transactional id {transactional_id!r}")
            except KafkaError as error:
                cluster.coordinators.note_error(CoordinatorType.TRANSACTION, transactional_id, error.code)
                raise
            coordinator = await cluster.coordinators.find(
                CoordinatorType.TRANSACTION, transactional_id, deadline=deadline
            )
            return TransactionDescription(
                transactional_id,
                coordinator,
                state.producer_id,
                state.producer_epoch,
                state.transaction_state,
                state.transaction_timeout_ms,
                state.transaction_start_time_ms,
                tuple(TopicPartition(topic.topic, p) for topic in state.topics for p in topic.partitions),
            )

        try:
            described: TransactionDescription = await cluster.retrying(
                f"Describing transactional id {transactional_id!r}", attempt, deadline=deadline
            )
            return described
        except KafkaError as error:
            return error

    return dict(zip(wanted, await asyncio.gather(*(describe(name) for name in wanted)), strict=True))


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, deadline: float
) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
    """The producers in the state of the partitions' leaders."""

    def build(part: dict[TopicPartition, None]) -> DescribeProducersRequest:
        return DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic(part).items()]
        )

    def parse(response: DescribeProducersResponse) -> Iterable[tuple[TopicPartition, int, list[ActiveProducer]]]:
        for topic in response.topics:
            for p in topic.partitions:
                producers = [
                    ActiveProducer(
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.coordinator_epoch,
                        producer.last_sequence,
                        producer.last_timestamp,
                        producer.current_txn_start_offset,
                    )
                    for producer in p.active_producers
                ]
                yield TopicPartition(topic.name, p.partition_index), p.error_code, producers

    wanted: Mapping[TopicPartition, None] = dict.fromkeys(partitions)
    return await send_to_leaders(cluster, wanted, build, parse, what="Describing the producers", deadline=deadline)


async def find_hanging(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, older_than_ms: int, now_ms: int, deadline: float
) -> list[HangingTransaction]:
    """Transactions that are open in a partition, but that no coordinator lists for that partition, so that they would
    stay open for ever. Raises KafkaError.

    Only producers that have not written to the partition for `older_than_ms` before `now_ms` count; choose a time
    longer than every transaction time-out.
    """
    described = await describe_producers(cluster, partitions, deadline=deadline)
    suspects: list[HangingTransaction] = []
    for partition, producers in described.items():
        if isinstance(producers, KafkaError):
            raise producers
        suspects += [
            HangingTransaction(partition, producer)
            for producer in producers
            if producer.open_since >= 0 and now_ms - producer.last_timestamp_ms > older_than_ms
        ]
    if not suspects:
        return []
    ids = sorted({suspect.producer.producer_id for suspect in suspects})
    listed = await list_transactions(cluster, producer_ids=ids, deadline=deadline)
    known: dict[int, TransactionDescription] = {}
    for name, transaction in (
        await describe_transactions(cluster, [listing.transactional_id for listing in listed], deadline=deadline)
    ).items():
        if isinstance(transaction, KafkaError):
            raise KafkaError(transaction.code, f"{name}: {transaction}")
        known[transaction.producer_id] = transaction
    hanging = []
    for suspect in suspects:
        holder = known.get(suspect.producer.producer_id)
        if holder is None or suspect.partition not in holder.partitions:
            hanging.append(suspect)
    return sorted(hanging, key=lambda found: (found.partition, found.producer.open_since))


async def abort_transaction(
    cluster: Cluster, partition: TopicPartition, producer: ActiveProducer, *, deadline: float
) -> None:
    """Write an abort marker into one partition, without the coordinator. Raises KafkaError."""
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=max(producer.coordinator_epoch, 0),
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
    )

    def parse(response: WriteTxnMarkersResponse) -> Iterable[tuple[TopicPartition, int, None]]:
        for result in response.markers:
            for topic in result.topics:
                for p in topic.partitions:
                    yield TopicPartition(topic.name, p.partition_index), p.error_code, None

    answers = await send_to_leaders(
        cluster,
        {partition: None},
        lambda _: WriteTxnMarkersRequest(markers=[marker]),
        parse,
        what="Aborting the transaction",
        deadline=deadline,
    )
    answer = answers[partition]
    if isinstance(answer, KafkaError):
        raise answer


async def end_transaction(
    cluster: Cluster, transaction: HandedOverTransaction, *, commit: bool, deadline: float
) -> None:
    """Commit or abort the open transaction of another producer, with EndTxn. The call may be repeated: the coordinator
    accepts the same outcome again until the transactional id is used again. Raises KafkaError.

    EndTxn is not bound to the connection of the producer (KIP-98), only to its transactional id, producer id and epoch.
    Version 5 begins the next epoch, as the coordinator expects it with transaction.version 2 (KIP-890).
    """
    name = transaction.transactional_id
    what = f"{'Committing' if commit else 'Aborting'} the transaction of {name!r}"
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        committed=commit,
    )

    async def attempt() -> None:
        try:
            broker_id = await cluster.coordinators.find(CoordinatorType.TRANSACTION, name, deadline=deadline)
            connection = await cluster.connection(broker_id, deadline)
            epoch_per_transaction = connection.versions.features.get(FEATURE, 0) >= IMPLICIT_FROM
            version = None if epoch_per_transaction else END_TXN_VERSION_MAX
            response: EndTxnResponse = await cluster.send(broker_id, request, deadline=deadline, max_version=version)
            if response.error_code:
                raise item_error(response.error_code, None, what)
        except KafkaError as error:
            cluster.coordinators.note_error(CoordinatorType.TRANSACTION, name, error.code)
            raise

    await cluster.retrying(what, attempt, deadline=deadline)


async def fence_producer(cluster: Cluster, transactional_id: str, *, deadline: float) -> tuple[int, int]:
    """Fence the producer of a transactional id, and abort its transaction. Returns the new, unused producer id and
    epoch."""

    async def attempt() -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1)
        try:
            response: InitProducerIdResponse = await cluster.send_coordinator(
                CoordinatorType.TRANSACTION, transactional_id, request, deadline=deadline
            )
            if response.error_code:
                raise item_error(response.error_code, None, f"Fencing the producer of {transactional_id!r}")
        except KafkaError as error:
            cluster.coordinators.note_error(CoordinatorType.TRANSACTION, transactional_id, error.code)
            raise
        return response.producer_id, response.producer_epoch

    fenced: tuple[int, int] = await cluster.retrying(
        f"Fencing the producer of {transactional_id!r}", attempt, deadline=deadline
    )
    return fenced
