"""Shell: the settings that slow down moves of replicas, as kafka-reassign-partitions sets and clears them (KIP-73)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.reassignments import Reassignment
    from barnabas.client.values import ConfigChange, ConfigResource

Changes = dict["ConfigResource", list["ConfigChange"]]

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"


async def set_throttle(
    admin: AsyncAdmin,
    current: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int,
) -> None:
    """Old replicas send, and new ones take, at most so much together, broker by broker. Moves under way join in, as in
    Kafka: a topic has one list for all its partitions, and a broker one rate. `current` are the replicas before these
    moves; those of a partition that is being moved already are known better here.
    """
    await _apply(admin, _throttling(current, planned, await admin.list_partition_reassignments(), bytes_per_second))


def _throttling(
    current: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    under_way: Mapping[TopicPartition, Reassignment],
    bytes_per_second: int,
) -> Changes:
    """The settings for these moves and those under way."""
    from barnabas.client.values import ConfigChange, ConfigResource

    sending: dict[str, list[str]] = defaultdict(list)
    taking: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for tp in sorted({*under_way, *planned}):
        before = under_way[tp].original if tp in under_way else current.get(tp, ())
        target = planned[tp] if tp in planned else under_way[tp].target
        sending[tp.topic] += [f"{tp.partition}:{broker}" for broker in sorted(before)]
        taking[tp.topic] += [f"{tp.partition}:{broker}" for broker in sorted({*target} - {*before})]
        brokers.update(before, target)
    changes = {}
    for topic in sorted(sending):
        changes[ConfigResource.topic(topic)] = [
            ConfigChange(LEADERS, ",".join(sending[topic])),
            ConfigChange(FOLLOWERS, ",".join(taking[topic])),
        ]
    for broker in sorted(brokers):
        changes[ConfigResource.broker(broker)] = [ConfigChange(name, str(bytes_per_second)) for name in RATES]
    return changes


async def clear_throttle(admin: AsyncAdmin, moved: Iterable[TopicPartition]) -> None:
    """Full speed again: every broker's rates, and the lists of these topics."""
    from barnabas.client.values import AlterOp, ConfigChange, ConfigResource, ConfigResourceType

    changes = {
        ConfigResource(ConfigResourceType.BROKER, str(broker.broker_id)): [
            ConfigChange(name, None, AlterOp.DELETE) for name in RATES
        ]
        for broker in (await admin.describe_cluster()).brokers
    }
    for topic in sorted({tp.topic for tp in moved}):
        changes[ConfigResource(ConfigResourceType.TOPIC, topic)] = [
            ConfigChange(name, None, AlterOp.DELETE) for name in (LEADERS, FOLLOWERS)
        ]
    await _apply(admin, changes)


async def _apply(admin: AsyncAdmin, changes: Changes) -> None:
    """A broker that is not known any more keeps what it has: nobody can change it, and it moves nothing."""
    for error in (await admin.incremental_alter_configs(changes)).values():
        if error is not None and error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise error
