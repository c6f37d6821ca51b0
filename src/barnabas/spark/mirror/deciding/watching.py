"""Machine: notices what Kafka's connector passes over in silence: a topic that was deleted and created anew, records
that retention deleted before they were copied, and a source log that is shorter than what was copied of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.spark.mirror.deciding.topics import SeenTopic


class LossKind(Enum):
    RECREATED = "recreated"
    DELETED = "deleted"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that makes the copy differ from its source for ever."""

    kind: LossKind
    topic: str
    partition: int = -1
    position: int = -1
    """The next upstream offset that was to be copied."""
    bound: int = -1
    """The log start offset of the source (DELETED), or its end (TRUNCATED)."""

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        match self.kind:
            case LossKind.RECREATED:
                return (
                    f"topic {self.topic} of the source cluster was deleted and created anew; its copy has the records"
                    " of the former topic"
                )
            case LossKind.DELETED:
                return (
                    f"{self.bound - self.position} offsets of {where} were deleted in the source cluster before they"
                    f" were copied: the copy is at {self.position}, the log begins at {self.bound}"
                )
            case LossKind.TRUNCATED:
                return (
                    f"the log of {where} in the source cluster ends at {self.bound}, but it was copied up to"
                    f" {self.position}: the topic was created anew, or an unclean election lost records"
                )


class SourceWatch:
    """Compares what the source cluster says now with what was known."""

    def __init__(self, topic_ids: Mapping[str, UUID] | None = None) -> None:
        self._topic_ids = dict(topic_ids or {})

    @property
    def topic_ids(self) -> Mapping[str, UUID]:
        """The topic ids to remember for the next start."""
        return self._topic_ids

    def topics_seen(self, topics: Iterable[SeenTopic]) -> list[Loss]:
        """The topics that are copied. A topic that is missing is not forgotten: it may come back with another id."""
        losses = []
        for topic in topics:
            known = self._topic_ids.get(topic.name)
            if topic.topic_id == NO_TOPIC_ID:
                continue  # brokers before Kafka 2.8 have no topic ids
            if known is not None and known != topic.topic_id:
                losses.append(Loss(LossKind.RECREATED, topic.name))
            self._topic_ids[topic.name] = topic.topic_id
        return losses


def lost_ranges(
    positions: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[Loss]:
    """Compares positions (the next upstream offset to copy) with the logs of the source cluster.

    An emptied log (start and end beyond the position) is a deletion, too.
    """
    losses = []
    for partition in sorted(positions):
        position = positions[partition]
        start, end = starts.get(partition), ends.get(partition)
        if end is not None and position > end:
            losses.append(Loss(LossKind.TRUNCATED, partition.topic, partition.partition, position, end))
        elif start is not None and position < start:
            losses.append(Loss(LossKind.DELETED, partition.topic, partition.partition, position, start))
    return losses
