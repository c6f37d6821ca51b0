"""Codec: the metadata in JoinGroup and the assignment in SyncGroup for the protocol type "consumer".

    subscription = int16 version | ConsumerProtocolSubscription
    assignment   = int16 version | ConsumerProtocolAssignment

The classic protocol treats these bytes as opaque. The coordinator parses them to find the topics to which a group
subscribes (offset expiry, OffsetDelete), and to serve classic members in a consumer group (KIP-848 migration).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct as Packer
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.protocol.wire.codec import decode_prefix, encode
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
)

PROTOCOL_TYPE: Final = "consumer"
NEWEST_VERSION: Final = 3
_VERSION: Final = Packer(">h")


def version_of(data: Buffer) -> int:
    """The version of the bytes, at most the newest known version. Raises WireError."""
    if len(data) < _VERSION.size:
        raise WireError("a consumer subscription or assignment must begin with a version of two bytes")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise WireError(f"version {version} of a consumer subscription or assignment does not exist")
    return min(version, NEWEST_VERSION)


def parse_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """The decoded subscription. Raises WireError. Bytes after the known fields belong to a newer version and are
    ignored."""
    return decode_prefix(ConsumerProtocolSubscription, version_of(data), data, _VERSION.size)[0]


def subscribed_topics(subscriptions: Sequence[Buffer]) -> frozenset[str] | None:
    """All topics to which these members subscribe; None if a subscription cannot be parsed."""
    topics: set[str] = set()
    try:
        for data in subscriptions:
            version_of(data)
            # Version 0 is a prefix of all later versions, and contains the topics.
            topics.update(decode_prefix(ConsumerProtocolSubscription, 0, data, _VERSION.size)[0].topics)
    except WireError:
        return None
    return frozenset(topics)


def build_subscription(subscription: ConsumerProtocolSubscription, version: int = NEWEST_VERSION) -> bytes:
    return _VERSION.pack(version) + encode(subscription, version)


def build_assignment(partitions: Mapping[str, Sequence[int]], version: int, user_data: bytes | None = None) -> bytes:
    """The bytes of an assignment, with the topics sorted, as a consumer's assignor would write them."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolTopicPartition(topic=topic, partitions=list(partitions[topic]))
            for topic in sorted(partitions)
        ],
        user_data=user_data,
    )
    return _VERSION.pack(version) + encode(assignment, version)


def parse_assignment(data: Buffer) -> dict[str, list[int]]:
    """The assigned partitions by topic. Raises WireError."""
    message, _ = decode_prefix(ConsumerProtocolAssignment, version_of(data), data, _VERSION.size)
    return {entry.topic: list(entry.partitions) for entry in message.assigned_partitions}
