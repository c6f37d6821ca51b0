"""Value: the newest cluster image, with the questions that handlers ask of it."""

from __future__ import annotations

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import NO_LEADER
from barnabas.server.metadata.image.cluster import BrokerImage, ClusterImage, PartitionImage
from barnabas.server.metadata.image.delta import ClusterDelta


class NodeAddress(Struct, frozen=True):
    """Where a client of a certain listener finds a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class MetadataCache:
    """Subscribes to images; handlers take `image` once and work on it."""

    def __init__(self) -> None:
        self.image = ClusterImage()

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.image = image

    def address(self, broker_id: int, listener: str) -> NodeAddress | None:
        """None when the broker is unknown, fenced, or does not have that listener."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else _address(broker, listener)

    def addresses(self, listener: str) -> list[NodeAddress]:
        """All brokers that clients of this listener can reach, by ascending id."""
        found = (_address(broker, listener) for broker in self.image.brokers.alive())
        return [address for address in found if address is not None]

    def leader(self, partition: PartitionImage, listener: str) -> int:
        """The leader a client may be told of: -1 when there is none, or none it could reach."""
        if partition.leader == NO_LEADER or self.address(partition.leader, listener) is None:
            return NO_LEADER
        return partition.leader

    def leader_problem(self, partition: PartitionImage, listener: str) -> ErrorCode:
        """Why `leader` has nobody to tell of; NONE when it has."""
        if self.leader(partition, listener) != NO_LEADER:
            return ErrorCode.NONE
        alive = partition.leader != NO_LEADER and self.image.brokers.is_unfenced(partition.leader)
        return ErrorCode.LISTENER_NOT_FOUND if alive else ErrorCode.LEADER_NOT_AVAILABLE

    def offline_replicas(self, partition: PartitionImage, listener: str) -> list[int]:
        """Those that a client of this listener cannot use: the broker is fenced, has no such listener, or the replica's
        log directory is offline (`KRaftMetadataCache.isReplicaOffline`)."""
        brokers = self.image.brokers
        return [
            replica
            for replica in partition.replicas
            if self.address(replica, listener) is None
            or not brokers.has_online_dir(replica, partition.directory_of(replica))
        ]


def _address(broker: BrokerImage, listener: str) -> NodeAddress | None:
    endpoint = broker.endpoint(listener)
    return None if endpoint is None else NodeAddress(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
