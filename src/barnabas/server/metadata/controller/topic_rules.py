"""Machine: the rules for changes of a topic's partitions, from its configs and the cluster's features."""

from __future__ import annotations

from collections.abc import Callable, Collection

from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.controller.assignments import default_directory
from barnabas.server.metadata.controller.partition_change import Election, PartitionChangeRules
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.features import ELR_VERSION
from barnabas.server.metadata.image.cluster import ClusterImage, PartitionImage, TopicImage


class TopicRules:
    """Builds the rules for the partitions that one decision changes. The configs of each topic are read only once."""

    def __init__(self, image: ClusterImage, ctx: DecideContext) -> None:
        self._image = image
        self._view = ConfigView(image.configs, node_id=-1, static=ctx.settings.static_config)
        self._settings: dict[str, tuple[bool, int]] = {}
        self.elr_enabled = image.features.level(ELR_VERSION) > 0

    def election(self, topic: TopicImage) -> Election:
        """How the topic's partitions elect a leader: UNCLEAN with `unclean.leader.election.enable`, otherwise
        ONLINE."""
        return Election.UNCLEAN if self._of(topic)[0] else Election.ONLINE

    def rules(
        self,
        topic: TopicImage,
        partition: PartitionImage,
        is_usable: Callable[[int], bool],
        *,
        unclean_shutdown: Collection[int] = (),
    ) -> PartitionChangeRules:
        brokers = self._image.brokers
        return PartitionChangeRules(
            lambda broker: is_usable(broker) and brokers.has_online_dir(broker, partition.directory_of(broker)),
            min(self._of(topic)[1], len(partition.replicas)),
            self.elr_enabled,
            unclean_shutdown,
            lambda broker: default_directory(self._image, broker),
        )

    def _of(self, topic: TopicImage) -> tuple[bool, int]:
        known = self._settings.get(topic.name)
        if known is None:
            unclean = self._view.topic_value(topic.name, "unclean.leader.election.enable").value
            least = self._view.topic_value(topic.name, "min.insync.replicas").value
            assert isinstance(least, int)
            known = self._settings[topic.name] = (bool(unclean), least)
        return known
