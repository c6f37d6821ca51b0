"""Shell: where the replicas of a cluster lie, and where those that are being moved will lie."""

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
class Placement:
    """Value: the replicas of every partition, and the moves under way."""

    replicas: Mapping[TopicPartition, Replicas]
    """Of a partition that moves: the old and the new ones."""
    racks: Mapping[int, str | None]
    """Broker -> rack, of the brokers that are up."""
    under_way: Mapping[TopicPartition, Reassignment]

    @property
    def targets(self) -> dict[TopicPartition, Replicas]:
        """The replicas when everything has moved: what further moves are planned from."""
        return {**self.replicas, **{tp: move.target for tp, move in self.under_way.items()}}

    @property
    def originals(self) -> dict[TopicPartition, Replicas]:
        """The replicas as they were before the moves under way: what calling them off would lead to."""
        return {**self.replicas, **{tp: move.original for tp, move in self.under_way.items()}}


async def read_moving_placement(admin: AsyncAdmin) -> Placement:
    """Of the whole cluster."""
    # Asked for before and after: a move may begin or end while the topics are described.
    before = await admin.list_partition_reassignments()
    replicas, racks = await read_placement(admin)
    after = await admin.list_partition_reassignments()
    ended = {tp: move.target for tp, move in before.items() if tp in replicas and tp not in after}
    return Placement({**replicas, **ended}, racks, {tp: move for tp, move in after.items() if tp in replicas})


async def read_placement(admin: AsyncAdmin) -> tuple[dict[TopicPartition, Replicas], dict[int, str | None]]:
    """(partition -> replicas, broker -> rack) of the whole cluster. Those that move have old and new replicas."""
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
