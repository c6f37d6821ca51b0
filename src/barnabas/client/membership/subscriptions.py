"""Codec: the subscriptions and assignments inside JoinGroup and SyncGroup of classic groups; and assignors by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.core.config import ConfigError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.assign.member import Assignor, MemberSubscription
from barnabas.protocol.assign.table import CLASSIC_ASSIGNORS
from barnabas.protocol.wire.codec import decode, encode
from barnabas.protocol.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
)

SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 0
_VERSION_BYTES: Final = 2

_JAVA_NAMES: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def encode_subscription(subscription: MemberSubscription) -> bytes:
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=_by_topic(subscription.owned),
        generation_id=-1 if subscription.generation is None else subscription.generation,
        rack_id=subscription.rack,
    )
    return SUBSCRIPTION_VERSION.to_bytes(_VERSION_BYTES, "big") + encode(message, SUBSCRIPTION_VERSION)


def decode_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Decode a subscription. Raises WireError."""
    message = decode(ConsumerProtocolSubscription, _version(data), data, _VERSION_BYTES)
    owned = tuple(TopicPartition(t.topic, index) for t in message.owned_partitions for index in t.partitions)
    generation = message.generation_id if message.generation_id >= 0 else None
    return MemberSubscription(tuple(message.topics), owned, generation, instance_id, message.rack_id, message.user_data)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    message = ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions))
    return ASSIGNMENT_VERSION.to_bytes(_VERSION_BYTES, "big") + encode(message, ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Decode an assignment; empty bytes are an empty one. Raises WireError."""
    if len(data) < _VERSION_BYTES:
        return []
    message = decode(ConsumerProtocolAssignment, _version(data), data, _VERSION_BYTES)
    return [TopicPartition(t.topic, index) for t in message.assigned_partitions for index in t.partitions]


def build_assignors(names: Iterable[str]) -> list[Assignor]:
    """Assignors by the names of `partition.assignment.strategy`, Java's class names included. Raises ConfigError."""
    found: list[Assignor] = []
    for given in names:
        name = _JAVA_NAMES.get(given.removeprefix("class "), given)
        assignor = CLASSIC_ASSIGNORS.get(name)
        if assignor is None:
            raise ConfigError(
                f"partition.assignment.strategy {given!r} is unknown; there are {', '.join(CLASSIC_ASSIGNORS)}, or"
                " give an Assignor of your own to the consumer (assignors=[...])."
            )
        found.append(assignor)
    if not found:
        raise ConfigError("partition.assignment.strategy is empty; the default is range,cooperative-sticky.")
    return found


def _version(data: bytes) -> int:
    """The version to decode. Newer versions only add fields at the end, so they are decoded as the newest known one."""
    return min(max(int.from_bytes(data[:_VERSION_BYTES], "big", signed=True), 0), SUBSCRIPTION_VERSION)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[ConsumerProtocolTopicPartition]:
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return [ConsumerProtocolTopicPartition(topic=topic, partitions=indexes) for topic, indexes in topics.items()]
