"""In-memory brokers for the client's tests: real frames on both ends, no sockets, and scripted failures.

`FakeCluster.opener` takes the place of `open_connection`. Produce keeps Kafka's rules for idempotent producers, so that
a client that numbers, repeats or reorders batches wrongly is refused as by a real broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.options import ClusterConfig
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches, iter_records, read_header
from barnabas.protocol.transport.connection_config import ConnectionConfig, ConnectionErrors, Destination
from barnabas.protocol.transport.outgoing_connection import OutgoingConnection
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages import (
    add_partitions_to_txn,
    api_versions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from barnabas.protocol.wire.server_conn import ServerConnection

DROP = object()
"""The result of a script that closes the connection instead of answering."""
SILENCE = object()
"""The result of a script that never answers."""

Script = Callable[[int, Any, int], Any]
"""(broker id, request, version) -> response, DROP, SILENCE, or None for the default response."""


@dataclass
class FakeLog:
    """One partition: batches with offsets, and the state of idempotent producers."""

    leader: int = 1
    leader_epoch: int = 0
    start: int = 0
    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    high_watermark: int | None = None
    aborted: list[tuple[int, int]] = field(default_factory=list)
    producers: dict[int, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)
    """Producer id -> (epoch, last five (first sequence, last sequence, base offset))."""

    def append(self, batch: bytes) -> tuple[ErrorCode, int]:
        header = read_header(batch)
        if header.producer_id >= 0:
            epoch, recent = self.producers.get(header.producer_id, (-1, []))
            if header.producer_epoch < epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if header.producer_epoch > epoch:
                recent = []
            for first, last, offset in recent:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return ErrorCode.NONE, offset
            expected = recent[-1][1] + 1 if recent else 0
            if header.base_sequence != expected:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            recent = [*recent, (header.base_sequence, header.last_sequence, self.end)][-5:]
            self.producers[header.producer_id] = (header.producer_epoch, recent)
        return ErrorCode.NONE, self.put(batch)

    def put(self, batch: bytes, *, base_offset: int | None = None) -> int:
        """Append without a check of the sequence; `base_offset` leaves a gap before the batch."""
        header = read_header(batch)
        offset = self.end if base_offset is None else base_offset
        placed = bytearray(batch)
        placed[0:8] = offset.to_bytes(8, "big")
        placed[12:16] = self.leader_epoch.to_bytes(4, "big")
        self.batches.append(bytes(placed))
        self.end = offset + header.last_offset_delta + 1
        return offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        out = bytearray()
        for batch in self.batches:
            if read_header(batch).last_offset >= offset:
                if out and len(out) + len(batch) > max_bytes:
                    break
                out += batch
        return bytes(out)

    def divergence(self, offset: int, epoch: int) -> tuple[int, int] | None:
        """The newest epoch up to `epoch` and its end, if the log has not the record of `epoch` before `offset`."""
        newest, end = -1, self.start
        for header in map(read_header, self.batches):
            if header.partition_leader_epoch <= epoch:
                newest, end = header.partition_leader_epoch, header.next_offset
        return (newest, end) if newest < epoch or end < offset else None

    @property
    def readable(self) -> int:
        return self.end if self.high_watermark is None else self.high_watermark

    def values(self) -> list[bytes | None]:
        found: list[bytes | None] = []
        for batch in self.batches:
            for pos, header in iter_batches(batch):
                found += [record.value for record in iter_records(batch, pos, header)]
        return found


class _Transport(asyncio.Transport):
    """The client's end of a connection in memory; what it writes is handled on the loop's next turn."""

    def __init__(self, cluster: FakeCluster, broker_id: int, protocol: OutgoingConnection) -> None:
        super().__init__()
        self._cluster = cluster
        self._broker_id = broker_id
        self._protocol = protocol
        self._server = ServerConnection(1 << 30)
        self._closed = False
        cluster.transports.append(self)

    def writelines(self, list_of_data: Any) -> None:
        data = b"".join(bytes(part) for part in list_of_data)
        asyncio.get_running_loop().call_soon(self._receive, data)

    def _receive(self, data: bytes) -> None:
        if self._closed or self._broker_id in self._cluster.down:
            self.abort()
            return
        if self._broker_id in self._cluster.paused:
            return  # the kernel acknowledges the bytes, and nobody reads them
        for request in self._server.feed(data):
            message = request.decode()
            answer, version = self._cluster.answer(self._broker_id, request.key, message, request.version)
            if answer is DROP:
                self.abort()
                return
            if answer is SILENCE:
                continue
            parts = None if answer is None else request.answer(answer, version)
            for part in self._server.respond(request, parts):
                self._protocol.data_received(bytes(part))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


class FakeCluster:
    """Brokers, topics and a script."""

    def __init__(self, brokers: int = 1) -> None:
        self.ports = {broker_id: 9000 + broker_id for broker_id in range(1, brokers + 1)}
        self.topics: dict[str, UUID] = {}
        self.logs: dict[TopicPartition, FakeLog] = {}
        self.scripts: dict[ApiKey, Script] = {}
        self.down: set[int] = set()
        self.paused: set[int] = set()
        """Brokers that accept connections and answer nothing."""
        self.coordinator = 1
        """The broker that coordinates all groups and transactional ids."""
        self.requests: list[tuple[int, ApiKey, Any]] = []
        self.transports: list[_Transport] = []
        self.api_versions_max = 4
        self.next_producer_id = 1000
        self.versions: dict[ApiKey, tuple[int, int]] = {}
        self.commits: dict[TopicPartition, tuple[int, int, str]] = {}
        """What the one group has committed: offset, leader epoch, metadata."""
        self.metadata_max_bytes = 4096

    def add_topic(self, name: str, partitions: int = 1, *, topic_id: UUID | None = None) -> None:
        self.topics[name] = topic_id or UUID(int=len(self.topics) + 100)
        for index in range(partitions):
            leader = 1 + index % len(self.ports)
            self.logs[TopicPartition(name, index)] = FakeLog(leader)

    def recreate_topic(self, name: str, *, deletes_commits: bool = True) -> None:
        """Delete the topic, with the group's commits if the broker does that, and create it with another id."""
        count = len([p for p in self.logs if p.topic == name])
        self.logs = {p: log for p, log in self.logs.items() if p.topic != name}
        if deletes_commits:
            self.commits = {p: commit for p, commit in self.commits.items() if p.topic != name}
        self.add_topic(name, count, topic_id=UUID(int=self.topics.pop(name).int + 1_000))

    def log(self, topic: str, partition: int = 0) -> FakeLog:
        return self.logs[TopicPartition(topic, partition)]

    def cluster(self, **settings: object) -> Cluster:
        """A `Cluster` for these brokers, with short time-outs so that tests are fast."""
        fast: dict[str, Any] = {
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": 2,
            "reconnect_backoff_ms": 1,
            "reconnect_backoff_max_ms": 2,
            "request_timeout_ms": 2_000,
        }
        options = ClusterConfig.of(**{"bootstrap_servers": "fake:9001", **fast, **settings})
        return Cluster(options, opener=self.opener)

    async def opener(
        self, to: Destination, config: ConnectionConfig, errors: ConnectionErrors, *, setup_s: float, tls: Any
    ) -> OutgoingConnection:
        broker_id = to.port - 9000
        if broker_id in self.down or broker_id not in self.ports:
            raise errors.unreachable(to, f"{to}: Connection refused.", ConnectionRefusedError())
        connection = OutgoingConnection(to, config, errors)
        connection.connection_made(_Transport(self, broker_id, connection))
        return connection

    def answer(self, broker_id: int, key: ApiKey, request: Any, version: int) -> tuple[Any, int | None]:
        self.requests.append((broker_id, key, request))
        if key is ApiKey.API_VERSIONS and version > self.api_versions_max:
            return self._api_versions(ErrorCode.UNSUPPORTED_VERSION), 0
        script = self.scripts.get(key)
        if script is not None:
            scripted = script(broker_id, request, version)
            if scripted is not None:
                return scripted, None
        match key:
            case ApiKey.API_VERSIONS:
                return self._api_versions(ErrorCode.NONE), None
            case ApiKey.METADATA:
                return self._metadata(request), None
            case ApiKey.INIT_PRODUCER_ID:
                self.next_producer_id += 1
                return init_producer_id.InitProducerIdResponse(
                    producer_id=self.next_producer_id, producer_epoch=0
                ), None
            case ApiKey.PRODUCE:
                response = self.produce(broker_id, request, version)
                return (None if request.acks == 0 else response), None
            case ApiKey.FETCH:
                return self.fetch(broker_id, request, version), None
            case ApiKey.LIST_OFFSETS:
                return self._list_offsets(broker_id, request), None
            case ApiKey.OFFSET_COMMIT:
                return self._commit(request), None
            case ApiKey.OFFSET_FETCH:
                return self._committed(request), None
            case ApiKey.FIND_COORDINATOR:
                return self._find_coordinator(request), None
            case _:
                raise AssertionError(f"the fake cluster does not serve {key.name}")

    def _api_versions(self, code: ErrorCode) -> api_versions.ApiVersionsResponse:
        ranges = {key: (api.min_version, api.max_version) for key, api in APIS.items()} | self.versions
        ranges[ApiKey.API_VERSIONS] = (0, self.api_versions_max)
        keys = [api_versions.ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in ranges.items()]
        return api_versions.ApiVersionsResponse(error_code=code, api_keys=keys)

    def _metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        names = list(self.topics) if request.topics is None else [t.name or "" for t in request.topics]
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataResponseBroker(node_id=b, host="fake", port=port)
                for b, port in self.ports.items()
                if b not in self.down
            ],
            cluster_id="fake",
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> metadata.MetadataResponseTopic:
        if name not in self.topics:
            return metadata.MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partitions = [
            metadata.MetadataResponsePartition(
                partition_index=p.partition,
                leader_id=log.leader,
                leader_epoch=log.leader_epoch,
                replica_nodes=[log.leader],
                isr_nodes=[log.leader],
            )
            for p, log in self.logs.items()
            if p.topic == name
        ]
        return metadata.MetadataResponseTopic(name=name, topic_id=self.topics[name], partitions=partitions)

    def name_of(self, name: str, topic_id: UUID) -> str | None:
        return name or next((n for n, i in self.topics.items() if i == topic_id), None)

    def produce(self, broker_id: int, request: produce.ProduceRequest, version: int) -> produce.ProduceResponse:
        responses = []
        for topic in request.topic_data:
            name = self.name_of(topic.name, topic.topic_id)
            answers = []
            for data in topic.partition_data:
                if name is None:
                    answers.append(
                        produce.PartitionProduceResponse(index=data.index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
                    )
                    continue
                log = self.log(name, data.index)
                code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                if log.leader == broker_id:
                    assert data.records is not None
                    code, offset = log.append(bytes(data.records))
                answers.append(produce.PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset))
            responses.append(
                produce.TopicProduceResponse(name=name or "", topic_id=topic.topic_id, partition_responses=answers)
            )
        return produce.ProduceResponse(responses=responses)

    def fetch(self, broker_id: int, request: fetch.FetchRequest, version: int) -> fetch.FetchResponse:
        responses = []
        for topic in request.topics:
            name = self.name_of(topic.topic, topic.topic_id)
            partitions = []
            for wanted in topic.partitions:
                if name is None:
                    unknown = ErrorCode.UNKNOWN_TOPIC_ID
                    partitions.append(fetch.PartitionData(partition_index=wanted.partition, error_code=unknown))
                    continue
                log = self.log(name, wanted.partition)
                diverging = log.divergence(wanted.fetch_offset, wanted.last_fetched_epoch)
                answer = fetch.PartitionData(
                    partition_index=wanted.partition,
                    high_watermark=log.readable,
                    last_stable_offset=log.readable,
                    log_start_offset=log.start,
                )
                if log.leader != broker_id:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif wanted.current_leader_epoch >= 0 and wanted.current_leader_epoch != log.leader_epoch:
                    older = wanted.current_leader_epoch < log.leader_epoch
                    answer.error_code = ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
                elif wanted.last_fetched_epoch >= 0 and diverging is not None:
                    answer.diverging_epoch = fetch.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
                elif not log.start <= wanted.fetch_offset <= log.end:
                    answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                else:
                    answer.records = log.read(wanted.fetch_offset, wanted.partition_max_bytes)
                    answer.aborted_transactions = [
                        fetch.AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in log.aborted
                    ]
                partitions.append(answer)
            responses.append(
                fetch.FetchableTopicResponse(topic=name or "", topic_id=topic.topic_id, partitions=partitions)
            )
        return fetch.FetchResponse(responses=responses)

    def _list_offsets(self, broker_id: int, request: list_offsets.ListOffsetsRequest) -> Any:
        topics = []
        for topic in request.topics:
            partitions = []
            for wanted in topic.partitions:
                log = self.log(topic.name, wanted.partition_index)
                answer = list_offsets.ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                if log.leader != broker_id:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    answer.offset = log.start if wanted.timestamp == -2 else log.readable
                partitions.append(answer)
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def _commit(self, request: offset_commit.OffsetCommitRequest) -> offset_commit.OffsetCommitResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for p in topic.partitions:
                text = p.committed_metadata or ""
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                if len(text) <= self.metadata_max_bytes:
                    code = ErrorCode.NONE
                    commit = (p.committed_offset, p.committed_leader_epoch, text)
                    self.commits[TopicPartition(topic.name, p.partition_index)] = commit
                answers.append(
                    offset_commit.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                )
            topics.append(offset_commit.OffsetCommitResponseTopic(name=topic.name, partitions=answers))
        return offset_commit.OffsetCommitResponse(topics=topics)

    def _committed(self, request: offset_fetch.OffsetFetchRequest) -> offset_fetch.OffsetFetchResponse:
        found: dict[str, list[offset_fetch.OffsetFetchResponsePartitions]] = {}
        for p, (offset, epoch, text) in self.commits.items():
            found.setdefault(p.topic, []).append(
                offset_fetch.OffsetFetchResponsePartitions(
                    partition_index=p.partition,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    metadata=text,
                    error_code=0,
                )
            )
        topics = [offset_fetch.OffsetFetchResponseTopics(name=name, partitions=ps) for name, ps in found.items()]
        group = offset_fetch.OffsetFetchResponseGroup(group_id=request.groups[0].group_id, topics=topics)
        return offset_fetch.OffsetFetchResponse(groups=[group])

    def _find_coordinator(self, request: find_coordinator.FindCoordinatorRequest) -> Any:
        keys = request.coordinator_keys or [request.key]
        at, port = self.coordinator, self.ports[self.coordinator]
        return find_coordinator.FindCoordinatorResponse(
            coordinators=[find_coordinator.Coordinator(key=k, node_id=at, host="fake", port=port) for k in keys]
        )


def partitions_added(broker: int, request: Any, version: int) -> Any:
    """A script for AddPartitionsToTxn that adds all of them."""
    return add_partitions_to_txn.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    add_partitions_to_txn.AddPartitionsToTxnPartitionResult(partition_index=p, partition_error_code=0)
                    for p in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
