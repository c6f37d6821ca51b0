"""Codec: the requests that add parts to a producer's transaction or end it, and the error codes in the responses.

The constants name the last versions of the requests before transaction.version 2 (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from barnabas.client.cluster.fanout import by_topic
from barnabas.client.producer.accumulator import ProducerIdentity
from barnabas.client.values import GroupMetadata, OffsetAndMetadata
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

FEATURE: Final = "transaction.version"
IMPLICIT_FROM: Final = 2
"""The first transaction version in which partitions need not be added beforehand."""
TWO_PHASE_VERSION: Final = 6
ADD_PARTITIONS_VERSION_MAX: Final = 3
"""The last version of AddPartitionsToTxn for clients; later versions are only for brokers."""
PRODUCE_VERSION_MAX: Final = 11
END_TXN_VERSION_MAX: Final = 4
"""The last version of EndTxn for transactions of a version before IMPLICIT_FROM."""
OFFSET_COMMIT_VERSION_MAX: Final = 4


class HasErrorCode(Protocol):
    """A response with one error code."""

    error_code: int


def code_of(response: HasErrorCode) -> list[int]:
    return [response.error_code]


def build_add_partitions(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()
        ],
    )


def codes_of_added_partitions(response: AddPartitionsToTxnResponse) -> list[int]:
    return [p.partition_error_code for t in response.results_by_topic_v3_and_below for p in t.results_by_partition]


def build_add_offsets(transactional_id: str, identity: ProducerIdentity, group_id: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )


def build_offset_commit(
    transactional_id: str,
    identity: ProducerIdentity,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(topic, index)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, index)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, index)].metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )


def codes_of_offsets(response: TxnOffsetCommitResponse) -> list[int]:
    return [p.error_code for t in response.topics for p in t.partitions]


def build_end(transactional_id: str, identity: ProducerIdentity, *, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )
