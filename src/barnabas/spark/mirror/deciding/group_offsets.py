"""Machine: which committed offsets of groups are written into the target cluster (`sync.group.offsets`).

A group that has members there, or may have had some a moment ago, is left alone: only groups that are empty, dead or
absent are written. Offsets are moved forward only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.client.values import GroupDescription, GroupListing, GroupState, OffsetAndMetadata
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.records import Checkpoint

_WRITABLE: Final = (GroupState.EMPTY, GroupState.DEAD)
_ABSENT: Final = (ErrorCode.GROUP_ID_NOT_FOUND,)
_CONSUMER_PROTOCOLS: Final = ("consumer", "")


def is_consumer_group(group: GroupListing) -> bool:
    """Whether a group of the source cluster commits offsets of topics as consumers do. Share groups and groups of
    Kafka Streams' own protocol do not."""
    return group.type.lower() in ("classic", "consumer", "") and group.protocol_type in _CONSUMER_PROTOCOLS


def may_write(found: GroupDescription | KafkaError | None) -> bool:
    """Whether the offsets of a group of the target cluster may be written."""
    if found is None:
        return True
    if isinstance(found, KafkaError):
        return found.code in _ABSENT
    return found.state in _WRITABLE and not found.members


def offsets_to_write(
    checkpoints: Mapping[TopicPartition, Checkpoint], present: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets that are ahead of those of the group in the target cluster, or are new there."""
    found = {}
    for partition in sorted(checkpoints):
        checkpoint = checkpoints[partition]
        now = present.get(partition)
        if now is None or now.offset < checkpoint.downstream:
            found[partition] = OffsetAndMetadata(checkpoint.downstream, checkpoint.metadata)
    return found
