"""Value: functions that read the parts of a running production node. Only this file of the simulator knows the
attributes under which a node keeps its parts.

No function changes the node. Every function returns None, or an empty result, for a node that is down or has not yet
created the part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from barnabas.core.ids import TopicPartition
    from barnabas.server.coordination.context import CoordinatorContext
    from barnabas.server.coordination.group.consumer.group import ConsumerGroup
    from barnabas.server.coordination.group.shard import GroupShard
    from barnabas.server.coordination.transaction.state import TransactionMetadata
    from barnabas.server.links.coordination.values import MirrorId, MirrorStored
    from barnabas.server.links.fetching.task import MirrorTask
    from barnabas.server.links.fetching.values import StoredMirror
    from barnabas.server.metadata.controller.sessions import BrokerSessions
    from barnabas.server.metadata.image.cluster import ClusterImage
    from barnabas.server.raft.machine.raft import RaftMachine
    from barnabas.server.replication.partition import Partition
    from barnabas.server.replication.rules.leader import LeaderState
    from barnabas.server.storage.log import Log
    from barnabas.testing.sim.node import SimNode


class KeptBytes(NamedTuple):
    """What a broker keeps for its clients."""

    requests: int
    """Complete requests that wait."""
    request_bytes: int
    """The bytes of requests: those that wait, that are handled, and that have arrived in part; 0 without
    queued.max.request.bytes."""
    unsent_bytes: int
    """The bytes of responses that clients have not received."""


class KeptMemory(NamedTuple):
    """What a broker keeps for its clients, as its totals say and as its connections do, and the largest parts."""

    counted: KeptBytes
    found: KeptBytes
    connections: int
    most_request_bytes: int
    request_bytes_max: int
    most_unsent_bytes: int
    unsent_bytes_max: int


def image_of(host: SimNode) -> ClusterImage | None:
    """The newest committed image of a running node."""
    parts = _parts(host)
    return None if parts is None else parts.publisher.image


def raft_of(host: SimNode) -> RaftMachine | None:
    """The Raft machine of the node's replica of the metadata quorum."""
    parts = _parts(host)
    driver = None if parts is None else parts.metadata._driver
    return None if driver is None else driver._machine


def durable_epoch_of(host: SimNode) -> int:
    """The newest epoch of the quorum that is durable on the node's disk. The Raft machine may already be in a later
    epoch; the node sends no messages of that epoch before the epoch is durable."""
    parts = _parts(host)
    return -1 if parts is None else int(parts.metadata._handover.leader.epoch)


def quorum_of(host: SimNode) -> tuple[RaftMachine, tuple[object, ...]] | None:
    """The Raft machine, and a tuple that changes when its epoch, role, high watermark or durable epoch changes. The
    function is called after every step of the loop, so it is one function for speed."""
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
    durable_epoch = metadata._handover.leader.epoch
    return machine, (quorum.epoch, quorum.state.__class__, quorum.high_watermark, durable_epoch)


def partitions_of(host: SimNode) -> Iterator[Partition]:
    """All replicas of a broker."""
    broker = broker_of(host)
    if broker is not None:
        yield from list(broker.partitions)


def broker_epoch_of(host: SimNode) -> int:
    """The broker epoch of the running process's registration; -1 before the registration."""
    node: Any = host.node
    broker = None if node is None else node.broker
    return -1 if broker is None else int(broker.broker_epoch)


def broker_state_of(host: SimNode) -> str:
    """The name of the `BrokerState` of the running process; empty if there is no broker."""
    node: Any = host.node
    broker = None if node is None else node.broker
    return "" if broker is None else str(broker._lifecycle.state.name)


def sessions_of(host: SimNode) -> BrokerSessions | None:
    """The sessions of all brokers with this node, if it is the active controller."""
    node: Any = host.node
    controller = None if node is None else node.controller
    return None if controller is None else controller.service.keeper.sessions


def decision_images_of(host: SimNode) -> tuple[ClusterImage, ClusterImage] | None:
    """The image on which the controller of this node would decide next, and the newest committed image. None if the
    node has no controller, or if proposals of the controller are not settled."""
    node: Any = host.node
    controller = None if node is None else node.controller
    if controller is None or controller.service._driver.pending:
        return None
    return controller.service._driver.image, controller.service._image()


def leader_state_of(host: SimNode, tp: TopicPartition) -> LeaderState | None:
    """The state of the leader of a partition, if this broker leads the partition."""
    return next((partition.leader for partition in partitions_of(host) if partition.name == tp), None)


def transactions_of(host: SimNode) -> Iterator[TransactionMetadata]:
    """The transactions of the transaction coordinators of this broker, in their newest states."""
    broker = broker_of(host)
    if broker is not None:
        for context in list(broker.transactions._runtime._active.values()):
            yield from list(context.shard.transactions.values())


