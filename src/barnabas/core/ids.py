"""Table: the types of ids, the ids with a special meaning, and the names of internal topics."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from operator import attrgetter
from typing import NewType
from uuid import UUID

from msgspec import Struct

BrokerId = NewType("BrokerId", int)

TopicId = UUID
NO_TOPIC_ID = UUID(int=0)
METADATA_TOPIC_ID = UUID(int=1)
"""Kafka reserves this id for `__cluster_metadata`."""

_NUMBER = attrgetter("int")

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_LEADER = -1
CONSUMER_REPLICA_ID = -1

METADATA_TOPIC = "__cluster_metadata"
CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
MIRROR_STATE_TOPIC = "__mirror_state"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
"""The topic with the events of remote segments (KIP-405). As in Kafka it is no internal topic: brokers write it as
clients do."""
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC, MIRROR_STATE_TOPIC})
"""The topics that only coordinators write."""


def sorted_ids(ids: Iterable[TopicId]) -> list[TopicId]:
    """The ids in their order. A comparison of two UUIDs is a call of a Python function; this compares integers."""
    return sorted(ids, key=_NUMBER)


class TopicPartition(Struct, frozen=True, order=True):
    """One partition, by topic name; prints as Kafka's directory name, `topic-partition`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(Struct, frozen=True, order=True):
    """One partition, by topic id."""

    topic_id: TopicId
    partition: int


def uuid_to_text(value: UUID) -> str:
    """Kafka's text form of a UUID: 22 characters of unpadded URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """The inverse of `uuid_to_text`. Raises ValueError for anything that is not 16 bytes."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a Kafka UUID: expected 22 characters of base64")
    return UUID(bytes=raw)
