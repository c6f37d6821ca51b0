"""Shell: one of two simulated clusters, with a cluster link to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.admin.links import Link
from barnabas.server.links.fetching.values import MirrorMode
from barnabas.testing.sim.cluster.cluster import SimCluster
from barnabas.testing.sim.cluster.observation import Replica, replicas_of
from barnabas.testing.sim.workload.supervisor import PATIENCE

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.consumer.consumer import AsyncConsumer
    from barnabas.client.producer.producer import AsyncProducer
    from barnabas.client.share.consumer import AsyncShareConsumer
    from barnabas.core.ids import TopicPartition
    from barnabas.testing.sim.cluster.layout import ClusterLayout
    from barnabas.testing.sim.world import World

LINK_SETTINGS: Final = {
    "mirror.metadata.refresh.interval.ms": "500",
    "mirror.fetch.wait.max.ms": "300",
    "mirror.request.timeout.ms": "2000",
}
"""Time-outs of the link that let more happen in each simulated run."""
_ADMIN_TIMEOUT_MS: Final = 60_000


class Site:
    """One of two clusters. The site's own link mirrors topics of `other`."""

    other: Site

    def __init__(self, world: World, name: str, layout: ClusterLayout, config: Mapping[str, str]) -> None:
        self.world = world
        self.name = name
        self.cluster = SimCluster(world, layout, config)

    def __repr__(self) -> str:
        return f"Site({self.name})"

    # ---- clients

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.cluster.brokers)

    def admin(self) -> AbstractAsyncContextManager[AsyncAdmin]:
        return self.world.admin(**self._settings({"default_api_timeout_ms": _ADMIN_TIMEOUT_MS}))

    def producer(self, **settings: Any) -> AbstractAsyncContextManager[AsyncProducer]:
        return self.world.producer(**self._settings(settings))

    def consumer(self, **settings: Any) -> AbstractAsyncContextManager[AsyncConsumer]:
        return self.world.consumer(**self._settings(settings))

    def share_consumer(self, **settings: Any) -> AbstractAsyncContextManager[AsyncShareConsumer]:
        return self.world.share_consumer(**self._settings(settings))

    def _settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {**PATIENCE, "bootstrap_servers": self.bootstrap_servers, **settings}

    # ---- links

    @property
    def link_name(self) -> str:
        return f"from-{self.other.name}"

    def link(self) -> Link:
        """A link that mirrors every topic and group of the other site."""
        return Link(
            self.link_name,
            self.other.bootstrap_servers,
            topics=(".*",),
            groups=(".*",),
            settings=LINK_SETTINGS,
        )

    def mode(self, topic: str) -> MirrorMode | None:
        """What the operator wants of a mirror topic, by the newest image; None if the topic is no mirror."""
        image = self.cluster.newest_image()
        configs = {} if image is None or topic not in image.topics else image.configs.topic(topic)
        if not configs.get("mirror.name"):
            return None
        mode = MirrorMode(configs.get("mirror.state", MirrorMode.ACTIVE))
        return None if mode is MirrorMode.STOPPED else mode

    def has_topic(self, topic: str) -> bool:
        image = self.cluster.newest_image()
        return image is not None and topic in image.topics

    # ---- logs

    def leaders(self) -> Iterator[tuple[TopicPartition, Replica]]:
        """The replicas that lead a partition, by the newest image and by themselves."""
        image = self.cluster.newest_image()
        for replica in [] if image is None else replicas_of(self.cluster):
            partition = replica.partition
            state = image.topics.partition_by_id(partition.topic_id, partition.name.partition)  # type: ignore[union-attr]  # not None in the loop
            if (
                state is not None
                and partition.is_leader
                and state.leader == replica.node.node_id
                and state.leader_epoch == partition.leader_epoch
            ):
                yield partition.name, replica

    def leader(self, tp: TopicPartition) -> Replica | None:
        return next((replica for name, replica in self.leaders() if name == tp), None)
