"""Machine: checkpoints: what a group's committed offsets in the source cluster are in the target cluster.

    topic of the source cluster    its counterpart in the target cluster    translated by
    orders, copied to the target   A.orders                                 the syncs and runs of this pair
    B.orders, a copy from there    orders                                   those of the opposite pair, in reverse

The second line is our own: Kafka's connector has no syncs for it. With it, groups can go back after a failover.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.client.values import OffsetAndMetadata
from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.naming.filters import TopicSelection
from barnabas.spark.mirror.offsets.translation import Translator
from barnabas.spark.mirror.records import Checkpoint

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class GroupTranslation:
    """Translates the offsets of groups in one direction. `reverse` is the translator of the opposite pair, if that pair
    exists and reverse checkpoints are wanted."""

    selection: TopicSelection
    translator: Translator
    reverse: Translator | None = None

    def counterpart(self, topic: str) -> str | None:
        """The topic of the target cluster that has the records of a source topic; None for topics that are not
        mirrored."""
        if self._came_from_target(topic):
            return self.selection.policy.upstream_topic(topic) if self.reverse is not None else None
        return self.selection.target_of(topic) if self.selection.selects(topic) else None

    def checkpoint(self, group: str, partition: TopicPartition, committed: OffsetAndMetadata) -> Checkpoint | None:
        """None if the partition is not mirrored or its offset cannot be translated."""
        topic = self.counterpart(partition.topic)
        if topic is None or committed.offset < 0:
            return None
        counterpart = TopicPartition(topic, partition.partition)
        if self._came_from_target(partition.topic):
            assert self.reverse is not None
            found = self.reverse.upstream(counterpart, committed.offset)
        else:
            found = self.translator.downstream(partition, committed.offset)
        if found is None or found < 0:
            return None
        return Checkpoint(group, counterpart, committed.offset, found, committed.metadata)

    def _came_from_target(self, topic: str) -> bool:
        policy = self.selection.policy
        upstream = policy.upstream_topic(topic)
        return upstream is not None and upstream != topic and policy.topic_source(topic) == self.selection.target_alias


class Checkpoints:
    """The newest checkpoint of each group and partition: those of the topic, and those that were emitted since."""

    def __init__(self) -> None:
        self._newest: dict[str, dict[TopicPartition, Checkpoint]] = {}

    def loaded(self, checkpoint: Checkpoint) -> None:
        """A record of the checkpoints topic, in the order of the topic."""
        self._newest.setdefault(checkpoint.group, {})[checkpoint.partition] = checkpoint

    def removed(self, group: str, partition: TopicPartition) -> None:
        self._newest.get(group, {}).pop(partition, None)

    def newest(self, group: str) -> Mapping[TopicPartition, Checkpoint]:
        return self._newest.get(group, {})

    def due(self, group: str, offsets: Offsets, translation: GroupTranslation) -> list[Checkpoint]:
        """The checkpoints to emit: those whose upstream offset went back or whose downstream offset went forward."""
        found = []
        for partition in sorted(offsets):
            checkpoint = translation.checkpoint(group, partition, offsets[partition])
            if checkpoint is not None and self._is_due(checkpoint):
                found.append(checkpoint)
        return found

    def emitted(self, checkpoints: list[Checkpoint]) -> None:
        for checkpoint in checkpoints:
            self.loaded(checkpoint)

    def _is_due(self, checkpoint: Checkpoint) -> bool:
        last = self._newest.get(checkpoint.group, {}).get(checkpoint.partition)
        return last is None or checkpoint.upstream < last.upstream or checkpoint.downstream > last.downstream
