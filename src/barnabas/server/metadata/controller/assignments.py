"""Machine: the replicas of new partitions, assigned manually or by the placer, and their records."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicId
from barnabas.core.rng import Rng
from barnabas.protocol.assign.placement import UsableBroker, place_replicas
from barnabas.server.metadata.controller.answers import RefusedError
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.topics import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from barnabas.server.metadata.records.topics import PartitionRecord


def check_manual_replicas(image: ClusterImage, replicas: Sequence[int], expected: int | None) -> None:
    """Raises RefusedError unless `replicas` are distinct registered brokers, at least one, and `expected` of them.
    `expected` is None if any number of replicas is allowed."""
    if not replicas:
        raise _bad("The manual partition assignment includes an empty replica list.")
    previous: int | None = None
    for broker in sorted(replicas):
        if broker not in image.brokers:
            raise _bad(f"The manual partition assignment includes broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise _bad(f"The manual partition assignment includes the broker {broker} more than once.")
        previous = broker
    if expected is not None and len(replicas) != expected:
        raise _bad(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {expected} replica(s)."
        )


def active_replicas(image: ClusterImage, replicas: Sequence[int]) -> list[int]:
    """The replicas that can be in the first ISR: neither fenced nor in controlled shutdown."""
    return [broker for broker in replicas if image.brokers.is_active(broker)]


def in_sync_of_manual(image: ClusterImage, replicas: Sequence[int], index: int) -> list[int]:
    """The first ISR of the manually assigned partition `index`. Raises RefusedError when all brokers of the partition
    are fenced or in controlled shutdown."""
    in_sync = active_replicas(image, replicas)
    if not in_sync:
        raise _bad(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )
    return in_sync


def place(
    image: ClusterImage,
    partitions: int,
    replication_factor: int,
    rng: Rng,
    existing: Sequence[Sequence[int]] = (),
) -> list[tuple[int, ...]]:
    """Choose the replicas of `partitions` new partitions. `existing` are the replicas of the topic's present
    partitions.

    Raises KafkaError INVALID_REPLICATION_FACTOR if there are too few brokers, or a new partition would have only
    replicas on brokers that are fenced or in controlled shutdown."""
    brokers = [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in image.brokers
        if broker.cordoned_log_dirs is None or set(broker.log_dirs) - set(broker.cordoned_log_dirs)
    ]
    placed = place_replicas(brokers, partitions, replication_factor, rng, existing=existing)
    for replicas in placed:
        if not active_replicas(image, replicas):
            raise RefusedError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced or in controlled shutdown."
            )
    return placed


def new_partition(
    image: ClusterImage, topic_id: TopicId, index: int, replicas: Sequence[int], in_sync: Sequence[int]
) -> PartitionRecord:
    """The record of a new partition. Its leader is the first replica of the ISR."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(in_sync),
        leader=in_sync[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(image, broker) for broker in replicas],
    )


def default_directory(image: ClusterImage, broker_id: int) -> UUID:
    """The log directory of a new replica: the broker's directory that is not cordoned, if there is exactly one;
    otherwise UNASSIGNED, until the broker reports its choice (KIP-858). MIGRATING if the broker has registered no
    directories."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.log_dirs:
        return MIGRATING_DIRECTORY
    cordoned = broker.cordoned_log_dirs or ()
    usable = [directory for directory in broker.log_dirs if directory not in cordoned]
    return usable[0] if len(usable) == 1 else UNASSIGNED_DIRECTORY


def _bad(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
