"""Two clusters in virtual time, and cluster links between them: the production data plane over the brokers of
`brokers.py`. What stands in for the rest: a coordinator of links that is a dict, and the wire between the clusters.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, cast

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.transport.connection_config import Destination
from barnabas.protocol.wire.apis import API_KEYS, APIS, ApiKey
from barnabas.protocol.wire.codec import decode, encode
from barnabas.server.links.fetching.links import MirrorLinks
from barnabas.server.links.fetching.ports import MirrorPartition, SourceRequests
from barnabas.server.links.fetching.states import MirrorState
from barnabas.server.links.fetching.task import TaskPorts
from barnabas.server.links.fetching.values import LinkDefinition, MirrorPosition, MirrorReport, StoredMirror
from barnabas.server.links.source import LinkSource
from barnabas.server.metadata.image.cluster import ResourceType
from barnabas.server.metadata.records.topics import PartitionRecord
from barnabas.testing.sim.loop import SimLoop
from tests.unit.server.replication.brokers import HOP_S, Broker, Cluster

T = TypeVar("T")
LINK = "dr"
KAFKA_2_1 = {ApiKey.FETCH: 10, ApiKey.METADATA: 7, ApiKey.LIST_OFFSETS: 4, ApiKey.OFFSET_FOR_LEADER_EPOCH: 2}


def with_two_clusters(main: Callable[[Site, Site], Coroutine[Any, Any, T]], brokers: int = 2, seed: int = 1) -> T:
    """Run `main(source, target)` in virtual time. Each cluster may have links to the other."""
    loop = SimLoop(random.Random(seed))
    one, two = Site(loop, seed, brokers), Site(loop, seed + 1, brokers)
    one.other, two.other = two, one

    async def bounded() -> T:
        async with asyncio.timeout(3_600):
            one.start()
            two.start()
            return await main(one, two)

    try:
        return loop.run_until_complete(bounded())
    finally:
        one.cluster.processes += two.cluster.processes
        one.cluster.discard()


class Site:
    """One cluster, and the control side of its links."""

    other: Site

    def __init__(self, loop: SimLoop, seed: int, brokers: int) -> None:
        self.cluster = Cluster(loop, seed)
        self.numbers = range(1, brokers + 1)
        self.links: dict[int, MirrorLinks] = {}
        self.versions: dict[ApiKey, int] = {}
        """The newest versions that this cluster serves to links, if these are not the newest of all."""
        self.is_reachable = True
        """Whether links reach this cluster."""
        self.password = ""
        """What links must show."""
        self.definition: LinkDefinition | None = LinkDefinition(
            LINK, "1:9092,2:9092", settings={"mirror.metadata.refresh.interval.ms": "1000"}
        )
        self.stored: dict[tuple[Any, int], StoredMirror] = {}
        self.fences: dict[tuple[Any, int], int] = {}
        self.history: list[MirrorState] = []
        """The states that were stored, one after the other."""
        self.barrier = -1
        self.on_raise: Callable[[], None] = lambda: None

    def start(self) -> None:
        for number in self.numbers:
            self.attach(self.cluster.add(number))

    def attach(self, broker: Broker) -> None:
        """Give a broker that has just been started its links."""
        ports = TaskPorts(
            _Control(self, broker),
            _Control(self, broker),
            _Control(self, broker),
            cast("Executor", None),
            broker.clock,
            random.Random(broker.number),
        )
        links = self.links[broker.number] = MirrorLinks(broker.partitions.get, self._open, ports)
        broker.partitions.add_listener(links)
        broker.subscribers.append(links)
        broker.process.spawn(self.cluster.loop, links.run())

    def _open(self, definition: LinkDefinition) -> LinkSource:
        client = _Client(self.other, definition.client.get("password", ""))
        return LinkSource([("1", 9092), ("2", 9092)], client, 2_000, self.cluster.rng)

    # -- what a test does --------------------------------------------------------------------------------------------

    def mirror(self, topic: str = "t", state: str = "active") -> None:
        """Make a topic a mirror, or change what the operator wants of it."""
        self.cluster.configure(ResourceType.TOPIC, topic, "mirror.state", state)
        self.cluster.configure(ResourceType.TOPIC, topic, "mirror.name", LINK)

    async def create_mirror(self, topic: str = "t", replicas: int = 2, partitions: int = 1) -> None:
        self.cluster.create(topic, [list(self.numbers)[:replicas]] * partitions)
        self.mirror(topic)
        await self.cluster.until(lambda: len(self.reports()) == partitions)

    def reports(self) -> list[MirrorReport]:
        return [report for number, links in self.links.items() if self.cluster.brokers[number].alive
                for report in links.reports()]  # fmt: skip

    def state(self) -> MirrorState | None:
        reports = self.reports()
        return reports[0].state if reports else None

    async def until_state(self, state: MirrorState, within_s: float = 30.0) -> None:
        await self.cluster.until(lambda: self.state() is state, within_s)

    async def caught_up(self, index: int = 0) -> None:
        """Wait until this cluster has everything that the other has, committed."""

        def has_all() -> bool:
            end = self.other.leader("t", index).partition("t", index).open_log.log_end_offset
            return self.watermark(index) == self.other.watermark(index) == end

        await self.cluster.until(has_all)

    def leader(self, topic: str = "t", index: int = 0) -> Broker:
        state = self.cluster.image.topics.partition(topic, index)
        assert state is not None
        return self.cluster.brokers[state.leader]

    def leader_id(self, topic: str = "t", index: int = 0) -> int:
        state = self.cluster.image.topics.partition(topic, index)
        return -1 if state is None else state.leader

    def watermark(self, index: int = 0) -> int:
        partition = self.leader("t", index).partitions.get("t", index)
        return -1 if partition is None or not partition.is_leader else partition.high_watermark

    async def create(self, topic: str = "t", replicas: int = 2, partitions: int = 1) -> None:
        self.cluster.create(topic, [list(self.numbers)[:replicas]] * partitions)
        numbers = list(self.numbers)[:replicas]
        await self.cluster.until(lambda: all(len(self.cluster.brokers[n].partitions) for n in numbers))

    async def move_leader(self, number: int, index: int = 0) -> None:
        """Elect another replica, in the next leader epoch."""
        self.commit_partition(index, leader=number)
        await self.cluster.until(lambda: self.leader("t", index).partition("t", index).is_leader)

    def commit_partition(self, index: int = 0, *, leader: int | None = None, leader_epoch: int | None = None) -> None:
        topic = self.cluster.image.topics.get("t")
        assert topic is not None
        state = topic.partitions[index]
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic.topic_id,
            replicas=list(state.replicas),
            isr=sorted(state.isr),
            leader=state.leader if leader is None else leader,
            leader_epoch=state.leader_epoch + 1 if leader_epoch is None else leader_epoch,
            partition_epoch=state.partition_epoch + 1,
            directories=[state.directory_of(number) for number in state.replicas],
        )
        self.cluster.commit([record])


def log_bytes(broker: Broker, index: int = 0, topic: str = "t") -> bytes:
    """All batches of a log."""
    log = broker.partition(topic, index).open_log
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1 << 20).data)
        found += data
        offset = [header.next_offset for _, header in iter_batches(data)][-1]
    return found


class _Control:
    """Implements `MirrorStates`, `MirrorController` and `OppositeMirrors` for one broker."""

    def __init__(self, site: Site, broker: Broker) -> None:
        self._site = site
        self._broker = broker

    async def _hop(self) -> None:
        await asyncio.sleep(HOP_S)
        if frozenset({0, self._broker.number}) in self._site.cluster.cut:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)

    async def definition(self, link: str) -> LinkDefinition | None:
        await self._hop()
        return self._site.definition

    async def read(self, partition: MirrorPartition, leader_epoch: int) -> StoredMirror | None:
        await self._hop()
        self._fence(partition, leader_epoch)
        return self._site.stored.get(partition[2:])

    async def write(self, partition: MirrorPartition, state: StoredMirror) -> None:
        await self._hop()
        self._fence(partition, state.leader_epoch)
        known = self._site.stored.get(partition[2:])
        if known == state:
            return
        if known is not None and state.state_epoch <= known.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._site.stored[partition[2:]] = state
        self._site.history.append(state.state)

    def _fence(self, partition: MirrorPartition, leader_epoch: int) -> None:
        if leader_epoch < self._site.fences.get(partition[2:], -1):
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        self._site.fences[partition[2:]] = leader_epoch

    async def raise_leader_epoch(self, partition: MirrorPartition, leader_epoch: int, minimum: int) -> None:
        await self._hop()
        state = self._site.cluster.image.topics.partition(partition.topic, partition.partition)
        if state is None or state.leader_epoch != leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        self._site.on_raise()
        if state.leader_epoch < minimum:
            self._site.commit_partition(partition.partition, leader_epoch=minimum)

    async def raise_producer_ids(self, above: int) -> None:
        await self._hop()
        self._site.barrier = max(self._site.barrier, above)

    async def stopped_position(self, source: SourceRequests, partition: MirrorPartition) -> MirrorPosition | None:
        await self._hop()
        found = [state for (_, index), state in self._site.other.stored.items() if index == partition.partition]
        if not found:
            return None
        if found[0].state is not MirrorState.STOPPED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the opposite mirror is not stopped")
        return found[0].position


class _Client:
    """Connections of a link to a cluster. Implements `SourceClient`."""

    def __init__(self, site: Site, password: str) -> None:
        self._site = site
        self._password = password

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def connection(self, to: Destination, deadline: float) -> _Connection:
        await asyncio.sleep(HOP_S)
        found = _Connection(self._site, int(to.host))
        if not found.is_up:
            await asyncio.sleep(max(deadline - asyncio.get_running_loop().time(), 0))  # as a host that is gone
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        if self._password != self._site.password:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "wrong password")
        return found


class _Connection:
    def __init__(self, site: Site, number: int) -> None:
        self._site = site
        self._broker = site.cluster.brokers[number]

    @property
    def is_up(self) -> bool:
        return self._site.is_reachable and self._broker.alive

    def choose_version(self, key: ApiKey, *, max_version: int | None = None) -> int:
        newest = min(APIS[key].max_version, self._site.versions.get(key, 99))
        return newest if max_version is None else min(newest, max_version)

    async def wait_writable(self, deadline: float) -> None:
        pass

    def send(self, message: Any, version: int, deadline: float | None = None) -> Awaitable[Any]:
        return self._send(message, version, deadline or 0.0)

    async def _send(self, message: Any, version: int, deadline: float) -> Any:
        loop = asyncio.get_running_loop()
        key = API_KEYS[message.__schema__.key]
        received = decode(type(message), version, encode(message, version))
        await asyncio.sleep(HOP_S)
        answer: Any = None
        if self.is_up:
            task = self._broker.process.spawn(loop, self._broker.serve(received, version))
            await asyncio.wait({task}, timeout=max(deadline - loop.time(), 0))
            answer = task.result() if task.done() else None
        await asyncio.sleep(HOP_S)
        if answer is None or not self.is_up:
            await asyncio.sleep(max(deadline - loop.time(), 0))
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return decode(APIS[key].response, version, memoryview(encode(answer, version)))


def stored_state(site: Site) -> StoredMirror:
    """The stored state of the only mirror partition."""
    (found,) = site.stored.values()
    return found


__all__ = ["KAFKA_2_1", "LINK", "Site", "log_bytes", "stored_state", "with_two_clusters"]
