"""Several brokers' replicas in virtual time: real partitions, fetchers, ISR keepers, fetch handlers, and logs on a
simulated disk; a real controller machine. What stands in for the rest: the wire between them (messages are encoded and
decoded), and images that arrive after a moment.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from uuid import UUID

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import Metrics
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.security.quotas.limits import QuotaLimits
from barnabas.protocol.security.quotas.rates import QuotaWindows
from barnabas.protocol.transport.ports import Usage
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from barnabas.protocol.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.wire.schema import Message, Request, Response
from barnabas.server.broker.checking.checker import BatchChecker
from barnabas.server.broker.client_quotas import ClientQuotas
from barnabas.server.broker.fetching.session_cache import FetchSessionCache
from barnabas.server.broker.handlers.cluster import alter_replica_log_dirs, describe_log_dirs, metadata
from barnabas.server.broker.handlers.data import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from barnabas.server.broker.handlers.transactions import write_txn_markers
from barnabas.server.broker.metadata_cache import BrokerMetadataCache
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.controller import brokers as broker_decisions
from barnabas.server.metadata.controller.controller import Controller
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.features import DEFAULT_LEVELS, SUPPORTED_FEATURES, bootstrap_records
from barnabas.server.metadata.image.cluster import ClusterImage, ResourceType
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.ports import ImageSubscriber
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import ConfigRecord
from barnabas.server.node.typed_configs import build_log_config
from barnabas.server.peers.replication import ReplicationChannel
from barnabas.server.replication.directories.mover import DirectoryMover
from barnabas.server.replication.directories.reporter import DirectoryReporter
from barnabas.server.replication.flushing import Flusher
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.replication.replication import BrokerReplication
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.testing.sim.clock import SimClock
from barnabas.testing.sim.disk import MemoryDisk
from barnabas.testing.sim.loop import SimLoop
from barnabas.testing.sim.process import Process, ProcessState, discard
from tests.configs import broker_config, controller_config, replication_config

T = TypeVar("T")
HANDLERS: Mapping[int, Any] = {
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    ApiKey.PRODUCE: produce.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers.handle,
    ApiKey.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs.handle,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
}
KEYS: Mapping[type[Request], int] = {APIS[ApiKey(key)].request: key for key in HANDLERS}
VERSIONS = {ApiKey.FETCH: 18, ApiKey.LIST_OFFSETS: 10}
HOP_S = 0.001


def in_virtual_time(main: Callable[[Cluster], Coroutine[Any, Any, T]], brokers: int = 3, seed: int = 1) -> T:
    """Run `main` in virtual time with a cluster of `brokers` brokers."""
    loop = SimLoop(random.Random(seed))
    cluster = Cluster(loop, seed)

    async def bounded() -> T:
        async with asyncio.timeout(3_600):
            for number in range(1, brokers + 1):
                cluster.add(number)
            return await main(cluster)

    try:
        return loop.run_until_complete(bounded())
    finally:
        cluster.discard()


class Cluster:
    """The controller, the network between the brokers, and the brokers."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.rng = random.Random(seed)
        self.brokers: dict[int, Broker] = {}
        self.processes: list[Process] = []
        self.cut: set[frozenset[int]] = set()
        """Pairs that cannot reach each other; 0 is the controller."""
        self.settings = replication_config(
            replica_fetch_backoff_ms=100, replica_socket_timeout_ms=2_000, replica_lag_time_max_ms=1_000
        )
        self.controller = Controller(controller_config(), ClusterImage(cluster_id="c"))
        self.commit(bootstrap_records(DEFAULT_LEVELS))

    def discard(self) -> None:
        """End the test: close everything that still waits, without log output."""
        told, sys.unraisablehook = sys.unraisablehook, lambda _: None
        self.loop.set_exception_handler(lambda loop, context: None)
        try:
            for process in self.processes:
                process.state = ProcessState.DEAD
            for process in self.processes:
                process.discard()
            for task in sorted(asyncio.all_tasks(self.loop), key=hash):
                discard(task)
            self.loop.close()
            gc.collect()
        finally:
            sys.unraisablehook = told

    # -- the controller ----------------------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        if records:
            self.controller.apply(self.image, records)
            for broker in self.brokers.values():
                broker.publish(self.image)

    def ask(self, request: Message, version: int = 0) -> Message:
        decision = self.controller.decide(self.image, request, self._context(version))
        self.commit(list(decision.records))
        return decision.response

    def _context(self, version: int = 4) -> DecideContext:
        return DecideContext(0, self.rng, self.controller.settings, version)

    def fence(self, number: int) -> None:
        self.commit(list(broker_decisions.decide_fence_broker(self.image, number, self._context()).records))

    def create(self, name: str, assignments: list[list[int]], **configs: str) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
                        for index, ids in enumerate(assignments)
                    ],
                    configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
                )
            ]
        )
        response = cast("Any", self.ask(request))
        assert response.topics[0].error_code == 0, response.topics[0]

    def configure(self, resource: ResourceType, name: str, key: str, value: str) -> None:
        self.commit([ConfigRecord(resource_type=resource, resource_name=name, name=key, value=value)])

    def isr(self, topic: str, index: int = 0) -> list[int]:
        state = self.image.topics.partition(topic, index)
        assert state is not None
        return sorted(state.isr)

    # -- brokers -----------------------------------------------------------------------------------------------------

    def add(self, number: int, rack: str | None = None, dirs: int = 1, disk: MemoryDisk | None = None) -> Broker:
        broker = self.brokers[number] = Broker(self, number, rack, dirs, disk)
        broker.start()
        return broker

    async def until(self, true: Callable[[], bool], within_s: float = 60.0) -> None:
        """Let virtual time pass until `true()` is True; fail after `within_s` seconds."""
        end = self.loop.time() + within_s
        while not true():
            assert self.loop.time() < end, "it did not come true in time"
            await asyncio.sleep(HOP_S)


