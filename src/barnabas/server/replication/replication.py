"""Shell: replication between brokers: fetchers for the partitions that follow, ISRs of the partitions that lead.

Create one `BrokerReplication` per broker before `Partitions`, which need its context and notify it of role changes.
Subscribe `BrokerReplication` to images after `Partitions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from barnabas.core.clock import Clock
from barnabas.core.hashing import java_string_hash
from barnabas.core.ids import NO_LEADER
from barnabas.core.rng import Rng
from barnabas.server.metadata.image.cluster import ClusterImage, ResourceType
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.context import ReplicationContext
from barnabas.server.replication.fetcher import ReplicaFetcher
from barnabas.server.replication.flushing import Flusher
from barnabas.server.replication.isr_keeper import IsrKeeper
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.ports import PeerChannel
from barnabas.server.replication.rules.leader import IsrProposal
from barnabas.server.replication.rules.throttle import ReplicaThrottle

_LEADER_REPLICAS = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class BrokerReplication:
    """The replica fetchers and the ISR keeper of one broker. Implements `PartitionListener`."""

    def __init__(
        self,
        node_id: int,
        channel: PeerChannel,
        flusher: Flusher,
        config: Callable[[], ReplicationConfig],
        clock: Clock,
        rng: Rng,
    ) -> None:
        """`config` returns the values that are in effect at the moment of the call."""
        self._channel = channel
        self._current_config = config
        self._config = config()
        self._clock = clock
        self._rng = rng
        self.context = ReplicationContext(
            node_id=node_id,
            now_ms=lambda: int(clock.monotonic() * 1000),
            flush=flusher.request_all,
            sync_created=flusher.sync_created,
            replica_lag_time_max_ms=self._config.replica_lag_time_max_ms,
            leader_throttle=ReplicaThrottle(self._config.leader_replication_throttled_rate),
            follower_throttle=ReplicaThrottle(self._config.follower_replication_throttled_rate),
            active_brokers={},
        )
        self._isr_keeper = IsrKeeper(channel, self.context, rng)
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        """The fetchers, by leader id and fetcher id."""
        self._fetcher_of: dict[Partition, ReplicaFetcher] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self, partitions: Iterable[Partition]) -> None:
        """Fetch, and maintain the ISRs of `partitions`, until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._isr_keeper.run(partitions), name="isr keeper")
                for place, fetcher in list(self._fetchers.items()):
                    self._start(place, fetcher)
        finally:
            self._tasks = None

    # -- partitions ----------------------------------------------------------------------------------------------------

    def propose_isr(self, partition: Partition, proposal: IsrProposal) -> None:
        self._isr_keeper.propose(partition, proposal)

    def on_role_changed(self, partition: Partition) -> None:
        self._assign_fetcher(partition)

    def on_fetchable(self, partition: Partition) -> None:
        self._assign_fetcher(partition)

    # -- fetchers ----------------------------------------------------------------------------------------------------

    def _assign_fetcher(self, partition: Partition) -> None:
        """Give the partition to the fetcher of its leader, or to none if the partition has no leader to follow."""
        state = partition.follower
        wanted = None
        if state is not None and state.leader_id != NO_LEADER and partition.log is not None:
            wanted = self._fetcher(state.leader_id, self._fetcher_id(partition))
        present = self._fetcher_of.get(partition)
        if present is not None and present is not wanted:
            present.remove(partition)
            del self._fetcher_of[partition]
        if wanted is not None:
            self._fetcher_of[partition] = wanted
            wanted.add(partition)

    def _fetcher_id(self, partition: Partition) -> int:
        """The number of the fetcher for this partition (`AbstractFetcherManager.getFetcherId`)."""
        topic, index = partition.name.topic, partition.name.partition
        return abs(31 * java_string_hash(topic) + index) % max(self._config.num_replica_fetchers, 1)

    def _fetcher(self, leader_id: int, fetcher_id: int) -> ReplicaFetcher:
        place = leader_id, fetcher_id
        found = self._fetchers.get(place)
        if found is None:
            found = self._fetchers[place] = ReplicaFetcher(
                leader_id, fetcher_id, self._channel, self.context, lambda: self._config, self._clock, self._rng
            )
            if self._tasks is not None:
                self._start(place, found)
        return found

    def _start(self, place: tuple[int, int], fetcher: ReplicaFetcher) -> None:
        assert self._tasks is not None
        self._tasks.create_task(self._run_fetcher(place, fetcher), name=f"fetcher {place[0]}-{place[1]}")

    async def _run_fetcher(self, place: tuple[int, int], fetcher: ReplicaFetcher) -> None:
        """Run a fetcher until it has no partition left. A partition that is added later gets a new fetcher."""
        try:
            await fetcher.run()
        finally:
            if self._fetchers.get(place) is fetcher:
                del self._fetchers[place]

    # -- images ------------------------------------------------------------------------------------------------------

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        context = self.context
        for topic_id, gone in delta.topics.deleted.items():
            if image.topics.get_by_id(topic_id) is None and gone.name not in image.topics:
                context.leader_throttle.forget({gone.name: None})
                context.follower_throttle.forget({gone.name: None})
        is_applied = False
        for resource in delta.configs.changed:
            if resource.type == ResourceType.TOPIC:
                own = image.configs.topic(resource.name)
                context.leader_throttle.set_replicas(resource.name, own.get(_LEADER_REPLICAS), context.node_id)
                context.follower_throttle.set_replicas(resource.name, own.get(_FOLLOWER_REPLICAS), context.node_id)
            elif resource.type == ResourceType.BROKER and not is_applied:
                is_applied = True
                self._config = self._current_config()
                self._apply_config()

    def _apply_config(self) -> None:
        context, config = self.context, self._config
        context.leader_throttle.set_rate(config.leader_replication_throttled_rate)
        context.follower_throttle.set_rate(config.follower_replication_throttled_rate)
        for partition in list(self._fetcher_of):
            self._assign_fetcher(partition)  # num.replica.fetchers may have changed
