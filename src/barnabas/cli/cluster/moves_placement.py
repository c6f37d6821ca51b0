"""Shell: reads which brokers hold the replicas of each partition, and which reassignments are under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.reassignments import Reassignment

Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterPlacement:
    """Value: the replicas of every partition, and the reassignments under way."""

    replicas: Mapping[TopicPartition, Replicas]
    """For a partition that is being reassigned: both the old and the new replicas."""
    racks: Mapping[int, str | None]
    """The rack of each broker that is running; None if it has no rack."""
    under_way: Mapping[TopicPartition, Reassignment]

    @property
    def targets(self) -> dict[TopicPartition, Replicas]:
        """The replicas after all reassignments have finished. Further moves are planned from these."""
        return {**self.replicas, **{tp: move.target for tp, move in self.under_way.items()}}

    @property
    def originals(self) -> dict[TopicPartition, Replicas]:
        """The replicas before the reassignments began. Cancelling the reassignments would restore these."""
        return {**self.replicas, **{tp: move.original for tp, move in self.under_way.items()}}


async def read_moving_placement(admin: AsyncAdmin) -> ClusterPlacement:
    """Read the placement of all partitions of the cluster."""
    # The reassignments are listed before and after, because one may begin or end while the topics are described.
    before = await admin.list_partition_reassignments()
    replicas, racks = await read_placement(admin)
    after = await admin.list_partition_reassignments()
    ended = {tp: move.target for tp, move in before.items() if tp in replicas and tp not in after}
    return ClusterPlacement({**replicas, **ended}, racks, {tp: move for tp, move in after.items() if tp in replicas})


async def read_placement(admin: AsyncAdmin) -> tuple[dict[TopicPartition, Replicas], dict[int, str | None]]:
    """(partition -> replicas, broker -> rack) of the whole cluster. A partition that is being reassigned has its old
    and its new replicas.
    """
    from barnabas.core.errors import KafkaError

    cluster = await admin.describe_cluster()
    names = [listing.name for listing in await admin.list_topics(include_internal=True)]
    current: dict[TopicPartition, Replicas] = {}
    for view in (await admin.describe_topics(names)).values():
        if isinstance(view, KafkaError):
            raise view
        for index, partition in enumerate(view.partitions):
            current[TopicPartition(view.name, index)] = tuple(partition.replicas)
    return dict(sorted(current.items())), {b.broker_id: b.rack for b in cluster.brokers}
