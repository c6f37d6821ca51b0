"""Shell: the channels of share groups: to share coordinators, and to partition leaders for end offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_REPLICA_ID, SHARE_STATE_TOPIC, TopicPartition
from barnabas.protocol.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from barnabas.protocol.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.protocol.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from barnabas.protocol.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from barnabas.protocol.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from barnabas.protocol.wire.schema import Request
from barnabas.server.peers.batched_requests import BatchedRequests
from barnabas.server.peers.peer_router import LocalBroker, PeerRouter
from barnabas.server.replication.partition import Isolation, SpecialTimestamp

if TYPE_CHECKING:
    from barnabas.server.coordination.share.service import ShareCoordinator

PARTITIONS_MAX: Final = 1_000
"""The limit for the share partitions in one request."""

_Kind = tuple[int, int]
"""The kind of a request: the broker that gets it, and the API key."""


class ShareCoordinators:
    """Implements `ShareChannel` of the coordination package (Kafka's PersisterStateManager).

    Each request passed to `send` has one share partition. Requests of the same API and group are joined into one
    request to the broker.
    """

    def __init__(self, router: PeerRouter) -> None:
        self._router = router
        self._batched: BatchedRequests[_Kind, Any, Any] = BatchedRequests(_with_one_group, self._send_batch)
        self._creating: asyncio.Lock | None = None

    async def run(self) -> None:
        await self._batched.run()

    async def send(self, coordinator_key: str, request: Request) -> Any:
        local = self._router.local
        if SHARE_STATE_TOPIC not in local.metadata.image.topics:
            await self._create_topic(local)
        broker_id = self._router.coordinator(SHARE_STATE_TOPIC, coordinator_key)
        if self._router.is_local(broker_id):
            return await _call_local(local.share_coordinator, request)
        return await self._batched.ask((broker_id, request.__schema__.key), request)

    async def _create_topic(self, local: LocalBroker) -> None:
        self._creating = self._creating or asyncio.Lock()
        async with self._creating:
            if SHARE_STATE_TOPIC in local.metadata.image.topics:
                return
            refused = await local.topic_creation.create_missing(None, [SHARE_STATE_TOPIC])
            if refused:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{SHARE_STATE_TOPIC} could not be created ({refused[SHARE_STATE_TOPIC].name}). Check that the "
                    "cluster has at least share.coordinator.state.topic.replication.factor active brokers.",
                )

    async def _send_batch(self, kind: _Kind, requests: list[Any]) -> Sequence[Any]:
        joined = join(requests)
        response: Any = await self._router.send(kind[0], joined, f"share {joined.__schema__.name}")
        return split(response, requests, kind[0])


def _with_one_group(waiting: Sequence[Any]) -> list[int]:
    """Choose requests of the group of the oldest request, at most one for each share partition."""
    chosen: dict[tuple[Any, int], int] = {}
    for place, request in enumerate(waiting):
        if request.group_id == waiting[0].group_id:
            chosen.setdefault(_share_partition(request), place)
            if len(chosen) == PARTITIONS_MAX:
                break
    return list(chosen.values())


def _share_partition(request: Any) -> tuple[Any, int]:
    (topic,) = request.topics
    (data,) = topic.partitions
    return topic.topic_id, data.partition


def join(requests: Sequence[Any]) -> Any:
    """Build one request from `requests`, which have the same API and group."""
    topics: dict[Any, Any] = {}
    for request in requests:
        (topic,) = request.topics
        joined = topics.setdefault(topic.topic_id, type(topic)(topic_id=topic.topic_id))
        joined.partitions.extend(topic.partitions)
    return type(requests[0])(group_id=requests[0].group_id, topics=list(topics.values()))


def split(response: Any, requests: Sequence[Any], broker_id: int) -> list[Any]:
    """Split `response` into one response for each request; KafkaError for a share partition without a result."""
    found = {(result.topic_id, p.partition): (result, p) for result in response.results for p in result.partitions}
    answers: list[Any] = []
    for request in requests:
        entry = found.get(_share_partition(request))
        if entry is None:
            answers.append(
                KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"The response of broker {broker_id} has no result for a share partition.",
                )
            )
            continue
        result, partition = entry
        alone = type(result)(topic_id=result.topic_id, partitions=[partition])
        answers.append(type(response)(results=[alone]))
    return answers


async def _call_local(coordinator: ShareCoordinator, request: Request) -> Any:
    match request:
        case InitializeShareGroupStateRequest():
            return await coordinator.initialize_share_group_state(request)
        case ReadShareGroupStateRequest():
            return await coordinator.read_share_group_state(request)
        case WriteShareGroupStateRequest():
            return await coordinator.write_share_group_state(request)
        case DeleteShareGroupStateRequest():
            return await coordinator.delete_share_group_state(request)
        case ReadShareGroupStateSummaryRequest():
            return await coordinator.read_share_group_state_summary(request)
    raise AssertionError(f"{type(request).__name__} is not a request to a share coordinator")


class LogEnds:
    """Implements `PartitionEnds` (group coordinator) and `LogPruner` (share coordinator)."""

    def __init__(self, router: PeerRouter) -> None:
        self._router = router

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition; a partition whose leader does not answer is left out."""
        ends: dict[TopicPartition, int] = {}
        elsewhere: list[tuple[int, list[TopicPartition]]] = []
        for broker_id, led in self._router.by_leader(partitions).items():
            if not self._router.is_local(broker_id):
                elsewhere.append((broker_id, led))
                continue
            for tp in led:
                partition = self._router.local.partitions.get(tp.topic, tp.partition)
                if partition is not None and partition.is_leader:
                    ends[tp] = partition.high_watermark
        for answer in await asyncio.gather(*(self._ask(broker_id, led) for broker_id, led in elsewhere)):
            ends.update(answer)
        return ends

    async def _ask(self, broker_id: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        topics: dict[str, ListOffsetsTopic] = {}
        for tp in partitions:
            latest = ListOffsetsPartition(partition_index=tp.partition, timestamp=SpecialTimestamp.LATEST)
            topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic)).partitions.append(latest)
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID, isolation_level=Isolation.READ_UNCOMMITTED, topics=list(topics.values())
        )
        try:
            response = await self._router.send(broker_id, request, "offsets")
        except KafkaError:
            return {}
        assert isinstance(response, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, p.partition_index): p.offset
            for topic in response.topics
            for p in topic.partitions
            if not p.error_code and p.offset >= 0
        }

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """Delete the records of `tp` before `offset`. This node must lead `tp`."""
        local = self._router.local
        local.partitions.require(tp.topic, tp.partition).delete_records(offset, local.clock.now_ms())
