"""Value: what the rules see when they look at a running cluster: gathered once, and the same for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.testing.sim.cluster.view import consumer_groups_of, coordinators_of, partitions_of, services_of

if TYPE_CHECKING:
    from barnabas.server.coordination.group.consumer.group import ConsumerGroup
    from barnabas.server.metadata.image.topics import PartitionImage
    from barnabas.server.replication.partition import Partition
    from barnabas.server.storage.log import Log
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.node import SimNode

Key = tuple[int, int]
"""The topic's id as a number, which is hashed much faster than a UUID, and the partition."""


class Replica(NamedTuple):
    """One that a running broker hosts, with its log."""

    node: SimNode
    life: str
    """The name of the process: of this life of the broker."""
    partition: Partition
    log: Log
    key: Key


def replicas_of(cluster: SimCluster) -> list[Replica]:
    """Of all running brokers."""
    return [
        Replica(node, node.process.name, partition, partition.log, (partition.topic_id.int, partition.name.partition))
        for node in cluster.brokers
        if node.process is not None
        for partition in partitions_of(node)
        if partition.log is not None
    ]


class Sight:
    """One look. Nothing runs while the rules are at it."""

    __slots__ = ("coordinators", "groups", "image", "replicas", "states")

    def __init__(self, cluster: SimCluster) -> None:
        self.image = image = cluster.newest_image()
        self.replicas = replicas_of(cluster)
        self.states: dict[Key, PartitionImage | None] = {}
        """What the newest image says of the partitions of `replicas`."""
        if image is not None:
            for _, _, partition, _, key in self.replicas:
                if key not in self.states:
                    self.states[key] = image.topics.partition_by_id(partition.topic_id, key[1])
        self.groups: list[tuple[str, int, ConsumerGroup]] = []
        """Node, leader epoch and group of every consumer group that is coordinated somewhere."""
        self.coordinators: list[tuple[str, Any, Partition | None]] = []
        """Of every kind: the node, the coordinator, and the partition that its state lies in."""
        for node in cluster.brokers:
            self.groups += ((node.name, epoch, group) for epoch, group in consumer_groups_of(node))
            services = services_of(node)
            for host in coordinators_of(node):
                assert services is not None
                partition = services.partitions.get(host.tp.topic, host.tp.partition)
                self.coordinators.append((node.name, host, partition))
