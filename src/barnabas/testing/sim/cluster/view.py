"""Value: where in a production node things are to be found: the only file of the simulation that knows.

Nothing here changes anything, and every function gives None (or nothing) for a node that is down or not that far yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.server.coordination.context import CoordinatorContext
    from barnabas.server.coordination.group.consumer.group import ConsumerGroup
    from barnabas.server.coordination.group.shard import GroupShard
    from barnabas.server.metadata.image.cluster import ClusterImage
    from barnabas.server.raft.machine.raft import RaftMachine
    from barnabas.server.replication.partition import Partition
    from barnabas.server.storage.log import Log
    from barnabas.testing.sim.node import SimNode


def image_of(host: SimNode) -> ClusterImage | None:
    """The newest committed image of a running node."""
    parts = _parts(host)
    return None if parts is None else parts.publisher.image


def raft_of(host: SimNode) -> RaftMachine | None:
    """The replica of the metadata quorum."""
    parts = _parts(host)
    driver = None if parts is None else parts.metadata._driver
    return None if driver is None else driver._machine


def told_epoch_of(host: SimNode) -> int:
    """The newest epoch of the quorum that this process has on its disk and acts in. Its replica decides ahead of its
    disk: what it is in an epoch that was never written, nobody has ever heard of."""
    parts = _parts(host)
    return -1 if parts is None else int(parts.metadata._handover.leader.epoch)


def quorum_of(host: SimNode) -> tuple[RaftMachine, tuple[object, ...]] | None:
    """The replica of the metadata quorum, and what tells whether anything about it has changed: epoch, role, high
    watermark, told epoch. Asked after every step of the loop, and therefore in one piece."""
    node: Any = host.node
    parts = None if node is None else node.parts
    if parts is None:
        return None
    metadata = parts.metadata
    driver = metadata._driver
    if driver is None:
        return None
    machine = driver._machine
    quorum = machine._q
    told = metadata._handover.leader.epoch
    return machine, (quorum.epoch, quorum.state.__class__, quorum.high_watermark, told)


def partitions_of(host: SimNode) -> Iterator[Partition]:
    """Every replica that a broker hosts, as it is now."""
    services = services_of(host)
    if services is not None:
        yield from list(services.partitions)


def broker_epoch_of(host: SimNode) -> int:
    """Of the running process's registration; -1 before."""
    node: Any = host.node
    broker = None if node is None else node.broker
    return -1 if broker is None else int(broker.broker_epoch)


def services_of(host: SimNode) -> Any | None:
    """What the handlers of a broker work with."""
    node: Any = host.node
    broker = None if node is None else node.broker
    return None if broker is None else broker._services


def metadata_log_of(host: SimNode) -> Log | None:
    """The log under the quorum's replica."""
    parts = _parts(host)
    return None if parts is None else parts.metadata._log._log


def consumer_groups_of(host: SimNode) -> Iterator[tuple[int, ConsumerGroup]]:
    """(leader epoch, group) of the groups of the new protocol that this broker coordinates, as far as it has loaded
    what was committed before."""
    from barnabas.server.coordination.group.consumer.group import ConsumerGroup

    services = services_of(host)
    if services is None:
        return
    for shard_host in list(services.groups._runtime._active.values()):
        if shard_host.caught_up:
            for group in shard_host.shard.table.committed_groups():
                if isinstance(group, ConsumerGroup):
                    yield shard_host.leader_epoch, group


def coordinators_of(host: SimNode) -> Iterator[CoordinatorContext[Any]]:
    """What this broker coordinates, groups, transactions and share groups, as far as it is loaded."""
    services = services_of(host)
    if services is not None:
        for coordinator in (services.groups, services.transactions, services.shares.coordinator):
            yield from list(coordinator._runtime._active.values())


def group_coordinator_of(host: SimNode, group_id: str) -> CoordinatorContext[GroupShard] | None:
    """If this broker coordinates the group."""
    services = services_of(host)
    if services is None:
        return None
    found: CoordinatorContext[GroupShard] | None = services.groups._runtime._active.get(
        services.groups.partition_for(group_id)
    )
    return found


def _parts(host: SimNode) -> Any | None:
    node: Any = host.node
    return None if node is None else node.parts
