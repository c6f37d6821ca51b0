"""Shell: builds the objects of share groups on this node: coordinator, partition leaders, sessions and configs.

`build_shares` builds `Shares`, the interface for the handlers. `ShareGroupListener` notifies them of leaderships and
images. Requests to other brokers are in `peers/shares.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from barnabas.core.clock import Clock
from barnabas.core.config_builder import ConfigBuilder
from barnabas.core.ids import SHARE_STATE_TOPIC, TopicPartition
from barnabas.core.rng import Rng
from barnabas.server.broker.share_sessions import ShareSessionCache
from barnabas.server.broker.shares import Shares
from barnabas.server.coordination.group.service import GroupCoordinator
from barnabas.server.coordination.group.share.service import ShareGroupService
from barnabas.server.coordination.share.persister import Persister
from barnabas.server.coordination.share.service import ShareCoordinator
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.configs.tables import GROUP_CONFIGS
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.node.adapters import ImageCatalog, ReplicatedWriter
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.typed_configs import SHARE_COORDINATOR
from barnabas.server.peers.coordination import CoordinationChannels
from barnabas.server.replication.partition import Isolation, SpecialTimestamp
from barnabas.server.replication.rules.share_values import SharePartitionConfig
from barnabas.server.replication.shares.partitions import SharePartitions
from barnabas.server.replication.shares.ports import ShareGroupConfig

_DURATION: Final = re.compile(r"-?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_PART_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


SHARE_PARTITION: Final = ConfigBuilder(SharePartitionConfig, GROUP_CONFIGS)


class ShareGroupConfigs:
    """Implements `ShareGroupConfigOf`: the `share.*` configs of a group, computed once for each image."""

    def __init__(self, image: Callable[[], ClusterImage], view: Callable[[ClusterImage], ConfigView]) -> None:
        self._image = image
        self._view = view
        self._of: ClusterImage | None = None
        self._known: dict[str, ShareGroupConfig] = {}

    def __call__(self, group_id: str) -> ShareGroupConfig:
        image = self._image()
        if image is not self._of:
            self._of = image
            self._known.clear()
        found = self._known.get(group_id)
        if found is None:
            found = self._known[group_id] = build_share_group_config(self._view(image), group_id)
        return found


def build_share_group_config(view: ConfigView, group_id: str) -> ShareGroupConfig:
    value: dict[str, Any] = dict(view.group(group_id))
    reset, lookback_ms = SpecialTimestamp.LATEST, None
    text = str(value["share.auto.offset.reset"]).lower()
    if text == "earliest":
        reset = SpecialTimestamp.EARLIEST
    elif text.startswith("by_duration:"):
        lookback_ms = duration_ms(text.removeprefix("by_duration:"))
    committed = value["share.isolation.level"] == "read_committed"
    return ShareGroupConfig(
        SHARE_PARTITION.build(value.__getitem__),
        Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED,
        reset,
        lookback_ms,
    )


def duration_ms(text: str) -> int:
    """Parse an ISO-8601 duration of days, hours, minutes and seconds."""
    found = _DURATION.fullmatch(text)
    assert found is not None, "configs are validated when they are set"
    parts = zip(found.groups(), _PART_MS, strict=True)
    return round(sum(float(number) * unit for number, unit in parts if number is not None))


def build_shares(
    config: NodeConfig,
    channels: CoordinationChannels,
    groups: GroupCoordinator,
    writer: ReplicatedWriter,
    configs: ShareGroupConfigs,
    image: ClusterImage,
    clock: Clock,
    rng: Rng,
) -> Shares:
    persister = Persister(channels.share_coordinators, rng)
    return Shares(
        groups=ShareGroupService(groups, persister, channels.log_ends),
        coordinator=ShareCoordinator(
            SHARE_COORDINATOR.build(config.__getitem__), writer, channels.log_ends, ImageCatalog(image), clock, rng
        ),
        partitions=SharePartitions(persister, configs, clock),
        sessions=ShareSessionCache(config["group.share.max.share.sessions"]),
    )


class ShareGroupListener:
    """Notifies the share coordinator and the leaders of share partitions of leaderships and images."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares

    def on_elected(self, partition: TopicPartition, leader_epoch: int) -> None:
        if partition.topic == SHARE_STATE_TOPIC:
            self._shares.coordinator.on_elected(partition.partition, leader_epoch)
        else:
            self._shares.partitions.on_elected(partition, leader_epoch)

    def on_resigned(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        if partition.topic == SHARE_STATE_TOPIC:
            self._shares.coordinator.on_resigned(partition.partition, leader_epoch)
        else:
            self._shares.partitions.on_resigned(partition, leader_epoch)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if not delta.topics:
            return
        topic = image.topics.get(SHARE_STATE_TOPIC)
        self._shares.coordinator.on_partition_count(0 if topic is None else len(topic.partitions))
        deleted = frozenset(topic_id for topic_id in delta.topics.deleted)
        self._shares.coordinator.on_topics_changed(ImageCatalog(image), deleted)
