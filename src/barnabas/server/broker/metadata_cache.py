"""Shell: the newest cluster image, as the clients of one listener see it, and requests that wait for a newer one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import NO_LEADER, TopicId
from barnabas.protocol.wire.messages.metadata import MetadataResponsePartition
from barnabas.server.metadata.image.cluster import BrokerImage, ClusterImage, PartitionImage, TopicImage
from barnabas.server.metadata.image.delta import ClusterDelta

DESCRIBED_MAX: Final = 50_000
"""The most partitions whose descriptions are kept for further Metadata responses; some 400 bytes each."""


class NodeAddress(Struct, frozen=True):
    """The address of a broker on one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class CurrentLeader(NamedTuple):
    """The leader of a partition, its epoch, and its address if the listener's clients can connect to it."""

    leader_id: int
    leader_epoch: int
    address: NodeAddress | None


class Descriptions:
    """What Metadata responses say about the partitions of topics, as long as the brokers stay the same. Nobody changes
    a list that is kept here: several responses have it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[TopicId, str], tuple[TopicImage, list[MetadataResponsePartition]]] = {}
        self._size = 0

    def get(self, topic: TopicImage, listener: str) -> list[MetadataResponsePartition] | None:
        """The partitions of this image of the topic, for clients of the listener."""
        found = self._kept.get((topic.topic_id, listener))
        return None if found is None or found[0] is not topic else found[1]

    def keep(self, topic: TopicImage, listener: str, partitions: list[MetadataResponsePartition]) -> None:
        """Keep the partitions in place of those of an earlier image. At the limit all topics make room."""
        key = topic.topic_id, listener
        before = self._kept.pop(key, None)
        self._size += len(partitions) - (0 if before is None else len(before[1]))
        if self._size > DESCRIBED_MAX:
            self._kept.clear()
            self._size = len(partitions)
        if self._size <= DESCRIBED_MAX:
            self._kept[key] = topic, partitions
        else:
            self._size = 0


class BrokerMetadataCache:
    """Keeps the newest image. A handler that reads `image` once works on a consistent state."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self._addresses: dict[tuple[int, str], NodeAddress | None] = {}
        self.descriptions = Descriptions()
        """Of the brokers of now."""
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[bool]]] = []
        """The conditions that `wait` waits for."""

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.image = image
        if delta.brokers:
            self._addresses, self.descriptions = {}, Descriptions()
        for holds, future in self._waiting:
            if not future.done() and holds():
                future.set_result(True)

    async def wait(self, holds: Callable[[], bool], deadline: float) -> bool:
        """Wait until `holds()` of a new image, or until `deadline`, a time of the event loop. Returns whether it
        holds."""
        if holds():
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        # asyncio.timeout needs a task, but a connection runs a request without one until it first suspends.
        timer = loop.call_at(deadline, _give_up, future)
        self._waiting.append((holds, future))
        try:
            return await future
        finally:
            timer.cancel()
            self._waiting.remove((holds, future))

    def frozen(self) -> BrokerMetadataCache:
        """A cache that keeps the image of now, for a response that is built in several steps."""
        frozen = BrokerMetadataCache()
        frozen.image = self.image
        frozen.descriptions = self.descriptions
        return frozen

    def address(self, broker_id: int, listener: str) -> NodeAddress | None:
        """The address of a broker; None if the broker is unknown, fenced, or does not have the listener."""
        key = (broker_id, listener)
        try:
            return self._addresses[key]
        except KeyError:
            broker = self.image.brokers.get(broker_id)
            found = self._addresses[key] = None if broker is None or broker.fenced else _address(broker, listener)
            return found

    def addresses(self, listener: str) -> list[NodeAddress]:
        """The addresses of all live brokers that have the listener, by ascending broker id."""
        found = (_address(broker, listener) for broker in self.image.brokers.alive())
        return [address for address in found if address is not None]

    def leader(self, partition: PartitionImage, listener: str) -> int:
        """The leader of the partition; -1 if there is none or the listener's clients cannot connect to it."""
        if partition.leader == NO_LEADER or self.address(partition.leader, listener) is None:
            return NO_LEADER
        return partition.leader

    def current_leader(self, topic_id: TopicId, index: int, listener: str) -> CurrentLeader | None:
        """The leader of a partition, for the response to a client that did not send its request to the leader
        (KIP-951). None if the partition does not exist."""
        state = self.image.topics.partition_by_id(topic_id, index)
        if state is None:
            return None
        return CurrentLeader(state.leader, state.leader_epoch, self.address(state.leader, listener))

    def leader_problem(self, partition: PartitionImage, listener: str) -> ErrorCode:
        """The error code if `leader` is -1, else NONE."""
        if self.leader(partition, listener) != NO_LEADER:
            return ErrorCode.NONE
        alive = partition.leader != NO_LEADER and self.image.brokers.is_unfenced(partition.leader)
        return ErrorCode.LISTENER_NOT_FOUND if alive else ErrorCode.LEADER_NOT_AVAILABLE

    def offline_replicas(self, partition: PartitionImage, listener: str) -> list[int]:
        """The replicas that clients of the listener cannot use: the broker is fenced or does not have the listener, or
        the log directory of the replica is offline (`KRaftMetadataCache.isReplicaOffline`)."""
        brokers = self.image.brokers
        return [
            replica
            for replica in partition.replicas
            if self.address(replica, listener) is None
            or not brokers.has_online_dir(replica, partition.directory_of(replica))
        ]


def _give_up(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)


def _address(broker: BrokerImage, listener: str) -> NodeAddress | None:
    endpoint = broker.endpoint(listener)
    return None if endpoint is None else NodeAddress(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
