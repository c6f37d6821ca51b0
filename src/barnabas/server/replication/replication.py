"""Shell: copying between brokers: the fetchers of the partitions that follow, the ISR of those that lead.

One object a node. Plug it in before the first image: it tells `Partitions` whom to tell of roles and proposals. It
subscribes to images for the settings; after `Partitions`, which act on the roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.core.clock import Clock
from barnabas.core.hashing import java_string_hash
from barnabas.core.ids import NO_LEADER
from barnabas.core.rng import Rng
from barnabas.server.metadata.image.cluster import ClusterImage, ResourceType
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.replication.directories.keeper import DirKeeper
from barnabas.server.replication.fetcher import Fetcher
from barnabas.server.replication.isr_keeper import IsrKeeper
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.replication.ports import PeerChannel
from barnabas.server.replication.settings import ReplicationSettings

_LEADER_REPLICAS = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class Replication:
    """`settings` gives what is in effect now. `run` until cancelled."""

    def __init__(
        self,
        partitions: Partitions,
        channel: PeerChannel,
        settings: Callable[[], ReplicationSettings],
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.isr_keeper = IsrKeeper(partitions, channel, rng)
        self.dir_keeper = DirKeeper(partitions, channel, rng)
        self._partitions = partitions
        self._host = partitions.host
        self._channel = channel
        self._settings_now = settings
        self._settings = settings()
        self._clock = clock
        self._rng = rng
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._home: dict[int, Fetcher] = {}
        """Of each partition that is copied, by identity: its fetcher."""
        self._tasks: asyncio.TaskGroup | None = None
        self._host.propose = self.isr_keeper.propose
        self._host.on_role = self._on_role
        self._host.on_fetchable = self._on_role
        self._obey()
        for partition in partitions:
            self._on_role(partition)

    @property
    def fetchers(self) -> list[Fetcher]:
        """Those that have something to copy, by leader and lane."""
        return [self._fetchers[place] for place in sorted(self._fetchers)]

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self.isr_keeper.run(), name="isr keeper")
                self._tasks.create_task(self.dir_keeper.run(), name="directory keeper")
                for place, fetcher in list(self._fetchers.items()):
                    self._start(place, fetcher)
        finally:
            self._tasks = None

    # -- fetchers ----------------------------------------------------------------------------------------------------

    def _on_role(self, partition: Partition) -> None:
        """It follows another leader, in another epoch, or nobody; or its disk has caught up."""
        state = partition.follower
        wanted = None
        if state is not None and state.leader_id != NO_LEADER and partition.log is not None:
            wanted = self._fetcher(state.leader_id, self._lane(partition))
        present = self._home.get(id(partition))
        if present is not None and present is not wanted:
            present.remove(partition)
            del self._home[id(partition)]
        if wanted is not None:
            self._home[id(partition)] = wanted
            wanted.add(partition)

    def _lane(self, partition: Partition) -> int:
        """Which of the leader's fetchers copies it (`AbstractFetcherManager.getFetcherId`)."""
        topic, index = partition.name.topic, partition.name.partition
        return abs(31 * java_string_hash(topic) + index) % max(self._settings.fetchers, 1)

    def _fetcher(self, leader_id: int, lane: int) -> Fetcher:
        place = leader_id, lane
        found = self._fetchers.get(place)
        if found is None:
            found = self._fetchers[place] = Fetcher(
                leader_id, lane, self._channel, self._host, lambda: self._settings, self._clock, self._rng
            )
            if self._tasks is not None:
                self._start(place, found)
        return found

    def _start(self, place: tuple[int, int], fetcher: Fetcher) -> None:
        assert self._tasks is not None
        self._tasks.create_task(self._copy(place, fetcher), name=f"fetcher {place[0]}-{place[1]}")

    async def _copy(self, place: tuple[int, int], fetcher: Fetcher) -> None:
        """Until it has nothing left; the next partition gets a new one."""
        try:
            await fetcher.run()
        finally:
            if self._fetchers.get(place) is fetcher:
                del self._fetchers[place]

    # -- settings ----------------------------------------------------------------------------------------------------

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        host = self._host
        self.dir_keeper.on_image(delta, image)
        for topic_id, gone in delta.topics.deleted.items():
            if image.topics.get_by_id(topic_id) is None and gone.name not in image.topics:
                host.leader_throttle.forget({gone.name: None})
                host.follower_throttle.forget({gone.name: None})
        obeyed = False
        for resource in delta.configs.changed:
            if resource.type == ResourceType.TOPIC:
                own = image.configs.topic(resource.name)
                host.leader_throttle.set_replicas(resource.name, own.get(_LEADER_REPLICAS), host.node_id)
                host.follower_throttle.set_replicas(resource.name, own.get(_FOLLOWER_REPLICAS), host.node_id)
            elif resource.type == ResourceType.BROKER and not obeyed:
                obeyed = True
                self._settings = self._settings_now()
                self._obey()

    def _obey(self) -> None:
        host, settings = self._host, self._settings
        host.lag_max_ms = settings.lag_max_ms
        host.leader_throttle.set_rate(settings.leader_rate)
        host.follower_throttle.set_rate(settings.follower_rate)
        for partition in list(self._partitions):
            if id(partition) in self._home:
                self._on_role(partition)  # num.replica.fetchers may have changed