def has_committed_all(host: SimNode) -> bool:
    """Whether every record in the metadata log of this node is committed."""
    machine, log = raft_of(host), metadata_log_of(host)
    return machine is not None and log is not None and machine.high_watermark >= log.log_end_offset


def broker_of(host: SimNode) -> Any | None:
    """The broker of a node, with its partitions and coordinators."""
    node: Any = host.node
    return None if node is None else node.broker


def mirror_tasks_of(host: SimNode) -> Iterator[MirrorTask]:
    """The mirror partitions that this broker leads."""
    node: Any = host.node
    broker = None if node is None else node.broker
    if broker is not None:
        yield from list(broker._links.mirrors._tasks.values())


def stored_mirror_of(task: MirrorTask) -> StoredMirror | None:
    """The newest state of a mirror partition that its leader has stored or is about to store."""
    return task._mirror.current


def mirror_states_of(host: SimNode) -> Iterator[tuple[MirrorId, MirrorStored]]:
    """The committed states of the mirror partitions of the links that this broker coordinates."""
    node: Any = host.node
    broker = None if node is None else node.broker
    for context in [] if broker is None else list(broker._links.coordinator._runtime._active.values()):
        if context.caught_up:
            yield from context.shard.mirrors.committed().items()


def listener_of(protocol: Any) -> Any:
    """The listener that has accepted a connection, by the protocol object of the connection."""
    return protocol._owner


def kept_memory_of(host: SimNode, connections: Sequence[Any]) -> KeptMemory | None:
    """What a running broker keeps for its clients; `connections` are those that were accepted."""
    node: Any = host.node
    broker = None if node is None else node.broker
    if broker is None:
        return None
    budget = broker._budget
    mine = [connection for connection in connections if connection._owner.budget is budget]
    waiting = [connection._waiting_bytes for connection in mine]
    unsent = [
        connection._transport.get_write_buffer_size() + connection._outgoing_bytes
        for connection in mine
        if not connection.closing
    ]
    held = [connection._in_flight_bytes + connection._frames.reserved_bytes for connection in mine]
    found = KeptBytes(
        sum(len(connection._waiting) for connection in mine),
        sum(waiting) + sum(held) if budget.counts_bytes else 0,
        sum(unsent),
    )
    limits = [connection._owner.limits for connection in mine]
    return KeptMemory(
        KeptBytes(budget.requests, budget.bytes if budget.counts_bytes else 0, budget.unsent),
        found,
        len(mine),
        max(waiting, default=0),
        max((one.socket_request_max_bytes for one in limits), default=0),
        max(unsent, default=0),
        max((one.write_buffer_bytes for one in limits), default=0),
    )


def is_over(connection: Any) -> bool:
    """Whether an accepted connection has ended and keeps nothing, as far as it knows."""
    return connection.closing and connection._counted == (0, 0) and not connection._in_flight_bytes


def metadata_log_of(host: SimNode) -> Log | None:
    """The metadata log of the node's replica of the quorum."""
    parts = _parts(host)
    return None if parts is None else parts.metadata._log._log


def consumer_groups_of(host: SimNode) -> Iterator[tuple[int, ConsumerGroup]]:
    """The leader epoch and the group, for each group of the consumer protocol that this broker coordinates and has
    loaded."""
    from barnabas.server.coordination.group.consumer.group import ConsumerGroup

    broker = broker_of(host)
    if broker is None:
        return
    for shard_host in list(broker.groups._runtime._active.values()):
        if shard_host.caught_up:
            for group in shard_host.shard.table.committed_groups():
                if isinstance(group, ConsumerGroup):
                    yield shard_host.leader_epoch, group


def coordinators_of(host: SimNode) -> Iterator[CoordinatorContext[Any]]:
    """The loaded coordinators of this broker for groups, transactions, share groups and links."""
    broker = broker_of(host)
    if broker is not None:
        links = broker._links.coordinator
        for coordinator in (broker.groups, broker.transactions, broker.shares.coordinator, links):
            yield from list(coordinator._runtime._active.values())


def group_coordinator_of(host: SimNode, group_id: str) -> CoordinatorContext[GroupShard] | None:
    """The coordinator of the group; None if this broker does not coordinate it."""
    broker = broker_of(host)
    if broker is None:
        return None
    found: CoordinatorContext[GroupShard] | None = broker.groups._runtime._active.get(
        broker.groups.partition_for(group_id)
    )
    return found


def _parts(host: SimNode) -> Any | None:
    node: Any = host.node
    return None if node is None else node.parts
