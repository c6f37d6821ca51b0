"""Value: the common input of both sticky algorithms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from barnabas.core.ids import TopicPartition


class Racks(Struct, frozen=True):
    """The racks of members and of partitions. `consumers` and `partitions` are empty unless racks matter (KIP-881)."""

    consumers: Mapping[str, str]
    partitions: Mapping[TopicPartition, frozenset[str]]
    near: Mapping[TopicPartition, int]
    """For each partition, the number of members in one of its racks. Empty if no member has sent its rack."""

    def mismatch(self, consumer: str, partition: TopicPartition) -> bool:
        rack = self.consumers.get(consumer)
        return rack is not None and rack not in self.partitions.get(partition, ())

    def scarcest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return sorted(partitions, key=lambda tp: self.near.get(tp, 0)) if self.near else partitions

    def next_consumer(self, partition: TopicPartition, consumers: Sequence[str], first: int) -> int:
        """The index of the next consumer in one of the partition's racks, or -1 if there is none.

        The search begins at index `first`, and continues at index 0 after the last consumer.
        """
        racks = self.partitions.get(partition)
        if not racks:
            return -1
        for i in range(len(consumers)):
            index = (first + i) % len(consumers)
            if self.consumers.get(consumers[index]) in racks:
                return index
        return -1


class StickyInput(Struct, frozen=True):
    topics: Mapping[str, int]
    subscriptions: Mapping[str, tuple[str, ...]]
    owned: dict[str, list[TopicPartition]]
    """The owned partitions in Java's iteration order. The algorithms modify this mapping."""
    racks: Racks

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [TopicPartition(topic, p) for topic in topics for p in range(self.topics[topic])]
