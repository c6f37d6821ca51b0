"""Shell: the settings that slow down moves of replicas, as kafka-reassign-partitions sets and clears them (KIP-73)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.values import ConfigChange, ConfigResource

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"


async def set_throttle(
    admin: AsyncAdmin,
    current: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int,
) -> None:
    """Old replicas send, and new ones take, at most so much together, broker by broker."""
    from barnabas.client.values import ConfigChange, ConfigResource, ConfigResourceType

    sending: dict[str, list[str]] = defaultdict(list)
    taking: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for tp, target in planned.items():
        before = current.get(tp, ())
        sending[tp.topic] += [f"{tp.partition}:{broker}" for broker in before]
        taking[tp.topic] += [f"{tp.partition}:{broker}" for broker in target if broker not in before]
        brokers.update(before, target)
    changes = {
        ConfigResource(ConfigResourceType.BROKER, str(broker)): [
            ConfigChange(name, str(bytes_per_second)) for name in RATES
        ]
        for broker in sorted(brokers)
    }
    for topic in sorted(sending):
        changes[ConfigResource(ConfigResourceType.TOPIC, topic)] = [
            ConfigChange(LEADERS, ",".join(sending[topic])),
            ConfigChange(FOLLOWERS, ",".join(taking[topic])),
        ]
    await _apply(admin, changes)


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


async def _apply(admin: AsyncAdmin, changes: Mapping[ConfigResource, list[ConfigChange]]) -> None:
    for error in (await admin.incremental_alter_configs(changes)).values():
        if error is not None:
            raise error
