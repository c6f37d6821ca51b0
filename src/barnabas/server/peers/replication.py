"""Shell: implements `PeerChannel` of the replication package with requests to other brokers and the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages import alter_partition as alter
from barnabas.protocol.wire.messages import assign_replicas_to_dirs as assign
from barnabas.protocol.wire.messages import list_offsets as offsets
from barnabas.protocol.wire.messages import offset_for_leader_epoch as epochs
from barnabas.protocol.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.peers.peers import PeerSender
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.ports import (
    FetchCall,
    Fetched,
    FetchReply,
    IsrAnswer,
    LocalStart,
    LogBounds,
    PartitionKey,
)
from barnabas.server.replication.reading import SpecialTimestamp
from barnabas.server.replication.rules.follower import FetchFrom
from barnabas.server.replication.rules.isr import CommittedIsr
from barnabas.server.replication.rules.leader import IsrProposal
from barnabas.server.storage.values import EpochEndOffset

ALTER_PARTITION_VERSION: Final = 3
ASSIGN_DIRS_VERSION: Final = 0
_BOUNDS_PURPOSE: Final = "bounds"


class ReplicationChannel:
    """The requests of this broker's replicas. `broker_epoch` returns the epoch of this process's registration, or -1
    before the registration."""

    def __init__(
        self, node_id: int, peers: PeerSender, controller: ControllerChannel, broker_epoch: Callable[[], int]
    ) -> None:
        self._node_id = node_id
        self._peers = peers
        self._controller = controller
        self._broker_epoch = broker_epoch

    # -- Fetch -------------------------------------------------------------------------------------------------------

    async def fetch(self, leader_id: int, fetcher_id: int, call: FetchCall, config: ReplicationConfig) -> FetchReply:
        """Each fetcher uses a connection of its own, because the leader may delay the response to a Fetch."""
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=call.session_id,
            session_epoch=call.session_epoch,
            topics=_topics(call.wanted, config.replica_fetch_max_bytes),
            forgotten_topics_data=_forgotten(call.forgotten),
        )
        response = await self._peers.send(
            leader_id, request, timeout_ms=config.replica_socket_timeout_ms, purpose=f"fetch-{fetcher_id}"
        )
        assert isinstance(response, FetchResponse)
        return FetchReply(
            error_code(response.error_code),
            response.session_id,
            [_fetched(topic.topic_id, p) for topic in response.responses for p in topic.partitions],
        )

    # -- ListOffsets -------------------------------------------------------------------------------------------------

    async def list_bounds(
        self, leader_id: int, wanted: Sequence[tuple[TopicPartition, int]], config: ReplicationConfig
    ) -> Sequence[LogBounds]:
        """Request the start offsets before the end offsets: both only rise, so that no end is below its start."""
        earliest = await self._list(leader_id, wanted, SpecialTimestamp.EARLIEST, config)
        latest = await self._list(leader_id, wanted, SpecialTimestamp.LATEST, config)
        found = []
        for tp, _ in wanted:
            (error, start), (latest_error, end) = earliest[tp], latest[tp]
            found.append(LogBounds(error or latest_error, start, end))
        return found

    async def list_local_start(
        self, leader_id: int, wanted: tuple[TopicPartition, int], config: ReplicationConfig
    ) -> LocalStart:
        """Request the local start after the log start: both only rise, so that the local start is not the lower one."""
        earliest = await self._list(leader_id, [wanted], SpecialTimestamp.EARLIEST, config)
        local = await self._list(leader_id, [wanted], SpecialTimestamp.EARLIEST_LOCAL, config)
        (error, start), (local_error, local_start) = earliest[wanted[0]], local[wanted[0]]
        return LocalStart(error or local_error, start, local_start)

    async def list_pending_upload(
        self, leader_id: int, wanted: tuple[TopicPartition, int], config: ReplicationConfig
    ) -> int:
        try:
            listed = await self._list(leader_id, [wanted], SpecialTimestamp.EARLIEST_PENDING_UPLOAD, config)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return -1
            raise
        code, offset = listed[wanted[0]]
        return offset if code is ErrorCode.NONE else -1

    async def epoch_end(
        self, leader_id: int, wanted: tuple[TopicPartition, int], leader_epoch: int, config: ReplicationConfig
    ) -> EpochEndOffset:
        tp, current_leader_epoch = wanted
        asked = epochs.OffsetForLeaderPartition(
            partition=tp.partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
        )
        request = epochs.OffsetForLeaderEpochRequest(
            replica_id=self._node_id, topics=[epochs.OffsetForLeaderTopic(topic=tp.topic, partitions=[asked])]
        )
        response = await self._peers.send(
            leader_id, request, timeout_ms=config.replica_socket_timeout_ms, purpose=_BOUNDS_PURPOSE
        )
        assert isinstance(response, epochs.OffsetForLeaderEpochResponse)
        for topic in response.topics:
            for end in topic.partitions:
                if end.error_code:
                    raise KafkaError(error_code(end.error_code), f"The leader of {tp} did not list a leader epoch.")
                return EpochEndOffset(end.leader_epoch, end.end_offset)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The leader of {tp} returned no leader epoch.")

    async def _list(
        self, leader_id: int, wanted: Sequence[tuple[TopicPartition, int]], timestamp: int, config: ReplicationConfig
    ) -> dict[TopicPartition, tuple[ErrorCode, int]]:
        by_topic: dict[str, list[offsets.ListOffsetsPartition]] = {}
        for tp, leader_epoch in wanted:
            by_topic.setdefault(tp.topic, []).append(
                offsets.ListOffsetsPartition(
                    partition_index=tp.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
                )
            )
        request = offsets.ListOffsetsRequest(
            replica_id=self._node_id,
            topics=[offsets.ListOffsetsTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
        )
        response = await self._peers.send(
            leader_id, request, timeout_ms=config.replica_socket_timeout_ms, purpose=_BOUNDS_PURPOSE
        )
        assert isinstance(response, offsets.ListOffsetsResponse)
        found = dict.fromkeys((tp for tp, _ in wanted), (ErrorCode.UNKNOWN_SERVER_ERROR, -1))
        for topic in response.topics:
            for p in topic.partitions:
                found[TopicPartition(topic.name, p.partition_index)] = ErrorCode(p.error_code), p.offset
        return found

    # -- AlterPartition ------------------------------------------------------------------------------------------------

    async def alter_partition(self, proposals: Sequence[tuple[PartitionKey, IsrProposal]]) -> Sequence[IsrAnswer]:
        by_topic: dict[UUID, list[alter.PartitionData]] = {}
        for (topic_id, index), proposal in proposals:
            by_topic.setdefault(topic_id, []).append(
                alter.PartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    new_isr_with_epochs=[
                        alter.BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in proposal.isr
                    ],
                )
            )
        request = alter.AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=[alter.TopicData(topic_id=topic_id, partitions=parts) for topic_id, parts in by_topic.items()],
        )
        response = await self._controller.call(request, ALTER_PARTITION_VERSION)
        assert isinstance(response, alter.AlterPartitionResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        found = {
            (topic.topic_id, p.partition_index): _isr_answer(p) for topic in response.topics for p in topic.partitions
        }
        missing = IsrAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
        return [found.get(key, missing) for key, _ in proposals]

    # -- AssignReplicasToDirs ------------------------------------------------------------------------------------------

    async def assign_dirs(self, replicas: Sequence[tuple[PartitionKey, UUID]]) -> None:
        directories: dict[UUID, dict[UUID, list[assign.PartitionData]]] = {}
        for (topic_id, index), home in replicas:
            by_topic = directories.setdefault(home, {})
            by_topic.setdefault(topic_id, []).append(assign.PartitionData(partition_index=index))
        request = assign.AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                assign.DirectoryData(
                    id=home,
                    topics=[
                        assign.TopicData(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()
                    ],
                )
                for home, topics in directories.items()
            ],
        )
        response = await self._controller.call(request, ASSIGN_DIRS_VERSION)
        assert isinstance(response, assign.AssignReplicasToDirsResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))


def _topics(wanted: Sequence[tuple[PartitionKey, FetchFrom]], max_bytes: int) -> list[FetchTopic]:
    """The request's topics. Consecutive partitions of one topic share an entry, which keeps the session's order."""
    topics: list[FetchTopic] = []
    for (topic_id, index), want in wanted:
        if not topics or topics[-1].topic_id != topic_id:
            topics.append(FetchTopic(topic_id=topic_id, partitions=[]))
        topics[-1].partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.fetch_offset,
                last_fetched_epoch=want.last_fetched_epoch,
                log_start_offset=want.log_start_offset,
                partition_max_bytes=max_bytes,
            )
        )
    return topics


def _forgotten(keys: Sequence[PartitionKey]) -> list[ForgottenTopic]:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, index in keys:
        by_topic.setdefault(topic_id, []).append(index)
    return [ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic.items()]


def _fetched(topic_id: UUID, data: PartitionData) -> Fetched:
    diverging = data.diverging_epoch
    records = data.records
    assert records is None or isinstance(records, bytes | bytearray | memoryview)
    return Fetched(
        (topic_id, data.partition_index),
        error_code(data.error_code),
        data.high_watermark,
        data.log_start_offset,
        b"" if records is None else records,
        EpochEndOffset(diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
    )


def _isr_answer(data: alter.PartitionDataResponse) -> IsrAnswer:
    error = ErrorCode(data.error_code)
    if error is not ErrorCode.NONE:
        return IsrAnswer(error)
    return IsrAnswer(error, CommittedIsr(data.leader_epoch, data.partition_epoch, tuple(data.isr)))
