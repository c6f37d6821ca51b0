"""Value: an observation of a running cluster, gathered once and passed to every rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.testing.sim.cluster.view import broker_of, consumer_groups_of, coordinators_of, partitions_of

if TYPE_CHECKING:
    from barnabas.server.coordination.group.consumer.group import ConsumerGroup
    from barnabas.server.metadata.image.topics import PartitionImage
    from barnabas.server.replication.partition import Partition
    from barnabas.server.storage.log import Log
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.node import SimNode

Key = tuple[int, int]
"""The topic id as an integer, which is hashed much faster than a UUID, and the partition index."""


class Replica(NamedTuple):
    """A replica of a running broker that has a log."""

    node: SimNode
    process_name: str
    """The name of the broker's present process."""
    partition: Partition
    log: Log
    key: Key


def replicas_of(cluster: SimCluster) -> list[Replica]:
    """The replicas of all running brokers."""
    return [
        Replica(node, node.process.name, partition, partition.log, (partition.topic_id.int, partition.name.partition))
        for node in cluster.brokers
        if node.process is not None
        for partition in partitions_of(node)
        if partition.log is not None
    ]


class ClusterObservation:
    """The state of the cluster at one moment. No simulated code runs while the rules use the observation."""

    __slots__ = ("coordinators", "groups", "image", "replicas", "states")

    def __init__(self, cluster: SimCluster) -> None:
        self.image = image = cluster.newest_image()
        self.replicas = replicas_of(cluster)
        self.states: dict[Key, PartitionImage | None] = {}
        """The partitions of `replicas` in the newest image; None if the image does not have the partition."""
        if image is not None:
            for _, _, partition, _, key in self.replicas:
                if key not in self.states:
                    self.states[key] = image.topics.partition_by_id(partition.topic_id, key[1])
        self.groups: list[tuple[str, int, ConsumerGroup]] = []
        """The node, the leader epoch and the group, for every consumer group that any broker coordinates."""
        self.coordinators: list[tuple[str, Any, Partition | None]] = []
        """The node, the coordinator, and the partition of its state, for the coordinators of all kinds."""
        for node in cluster.brokers:
            self.groups += ((node.name, epoch, group) for epoch, group in consumer_groups_of(node))
            broker = broker_of(node)
            for host in coordinators_of(node):
                assert broker is not None
                partition = broker.partitions.get(host.tp.topic, host.tp.partition)
                self.coordinators.append((node.name, host, partition))