class Broker:
    """One broker, over several processes. The disk survives each process."""

    def __init__(
        self, cluster: Cluster, number: int, rack: str | None = None, dirs: int = 1, disk: MemoryDisk | None = None
    ) -> None:
        self.cluster = cluster
        self.number = number
        self.rack = rack
        self.disk = disk or MemoryDisk()
        self.paths = ["/data", *(f"/data{n}" for n in range(1, dirs))]
        for path in self.paths:
            self.disk.mount().mkdir(path)
        self.missing: set[str] = set()
        """Paths that cannot be opened at the next start."""
        self.replaced: dict[str, int] = {}
        """Path -> the number of times that its disk was replaced by an empty one."""
        self.state = 0
        self.fetches: list[Any] = []
        """Requests this broker has served."""
        self.subscribers: list[ImageSubscriber] = []
        """Notified of images after all others; a restart empties the list."""

    def start(self, *, stopped_in_order: bool = False) -> None:
        cluster, loop = self.cluster, self.cluster.loop
        self.state += 1
        self.subscribers.clear()
        delays = random.Random(self.number * 1_000 + self.state)
        self.process = Process(f"broker-{self.number}", str(self.number), lambda: delays.uniform(0.001, 0.01))
        cluster.processes.append(self.process)
        self.clock = SimClock(loop)
        self.image = ClusterImage(cluster_id="c")
        executor = cast("Executor", None)
        homes = [
            LogDir.open(
                self.disk.mount(),
                path,
                cluster_id="c",
                node_id=self.number,
                new_directory_id=UUID(int=9_000 + 10 * self.number + index + 1_000 * self.replaced.get(path, 0)),
                on_failure=lambda home, error: self.partitions.on_directory_failed(home, error),
            )
            for index, path in enumerate(self.paths)
            if path not in self.missing
        ]
        rng = random.Random(self.number)
        self.flusher = Flusher(executor)
        channel = ReplicationChannel(self.number, _Way(self), _Way(self), lambda: self.epoch)
        self.replication = BrokerReplication(
            self.number, channel, self.flusher, lambda: cluster.settings, self.clock, rng
        )
        self.partitions = Partitions(
            self.replication.context,
            self.replication,
            homes,
            self._log_config,
            self.clock,
            rng,
            sorted(self.missing),
            lambda: self.mover,
        )
        self.directory_reporter = DirectoryReporter(self.partitions, channel, rng)
        previous = self.epoch if stopped_in_order else -1
        self.epoch = self._register([home.directory_id for home in homes], previous)
        self.mover = DirectoryMover(
            self.partitions,
            self.directory_reporter,
            self.flusher,
            executor,
            lambda: cluster.settings,
            self.clock,
            rng,
            Metrics(),
        )
        self.metadata = BrokerMetadataCache()
        self.port = cast(
            "Any",
            SimpleNamespace(
                node_id=self.number,
                clock=self.clock,
                rng=rng,
                metadata=self.metadata,
                partitions=self.partitions,
                mover=self.mover,
                fetch_sessions=FetchSessionCache(100, rng),
                checker=BatchChecker(None),
                disk=executor,
                config=SimpleNamespace(
                    current=broker_config(
                        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector"
                    )
                ),
                quotas=ClientQuotas(QuotaLimits(), QuotaWindows(), self.clock, lambda: 0.0),
                unsent_bytes=lambda: 0,
            ),
        )
        list(self.partitions.discover())
        self.process.spawn(loop, self._run())
        self.publish(cluster.image)

    def _log_config(self, image: ClusterImage, topic: str) -> LogConfig:
        return build_log_config(ConfigView(image.configs, node_id=self.number), topic)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.flusher.run())
            tasks.create_task(self.replication.run(self.partitions))
            tasks.create_task(self.directory_reporter.run())
            tasks.create_task(self.mover.run())

    def _register(self, directory_ids: list[UUID], previous_epoch: int) -> int:
        registration = BrokerRegistrationRequest(
            broker_id=self.number,
            cluster_id="c",
            incarnation_id=UUID(int=self.number + 100 * self.state),
            listeners=[Listener(name="PLAINTEXT", host=str(self.number), port=9092)],
            features=[
                Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
                for name, levels in SUPPORTED_FEATURES.items()
            ],
            rack=self.rack,
            log_dirs=directory_ids,
            previous_broker_epoch=previous_epoch,
        )
        answer = cast("Any", self.cluster.ask(registration, 4))
        assert answer.error_code == 0
        self.epoch = cast("int", answer.broker_epoch)
        self.heartbeat()
        return self.epoch

    def heartbeat(self) -> None:
        """Send a heartbeat, which unfences the broker."""
        beat = BrokerHeartbeatRequest(
            broker_id=self.number,
            broker_epoch=self.epoch,
            current_metadata_offset=1 << 40,
            offline_log_dirs=self.partitions.offline_dirs,
        )
        self.cluster.ask(beat, 1)

    @property
    def alive(self) -> bool:
        return self.process.state is ProcessState.RUNNING

    def kill(self) -> None:
        """End the process as kill -9 does; the page cache survives."""
        self.process.state = ProcessState.DEAD
        self.disk.crash()

    def replace_disk(self, path: str) -> None:
        """Replace the disk by an empty one. The broker must be down."""
        mounted = self.disk.mount()
        mounted.rmtree(path)
        mounted.mkdir(path)
        self.replaced[path] = self.replaced.get(path, 0) + 1

    def lose_power(self) -> None:
        """End the process and lose all data that is not synced."""
        self.process.state = ProcessState.DEAD
        self.disk.lose_power()

    def publish(self, image: ClusterImage) -> None:
        """Deliver an image after one hop, or when the controller is reachable again."""
        process = self.process

        def arrive() -> None:
            if frozenset({0, self.number}) in self.cluster.cut:
                self.cluster.loop.call_later(0.1, arrive)
            elif image.offset > self.image.offset:
                delta, self.image = _difference(self.image, image), image
                self.partitions.on_image(delta, image)
                self.directory_reporter.on_image(delta, image)
                self.replication.on_image(delta, image)
                self.mover.on_image(delta, image)
                self.metadata.on_image(delta, image)
                for subscriber in self.subscribers:
                    subscriber.on_image(delta, image)

        process.run(self.cluster.loop.call_later, HOP_S, arrive)

    # -- what a test does --------------------------------------------------------------------------------------------

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        return self.partitions.require(topic, index)

    def append(self, *values: bytes, topic: str = "t", index: int = 0, acks: int = -1, **options: Any) -> int:
        """Append as a Produce request does. Returns the next offset."""
        batch = build_batch([SimpleRecord(None, value, 0) for value in values], **options)
        return self.process.run(lambda: self.partition(topic, index).append(batch, acks, 0)).next_offset

    async def produce(self, *values: bytes, topic: str = "t", index: int = 0, timeout_s: float = 30.0) -> ErrorCode:
        """Append and wait until the records are committed."""
        end = self.append(*values, topic=topic, index=index)
        return await self.partition(topic, index).wait_committed(end, self.cluster.loop.time() + timeout_s)

    def end(self, index: int = 0) -> int:
        """The log end offset of topic `t`; -1 if there is no log."""
        found = self.partitions.get("t", index)
        return -1 if found is None or found.log is None else found.log.log_end_offset

    def values(self, topic: str = "t", index: int = 0, *, committed: bool = False) -> list[bytes]:
        """The values of all records in the log, or of those below the high watermark."""
        partition = self.partition(topic, index)
        log = partition.log
        assert log is not None
        upper = partition.high_watermark if committed else log.log_end_offset
        found: list[bytes] = []
        offset = log.log_start_offset
        while offset < upper:
            data = log.read(offset, 1 << 20, upper_offset=upper).data
            for position, header in iter_batches(data):
                found += [r.value or b"" for r in iter_records(data, position, header) if r.offset >= offset]
                offset = header.next_offset
        return found

    async def serve(self, request: Request, version: int, usage: Usage | None = None) -> Response:
        """Handle a request of a client or of another broker."""
        client = SimpleNamespace(listener="PLAINTEXT", connection_id=1, usage=usage or Usage())
        ctx = RequestContext(
            _key(request),
            version,
            0,
            "test",
            cast("Any", client),
            self.clock.now_ms(),
            self.cluster.loop.time(),
        )
        return cast("Response", await HANDLERS[_key(request)](self.port, ctx, request))


