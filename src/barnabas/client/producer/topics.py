"""Shell: the topics of a producer: the queues of their partitions, and the partition of records without keys."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.producer.accumulator import Accumulator, PartitionQueue
from barnabas.client.producer.partitioner import StickyPartitioner


class TopicQueues:
    """The queues of one topic's partitions, according to metadata `version`."""

    __slots__ = ("columns_turn", "count", "queues", "sticky", "used_at", "version")

    def __init__(self, queues: list[PartitionQueue], sticky: StickyPartitioner, version: int) -> None:
        self.queues = queues
        self.count = len(queues)
        self.sticky = sticky
        self.version = version
        self.used_at = math.inf
        """The loop time of the last record."""
        self.columns_turn = asyncio.Lock()
        """Serializes calls of `send_arrow`: one table after the other."""

    @property
    def is_settled(self) -> bool:
        """Whether no batch is queued or in flight."""
        return not any(queue.queue or queue.in_flight for queue in self.queues)


class ProducerTopics:
    """The topics to which records were sent. A topic with an old metadata version needs `refresh`.

    `unavailable` returns the brokers that accept no batches; `adaptive` is
    partitioner.adaptive.partitioning.enable."""

    def __init__(
        self, cluster: Cluster, accumulator: Accumulator, unavailable: Callable[[], Collection[int]], *, adaptive: bool
    ) -> None:
        self.states: dict[str, TopicQueues] = {}
        self._cluster = cluster
        self._accumulator = accumulator
        self._unavailable = unavailable
        self._adaptive = adaptive

    def knows(self, topic: str) -> bool:
        view = self._cluster.metadata.topics.get(topic)
        return view is not None and bool(view.partitions)

    async def learn(self, topic: str, deadline: float) -> None:
        """Fetch the topic's metadata. Raises KafkaError when that fails until the deadline."""
        await self._cluster.topic(topic, deadline=deadline, allow_auto_create=True)

    def refresh(self, topic: str) -> TopicQueues | None:
        """Update the topic from the present metadata. Returns None when the metadata lacks the topic."""
        metadata = self._cluster.metadata
        view = metadata.topics.get(topic)
        if view is None or not view.partitions:
            return None
        state = self.states.get(topic)
        if state is None or state.count != len(view.partitions):
            queues = [self._accumulator.queue(p.topic_partition) for p in view.partitions]
            sticky = state.sticky if state else StickyPartitioner(self._accumulator.batch_size, self._cluster.rng)
            state = self.states[topic] = TopicQueues(queues, sticky, metadata.version)
        state.version = metadata.version
        self._update_load(state)
        return state

    def on_availability(self) -> None:
        """Recompute the weights of partitions after the set of available brokers has changed."""
        for topic, state in self.states.items():
            if self.knows(topic):
                self._update_load(state)

    def on_progress(self) -> None:
        """Recompute the weights of partitions after batches were settled."""
        if self._adaptive:
            for state in self.states.values():
                if state.count > 1 and state.sticky.produced_bytes and self.knows(state.queues[0].partition.topic):
                    self._update_load(state)

    def _update_load(self, state: TopicQueues) -> None:
        """Give the partitioner the length of each queue, so that partitions of slow brokers, which have longer queues,
        get fewer records without keys (KIP-794)."""
        view = self._cluster.metadata.topics[state.queues[0].partition.topic]
        brokers = self._cluster.metadata.brokers
        avoided = self._unavailable() if self._adaptive else ()
        state.sticky.update_load(
            {
                p.partition: len(state.queues[p.partition].queue) if self._adaptive else 0
                for p in view.partitions
                if p.leader in brokers and p.leader not in avoided
            }
        )
