"""Shell: the requests of a cluster link to its source, over connections of its own.

The source may be any Kafka from version 2.1 on: each request is sent in the newest version that both sides know. Topics
are named by id where the version and the source have ids (Fetch from version 13 on), else by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.rng import Rng
from barnabas.protocol.transport.connection_config import Destination
from barnabas.protocol.wire.apis import API_KEYS, ApiKey
from barnabas.protocol.wire.messages import list_offsets as offsets
from barnabas.protocol.wire.messages import offset_for_leader_epoch as epochs
from barnabas.protocol.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.wire.schema import Request
from barnabas.server.links.fetching.ports import (
    SourceCall,
    SourceFetch,
    SourceFetched,
    SourceKey,
    SourcePartition,
    SourceReply,
    SourceTopic,
)
from barnabas.server.links.fetching.settings import LinkSettings
from barnabas.server.replication.ports import LogBounds
from barnabas.server.replication.reading import SpecialTimestamp
from barnabas.server.storage.values import EpochEndOffset

_NO_ID: Final = UUID(int=0)
_FIRST_FETCH: Final = 10
"""The version of Fetch in Kafka 2.1, the first that returns batches compressed with zstd."""
_FETCH_WITH_DIVERGENCE: Final = 12
_LAST_FETCH_BY_NAME: Final = 12
_CONSUMER: Final = -1


class SourceConnection(Protocol):
    """An open connection to a broker of the source (`OutgoingConnection`)."""

    def choose_version(self, key: ApiKey, *, max_version: int | None = None) -> int: ...

    async def wait_writable(self, deadline: float) -> None: ...

    def send(self, message: Any, version: int, deadline: float | None = None) -> Awaitable[Any]: ...


class SourceConnections(Protocol):
    """Connections to the source (`NodeClient`)."""

    async def run(self) -> None: ...

    async def connection(self, to: Destination, deadline: float) -> SourceConnection: ...


class LinkSource:
    """Implements `SourceCluster`."""

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], client: SourceConnections, request_timeout_ms: int, rng: Rng
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._client = client
        self._timeout_ms = request_timeout_ms
        self._rng = rng
        self._brokers: dict[int, tuple[str, int]] = {}
        self._names: dict[UUID, str] = {}
        self.cluster_id: str | None = None
        """The id of the source cluster; None until it has answered a request for metadata."""

    async def run(self) -> None:
        await self._client.run()

    # -- any request -------------------------------------------------------------------------------------------------

    async def request(self, message: Any, node_id: int | None = None) -> Any:
        """The response to `message`, from the broker `node_id` or from any. Raises KafkaError."""
        if node_id is not None:
            return await self._send(self._address(node_id), message)
        addresses = list(dict.fromkeys([*self._brokers.values(), *self._bootstrap]))
        self._rng.shuffle(addresses)
        failure = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        for address in addresses:
            try:
                return await self._send(address, message)
            except KafkaError as error:
                failure = error
        raise failure

    def _address(self, node_id: int) -> tuple[str, int]:
        found = self._brokers.get(node_id)
        if found is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"The source has no broker {node_id}.")
        return found

    async def _send(
        self,
        address: tuple[str, int],
        message: Request,
        purpose: str = "",
        *,
        version_max: int | None = None,
        timeout_ms: int = 0,
    ) -> Any:
        deadline = asyncio.get_running_loop().time() + (timeout_ms or self._timeout_ms) / 1000
        connection = await self._client.connection(Destination(*address, purpose), deadline)
        version = connection.choose_version(API_KEYS[message.__schema__.key], max_version=version_max)
        await connection.wait_writable(deadline)
        return await connection.send(message, version, deadline)

    # -- metadata ----------------------------------------------------------------------------------------------------

    async def topics(self, names: Sequence[str]) -> Mapping[str, SourceTopic]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
        )
        response: MetadataResponse = await self.request(request)
        _check(response.error_code)
        self.cluster_id = response.cluster_id
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        found: dict[str, SourceTopic] = {}
        for topic in response.topics:
            if topic.name is None:
                continue
            topic_id = None if topic.topic_id == _NO_ID else topic.topic_id
            if topic_id is not None:
                self._names[topic_id] = topic.name
            found[topic.name] = SourceTopic(
                error_code(topic.error_code),
                topic_id,
                {p.partition_index: SourcePartition(p.leader_id, p.leader_epoch) for p in topic.partitions},
            )
        return found

    # -- Fetch -------------------------------------------------------------------------------------------------------

    async def fetch(self, node_id: int, fetcher_id: int, call: SourceCall, settings: LinkSettings) -> SourceReply:
        address, purpose = self._address(node_id), f"fetch-{fetcher_id}"
        timeout_ms = self._timeout_ms + settings.mirror_fetch_wait_max_ms
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection = await self._client.connection(Destination(*address, purpose), deadline)
        version = connection.choose_version(ApiKey.FETCH, max_version=None if call.with_ids else _LAST_FETCH_BY_NAME)
        if version < _FIRST_FETCH:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The source is older than Kafka 2.1.")
        request = FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=settings.mirror_fetch_wait_max_ms,
            min_bytes=1,
            max_bytes=settings.mirror_fetch_response_max_bytes,
            session_id=call.session_id,
            session_epoch=call.session_epoch,
            topics=_topics(call.wanted, settings.mirror_fetch_max_bytes, version),
            forgotten_topics_data=_forgotten(call.forgotten),
        )
        await connection.wait_writable(deadline)
        response: FetchResponse = await connection.send(request, version, deadline)
        partitions = [
            _fetched(topic.topic if version <= _LAST_FETCH_BY_NAME else self._names.get(topic.topic_id, ""), p)
            for topic in response.responses
            for p in topic.partitions
        ]
        return SourceReply(error_code(response.error_code), response.session_id, response.throttle_time_ms, partitions)

    async def reports_divergence(self, node_id: int) -> bool:
        deadline = asyncio.get_running_loop().time() + self._timeout_ms / 1000
        connection = await self._client.connection(Destination(*self._address(node_id)), deadline)
        return connection.choose_version(ApiKey.FETCH) >= _FETCH_WITH_DIVERGENCE

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def bounds(self, node_id: int, key: SourceKey, leader_epoch: int) -> LogBounds:
        error, start = await self._offset(node_id, key, leader_epoch, SpecialTimestamp.EARLIEST)
        if error is not ErrorCode.NONE:
            return LogBounds(error)
        error, end = await self._offset(node_id, key, leader_epoch, SpecialTimestamp.LATEST)
        return LogBounds(error, start, end)

    async def _offset(
        self, node_id: int, key: SourceKey, leader_epoch: int, timestamp: SpecialTimestamp
    ) -> tuple[ErrorCode, int]:
        wanted = offsets.ListOffsetsPartition(
            partition_index=key[1], current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        request = offsets.ListOffsetsRequest(
            replica_id=_CONSUMER, topics=[offsets.ListOffsetsTopic(name=key[0], partitions=[wanted])]
        )
        response: offsets.ListOffsetsResponse = await self.request(request, node_id)
        found = _only_partition(response.topics)
        return error_code(found.error_code), found.offset

    async def epoch_end(self, node_id: int, key: SourceKey, leader_epoch: int, epoch: int) -> EpochEndOffset:
        wanted = epochs.OffsetForLeaderPartition(
            partition=key[1], current_leader_epoch=leader_epoch, leader_epoch=epoch
        )
        request = epochs.OffsetForLeaderEpochRequest(
            replica_id=_CONSUMER, topics=[epochs.OffsetForLeaderTopic(topic=key[0], partitions=[wanted])]
        )
        response: epochs.OffsetForLeaderEpochResponse = await self.request(request, node_id)
        found = _only_partition(response.topics)
        _check(found.error_code)
        return EpochEndOffset(found.leader_epoch, found.end_offset)


def _topics(wanted: Sequence[tuple[SourceKey, SourceFetch]], max_bytes: int, version: int) -> list[FetchTopic]:
    """Consecutive partitions of one topic share an entry, which keeps the session's order."""
    topics: list[FetchTopic] = []
    for (name, index), want in wanted:
        if not topics or topics[-1].topic != name:
            topics.append(FetchTopic(topic=name, topic_id=want.topic_id or _NO_ID, partitions=[]))
        topics[-1].partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.fetch_offset,
                last_fetched_epoch=want.last_fetched_epoch if version >= _FETCH_WITH_DIVERGENCE else -1,
                partition_max_bytes=max_bytes,
            )
        )
    return topics


def _forgotten(dropped: Sequence[tuple[SourceKey, SourceFetch]]) -> list[ForgottenTopic]:
    return [
        ForgottenTopic(topic=name, topic_id=want.topic_id or _NO_ID, partitions=[index])
        for (name, index), want in dropped
    ]


def _fetched(topic: str, data: PartitionData) -> SourceFetched:
    diverging, records = data.diverging_epoch, data.records
    assert records is None or isinstance(records, bytes | bytearray | memoryview)
    return SourceFetched(
        (topic, data.partition_index),
        error_code(data.error_code),
        data.high_watermark,
        data.log_start_offset,
        b"" if records is None else records,
        EpochEndOffset(diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
    )


def _only_partition(topics: Sequence[Any]) -> Any:
    """The answer for the one partition of a request. Raises KafkaError if the source has answered for none."""
    if not topics or not topics[0].partitions:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The source's answer does not have the requested partition.")
    return topics[0].partitions[0]


def _check(code: int) -> None:
    if code:
        raise KafkaError(error_code(code))
