"""Table: further attacks by one API: requests of another shape than in `largest.py`, and small ones about large state.

A request with several lists has several largest shapes: one topic with very many partitions, very many transactions of
one partition each. And a request without a list may have work that grows with what earlier requests have built.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.protocol.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.protocol.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest
from barnabas.protocol.wire.messages.fetch import FetchRequest, ForgottenTopic
from barnabas.protocol.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.protocol.wire.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.wire.schema import Request
from bench.attacks.largest import (
    TOPIC,
    TOPIC_RESOURCE,
    WIDE,
    Largest,
    World,
    answer,
    run_largest,
    with_group,
    with_shares,
    with_transactions,
)
from bench.attacks.registry import Steps, attack

_K = ApiKey
_PATTERN = "(.{0,30}){0,30}b"


def _marker(producer_id: int, topic: str, indexes: list[int]) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)]
    return WritableTxnMarker(producer_id=producer_id, producer_epoch=0, topics=topics)


def _transaction(name: str) -> AddPartitionsToTxnTransaction:
    topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    return AddPartitionsToTxnTransaction(transactional_id=name, producer_id=0, producer_epoch=0, topics=topics)


def _share_offsets(count: int) -> DescribeShareGroupOffsetsRequest:
    topic = DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])
    return DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=f"s{index}", topics=[topic]) for index in range(count)]
    )


def _acknowledgements(topic_id: UUID, count: int) -> ShareAcknowledgeRequest:
    batches = [
        AcknowledgementBatch(first_offset=2 * index, last_offset=2 * index, acknowledge_types=[1])
        for index in range(count)
    ]
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
    return ShareAcknowledgeRequest(
        group_id="s", member_id="m" * 22, share_session_epoch=1,
        topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
    )  # fmt: skip


def _create_assigned(count: int) -> CreateTopicsRequest:
    assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=[1]) for index in range(count)]
    topic = CreatableTopic(name="assigned", num_partitions=-1, replication_factor=-1, assignments=assignments)
    return CreateTopicsRequest(timeout_ms=60_000, topics=[topic])


def _configs(count: int) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=f"x{index}", config_operation=0, value="1") for index in range(count)]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


SHAPES: dict[str, tuple[ApiKey, str, Largest]] = {
    "transactions": (_K.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn of very many transactions", Largest(
        5, lambda t, n: AddPartitionsToTxnRequest(transactions=[_transaction(f"x{index}") for index in range(n)]),
        with_transactions)),
    "markers": (_K.WRITE_TXN_MARKERS, "WriteTxnMarkers of very many producers", Largest(
        1, lambda t, n: WriteTxnMarkersRequest(markers=[_marker(index, TOPIC, [0]) for index in range(n)]))),
    "offset-markers": (_K.WRITE_TXN_MARKERS, "WriteTxnMarkers of very many markers for offsets", Largest(
        1, lambda t, n: WriteTxnMarkersRequest(markers=[
            _marker(1, CONSUMER_OFFSETS_TOPIC, [index % 50 for index in range(n)])]))),
    "offsets-of-groups": (_K.OFFSET_FETCH, "OffsetFetch of very many groups", Largest(
        8, lambda t, n: OffsetFetchRequest(groups=[
            OffsetFetchRequestGroup(group_id=f"x{index}", topics=[
                OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]) for index in range(n)]))),
    "stable-offsets-of-groups": (_K.OFFSET_FETCH, "OffsetFetch of very many groups, stable offsets only", Largest(
        8, lambda t, n: OffsetFetchRequest(require_stable=True, groups=[
            OffsetFetchRequestGroup(group_id=f"x{index}", topics=None) for index in range(n)]))),
    "share-offsets-of-groups": (
        _K.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets of very many groups",
        Largest(0, lambda t, n: _share_offsets(n), with_shares)),
    "acknowledgements": (_K.SHARE_ACKNOWLEDGE, "ShareAcknowledge of very many batches of one partition", Largest(
        1, _acknowledgements, with_shares)),
    "owned-partitions": (_K.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat with very many owned partitions", Largest(
        1, lambda t, n: ConsumerGroupHeartbeatRequest(
            group_id="c", member_id="m" * 22, member_epoch=1, rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[TopicPartitions(topic_id=UUID(int=index), partitions=[0]) for index in range(n)]))),
    "create-assigned": (_K.CREATE_TOPICS, "CreateTopics of one topic with very many assignments", Largest(
        7, lambda t, n: _create_assigned(n))),
    "configs-of-one": (_K.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs of very many configs", Largest(
        1, lambda t, n: _configs(n))),
    "replicas-of-one": (_K.ALTER_PARTITION_REASSIGNMENTS, "reassignment of one partition to many brokers", Largest(
        0, lambda t, n: AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[
            ReassignablePartition(partition_index=0, replicas=list(range(1, n + 1)))])]))),
    "forgotten": (_K.FETCH, "Fetch with very many forgotten partitions", Largest(
        11, lambda t, n: FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[], forgotten_topics_data=[
            ForgottenTopic(topic=TOPIC, partitions=list(range(n)))]))),
}  # fmt: skip
"""The other shapes, by the name of the attack. `tests/unit/bench` checks that brokers decode them."""

for _name, (_api, _what, _row) in SHAPES.items():
    attack(_name, _what, api=_api)(run_largest(_row))


def _produce(count: int, codec: CompressionType = CompressionType.NONE) -> ProduceRequest:
    batch = build_batch([SimpleRecord(None, b"x" * 100, 1)], codec=codec)
    data = [PartitionProduceData(index=index, records=batch) for index in range(count)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])


@attack("produce-wide", f"Produce of one record to each of {WIDE} partitions", api=_K.PRODUCE)
def produce_wide(address: str) -> Steps:
    client, request = with_group(address, WIDE), _produce(WIDE)
    yield
    return answer(client, request, 9)


@attack("produce-wide-zstd", f"Produce of one compressed record to each of {WIDE} partitions", api=_K.PRODUCE)
def produce_wide_zstd(address: str) -> Steps:
    client, request = with_group(address, WIDE), _produce(WIDE, CompressionType.ZSTD)
    yield
    return answer(client, request, 9)


@attack("transactions-regex", "ListTransactions with a nested repetition, 400 long ids", api=_K.LIST_TRANSACTIONS)
def transactions_regex(address: str) -> Steps:
    client = with_group(address)
    with_transactions(World(client), lambda index: f"{'a' * 240}{index:04}", 400)
    request = ListTransactionsRequest(transactional_id_pattern=_PATTERN)
    yield
    return answer(client, request, 2)


def _init(name: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)


def _in_wide_transaction(request: Callable[[InitProducerIdResponse], Request], version: int) -> Callable[[str], Steps]:
    """Attack with a request about a transaction that has all partitions of the topic."""

    def run(address: str) -> Steps:
        client = with_group(address, WIDE)
        with_transactions(World(client), count=1)
        started: InitProducerIdResponse = client.call(_init("x0"), 4)
        assert started.error_code == ErrorCode.NONE, started
        added = client.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x0",
                v3_and_below_producer_id=started.producer_id,
                v3_and_below_producer_epoch=started.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(range(WIDE)))],
            ),
            3,
        )
        results = added.results_by_topic_v3_and_below[0].results_by_partition
        assert {result.partition_error_code for result in results} == {ErrorCode.NONE}
        yield
        return answer(client, request(started), version)

    return run


def _end(started: InitProducerIdResponse) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id="x0", producer_id=started.producer_id, producer_epoch=started.producer_epoch, committed=True
    )


def _add_offsets(started: InitProducerIdResponse) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id="x0", producer_id=started.producer_id, producer_epoch=started.producer_epoch, group_id="g"
    )


WIDE_TRANSACTION: dict[str, tuple[ApiKey, Callable[[InitProducerIdResponse], Request], int]] = {
    "end-wide": (_K.END_TXN, _end, 3),
    "add-offsets-wide": (_K.ADD_OFFSETS_TO_TXN, _add_offsets, 3),
    "abort-wide": (_K.INIT_PRODUCER_ID, lambda _: _init("x0"), 4),
}
for _name, (_api, _request, _version) in WIDE_TRANSACTION.items():
    attack(_name, f"{APIS[_api].name} of a transaction with {WIDE} partitions", api=_api)(
        _in_wide_transaction(_request, _version)
    )