class _Way:
    """From one broker to the others and to the controller. Fills PeerSender and ControllerChannel."""

    def __init__(self, broker: Broker) -> None:
        self._from = broker
        self._cluster = broker.cluster

    async def _hop(self, to: int) -> None:
        await asyncio.sleep(HOP_S)
        if frozenset({self._from.number, to}) in self._cluster.cut:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{self._from.number} is cut off from {to}.")

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int, purpose: str = "") -> Response:
        version = VERSIONS[ApiKey(_key(request))]
        peer = self._cluster.brokers[broker_id]
        sent = encode(request, version)
        await self._hop(broker_id)
        if not peer.alive:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is down.")
        received = decode(type(request), version, sent)
        peer.fetches.append(received)
        task = peer.process.spawn(self._cluster.loop, peer.serve(received, version))
        await asyncio.wait({task}, timeout=timeout_ms / 1000)  # a task of a process that was killed never ends
        if not task.done():
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        answer = encode(task.result(), version)
        await self._hop(broker_id)
        return decode(APIS[ApiKey(_key(request))].response, version, memoryview(answer))

    async def call(self, request: Message, version: int, ctx: object = None) -> Message:
        await self._hop(0)
        answer = self._cluster.ask(request, version)
        await self._hop(0)
        return answer


def _key(request: Request) -> int:
    return KEYS[type(request)]


def _difference(before: ClusterImage, after: ClusterImage) -> ClusterDelta:
    """What changed from one image to the next; of partitions, no more than that."""
    delta = ClusterDelta.everything(after)
    for topic_id in list(delta.topics.changed):
        if before.topics.get_by_id(topic_id) == after.topics.get_by_id(topic_id):
            del delta.topics.changed[topic_id]
    for topic in before.topics:
        if after.topics.get_by_id(topic.topic_id) is None:
            delta.topics.deleted[topic.topic_id] = topic
    return delta
