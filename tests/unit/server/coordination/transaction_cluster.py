"""Three brokers with the production transaction coordinators, verifiers and channels, and logs in memory.

The log of `__transaction_state-0` is shared. A leader's records are committed at once, or when `hold` ends. When the
leadership moves, the old leader continues without committing until it is notified (`told`). Data partitions have real
producer state. Their leaders learn of leadership changes at once; the metadata images of other brokers may be `behind`.
`fate` determines which messages are lost.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.protocol.records.batch import iter_records, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import EndTxn, parse_control
from barnabas.protocol.records.validate import Origin
from barnabas.protocol.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.wire.schema import Request, Response
from barnabas.server.broker.handlers.transactions import add_partitions_to_txn, write_txn_markers
from barnabas.server.broker.verification import TransactionVerifier
from barnabas.server.coordination.ports import LogRecord, Marker, ProducerIdAndEpoch
from barnabas.server.coordination.transaction.records import FORMAT
from barnabas.server.coordination.transaction.service import TransactionCoordinator
from barnabas.server.metadata.image.small import ConfigsImage
from barnabas.server.peers.coordination import CoordinationChannels
from barnabas.server.storage.producers.state import ProducerEntry, ProducerState
from tests.configs import transaction_config
from tests.golden.transaction.conversation import settle, show_record
from tests.unit.server.coordination.kit import LoopClock, MemoryWriter, seeded

HOME = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
NODES = (1, 2, 3)
REQUEST_TIMEOUT_MS = 1_000

Fate = Callable[[int, int, Request], str]
"""(from, to, request) -> "deliver", "lose" (the request is lost), "mute" (the response is lost)."""


@dataclass
class Entry:
    """One batch of a data partition: data if `committed` is None, otherwise a marker."""

    producer_id: int
    epoch: int
    committed: bool | None = None
    coordinator_epoch: int = -1


@dataclass
class DataPartition:
    """A data partition. Appends are committed at once."""

    name: TopicPartition
    leader: int
    leader_epoch: int = 0
    log: list[Entry] = field(default_factory=list)
    state: ProducerState = field(default_factory=lambda: ProducerState("data", 1 << 40))


class Replica:
    """A data partition on one broker: the part of `replication.Partition` that verification and WriteTxnMarkers use."""

    is_mirror = False

    def __init__(self, node_id: int, data: DataPartition) -> None:
        self._node_id = node_id
        self._data = data
        self.name = data.name

    @property
    def is_leader(self) -> bool:
        return self._data.leader == self._node_id

    @property
    def leader_epoch(self) -> int:
        return self._data.leader_epoch

    def producer(self, producer_id: int) -> ProducerEntry | None:
        self._require()
        return self._data.state.get(producer_id)

    def append(self, batch: bytes, acks: int, now_ms: int, origin: Origin) -> Any:
        self._require()
        data = self._data
        header = read_header(batch)._replace(base_offset=len(data.log))
        marker: EndTxn | None = None
        if header.is_control:
            (record,) = iter_records(batch, 0, read_header(batch))
            marker = cast("EndTxn", parse_control(record))
        markers = {} if marker is None else {header.base_offset: marker}
        prepared = data.state.prepare([header], markers, origin)
        data.state.commit(prepared, len(data.log) + 1)
        entry = Entry(header.producer_id, header.producer_epoch)
        if marker is not None:
            entry.committed, entry.coordinator_epoch = marker.commit, marker.coordinator_epoch
        data.log.append(entry)
        return SimpleNamespace(next_offset=len(data.log))

    def try_committed(self, end: int) -> ErrorCode:
        return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _require(self) -> None:
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass
class StateLog:
    """The log of `__transaction_state-0` on its in-sync replicas."""

    leader: int = 1
    epoch: int = 0
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """(end offset, batch)"""
    committed: int = 0
    hold: bool = False

    @property
    def end(self) -> int:
        return self.batches[-1][0] if self.batches else 0


class StateWriter:
    """`PartitionWriter` of one broker."""

    def __init__(self, node_id: int, log: StateLog) -> None:
        self._node_id = node_id
        self._log = log
        self.epoch: int | None = None
        """The leader epoch of this broker, as far as the broker knows; None if it is not the leader."""
        self._alone = (0, 0)
        """(high watermark, log end offset) of a deposed leader that has not been notified."""
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def leads(self) -> bool:
        return self.epoch == self._log.epoch and self._log.leader == self._node_id

    def begin(self, epoch: int) -> None:
        self.end()
        self.epoch = epoch

    def end(self) -> None:
        self.epoch = None
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._waiters.clear()

    def cut_off(self) -> None:
        self._alone = (self._log.committed, self._log.end)

    def on_committed(self) -> None:
        for offset, future in list(self._waiters):
            if offset <= self._log.committed:
                self._waiters.remove((offset, future))
                if not future.done():
                    future.set_result(None)

    # -- PartitionWriter

    def append(
        self, tp: TopicPartition, records: Sequence[LogRecord], now_ms: int, producer: ProducerIdAndEpoch | None = None
    ) -> int:
        self._require()
        if not self.leads:
            self._alone = (self._alone[0], self._alone[1] + len(records))
            return self._alone[1]
        log = self._log
        simple = [SimpleRecord(record.key, record.value, now_ms) for record in records]
        log.batches.append((log.end + len(records), build_batch(simple, base_offset=log.end)))
        if not log.hold:
            log.committed = log.end
        return log.end

    def append_marker(self, tp: TopicPartition, marker: Marker, now_ms: int) -> int:
        raise AssertionError("nobody writes to this topic inside a transaction")

    def high_watermark(self, tp: TopicPartition) -> int:
        self._require()
        return self._log.committed if self.leads else self._alone[0]

    async def wait_committed(self, tp: TopicPartition, offset: int) -> None:
        if self.high_watermark(tp) < offset:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((offset, future))
            await future

    async def read_log(self, tp: TopicPartition) -> AsyncIterator[Buffer]:
        self._require()
        for _, batch in list(self._log.batches):
            yield batch

    def _require(self) -> None:
        if self.epoch is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Node:
    """One broker."""

    def __init__(self, node_id: int, cluster: Cluster) -> None:
        self.node_id = node_id
        self.writer = StateWriter(node_id, cluster.state)
        self.leaders = cluster.leaders()
        """The leaders in the metadata image of this broker."""
        self.clock = LoopClock()
        config = SimpleNamespace(request_timeout_ms=REQUEST_TIMEOUT_MS, add_partitions_to_txn_retry_backoff_ms=20)
        self.broker_config: Any = SimpleNamespace(current=config)
        self.metadata: Any = SimpleNamespace(image=SimpleNamespace(topics=self, configs=ConfigsImage()))
        self.partitions: Any = SimpleNamespace(get=lambda topic, p: self.replicas.get(TopicPartition(topic, p)))
        self.channels = CoordinationChannels(Wire(node_id, cluster), cast("Any", self))
        self.coordinator = TransactionCoordinator(
            transaction_config(request_timeout_ms=REQUEST_TIMEOUT_MS),
            self.writer,
            self.channels.markers,
            cluster.producer_id,
            self.clock,
            seeded(),
        )
        self.transaction_verifier = TransactionVerifier(self.channels.transactions)
        self.replicas = {tp: Replica(node_id, data) for tp, data in cluster.data.items()}
        self.transaction_port: Any = SimpleNamespace(
            transactions=self.coordinator,
            transaction_verifier=self.transaction_verifier,
            partitions=self.partitions,
            metadata=self.metadata,
            config=self.broker_config,
        )
        self.coordinator.on_partition_count(1)
        self.coordinator.on_feature_level(2)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.channels.run())
            tasks.create_task(self.coordinator.markers.run())
            tasks.create_task(self.coordinator.run())

    # -- the topics of the metadata image

    def get(self, topic: str) -> Any:
        assert topic == TRANSACTION_STATE_TOPIC
        return SimpleNamespace(partitions=[self.partition(topic, 0)])

    def partition(self, topic: str, index: int) -> Any:
        leader = self.leaders.get(TopicPartition(topic, index))
        return None if leader is None else SimpleNamespace(leader=leader)


class Wire:
    """`PeerSender` of one broker: calls the handler of the other broker, or loses the message."""

    def __init__(self, node_id: int, cluster: Cluster) -> None:
        self._node_id = node_id
        self._cluster = cluster

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int, purpose: str = "") -> Response:
        fate = self._cluster.fate(self._node_id, broker_id, request)
        if fate == "lose":
            await asyncio.sleep(0)
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        node = self._cluster.nodes[broker_id]
        loop = asyncio.get_running_loop()
        ctx = cast(
            "Any",
            SimpleNamespace(
                api_version=5,
                now_ms=node.clock.now_ms(),
                connection_id=0,
                deadline=lambda ms: loop.time() + ms / 1000,
            ),
        )
        await asyncio.sleep(0.001)
        handle: Any = (
            add_partitions_to_txn.handle if isinstance(request, AddPartitionsToTxnRequest) else write_txn_markers.handle
        )
        response = await handle(node.transaction_port, ctx, request)
        if fate == "mute":
            await asyncio.sleep(timeout_ms / 1000)
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        assert isinstance(response, Response)
        return response


class Cluster:
    """The three brokers and their partitions, with controls for tests."""

    def __init__(self, partitions: int = 3) -> None:
        self.state = StateLog()
        names = [TopicPartition("t", p) for p in range(partitions)]
        self.data = {name: DataPartition(name, NODES[name.partition % len(NODES)]) for name in names}
        self.fate: Fate = lambda source, target, request: "deliver"
        self.nodes: dict[int, Node] = {}
        self._next_id = 1000
        self._seen = 0

    async def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        self.nodes = {node_id: Node(node_id, self) for node_id in NODES}
        owners = [asyncio.ensure_future(node.run()) for node in self.nodes.values()]
        await settle()
        self.elect(1)
        await settle()
        try:
            await scenario()
            for owner in owners:
                assert not owner.done(), owner
        finally:
            for owner in owners:
                owner.cancel()
            await asyncio.gather(*owners, return_exceptions=True)

    async def producer_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def leaders(self) -> dict[TopicPartition, int]:
        return {HOME: self.state.leader, **{tp: data.leader for tp, data in self.data.items()}}

    # -- the coordinator's partition

    def elect(self, node_id: int, *, tail: bool = True, told: bool = True) -> None:
        """Elect a new leader. `tail`: it has the uncommitted records. `told`: the old leader is notified at once."""
        log = self.state
        old = self.nodes[log.leader]
        old.writer.cut_off()
        if not tail:
            log.batches = [entry for entry in log.batches if entry[0] <= log.committed]
        log.leader, log.epoch = node_id, log.epoch + 1
        for node in self.nodes.values():
            if node is not old or told or node_id == old.node_id:
                self.tell(node.node_id)
        if not log.hold:
            self.commit()

    def tell(self, node_id: int) -> None:
        """Give the broker the newest metadata image."""
        node, log = self.nodes[node_id], self.state
        node.leaders = self.leaders()
        if log.leader == node_id and node.writer.epoch != log.epoch:
            node.writer.begin(log.epoch)
            node.coordinator.on_elected(0, log.epoch)
        elif log.leader != node_id and node.writer.epoch is not None:
            node.writer.end()
            node.coordinator.on_resigned(0, log.epoch)
        node.coordinator.markers.on_leaders_changed()

    def hold(self) -> None:
        self.state.hold = True

    def commit(self) -> None:
        """Commit all records of `__transaction_state-0`."""
        self.state.hold = False
        self.state.committed = self.state.end
        self.nodes[self.state.leader].writer.on_committed()

    def state_events(self) -> list[str]:
        """The records appended to `__transaction_state` since the last call."""
        shown = MemoryWriter()
        shown[HOME].log = [batch for _, batch in self.state.batches]
        self._seen = min(self._seen, self.state.end)
        decoded = [FORMAT.decode(record) for record in shown.records(HOME, self._seen)]
        self._seen = self.state.end
        return [show_record(record) for record in decoded if record is not None]

    # -- data

    def move(self, tp: TopicPartition, node_id: int, *, told: bool = True) -> None:
        """Elect another leader for a data partition. Unless `told`, only the old and the new leader are notified."""
        data = self.data[tp]
        concerned = {data.leader, node_id}
        data.leader, data.leader_epoch = node_id, data.leader_epoch + 1
        for node in self.nodes.values():
            if told or node.node_id in concerned:
                self.tell(node.node_id)

    async def write(self, name: str, producer: ProducerIdAndEpoch, tp: TopicPartition, sequence: int) -> ErrorCode:
        """Send a batch to the partition's leader, as a producer with transaction version 2 (Produce 12) does."""
        from barnabas.server.broker.verification import TransactionalWrite, TransactionSupportedOperation

        node = self.nodes[self.data[tp].leader]
        replica: Any = node.replicas[tp]
        try:
            async with node.transaction_verifier.in_order(name):
                write = TransactionalWrite(replica, producer.producer_id, producer.epoch, sequence)
                refused = await node.transaction_verifier.verify(
                    name, [write], TransactionSupportedOperation.ADD_PARTITION
                )
                if tp in refused:
                    return refused[tp].code
                batch = build_batch(
                    [SimpleRecord(b"k", b"v", 0)],
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
                replica.append(batch, -1, 0, Origin.CLIENT)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE
