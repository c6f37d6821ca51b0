"""Shell: share groups on this node: their coordinator, leaders and settings plugged together.

`Shares` (what handlers see) is built by `build_shares`; `LocalShares` is what they need of other brokers, where there
are none; `ShareFeed` tells them of leaderships and images.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from barnabas.broker.auto_create import create_missing
from barnabas.broker.services import Services
from barnabas.broker.share_sessions import ShareSessions
from barnabas.broker.shares import Shares
from barnabas.coordination.group.service import GroupCoordinator
from barnabas.coordination.group.share_service import ShareGroupService
from barnabas.coordination.share.config import ShareCoordinatorConfig
from barnabas.coordination.share.persister import Persister
from barnabas.coordination.share.service import ShareCoordinator
from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import SHARE_STATE_TOPIC, TopicPartition
from barnabas.core.rng import Rng
from barnabas.metadata.config_view import ConfigView
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.node.adapters import ImageCatalog, ReplicatedWriter
from barnabas.node.config import NodeConfig
from barnabas.replication.partition import Isolation, SpecialTimestamp
from barnabas.replication.rules.share_values import ShareLimits
from barnabas.replication.share_partitions import SharePartitions
from barnabas.replication.share_ports import ShareSettings
from barnabas.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from barnabas.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from barnabas.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from barnabas.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from barnabas.wire.schema import Request

_DURATION: Final = re.compile(r"-?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_PART_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


class LocalShares:
    """coordination.ShareChannel, PartitionEnds and LogPruner, all on this node."""

    def __init__(self) -> None:
        self.services: Services | None = None
        """Set when they are assembled; the coordinators, which are some of them, are built with this object."""
        self._creating: asyncio.Lock | None = None

    async def send(self, coordinator_key: str, request: Request) -> Any:
        services = self._services()
        if SHARE_STATE_TOPIC not in services.metadata.image.topics:
            await self._create_topic(services)
        coordinator = services.shares.coordinator
        match request:
            case InitializeShareGroupStateRequest():
                return await coordinator.initialize_share_group_state(request)
            case ReadShareGroupStateRequest():
                return await coordinator.read_share_group_state(request)
            case WriteShareGroupStateRequest():
                return await coordinator.write_share_group_state(request)
            case DeleteShareGroupStateRequest():
                return await coordinator.delete_share_group_state(request)
            case ReadShareGroupStateSummaryRequest():
                return await coordinator.read_share_group_state_summary(request)
        raise AssertionError(f"{type(request).__name__} is no request to a share coordinator")

    async def _create_topic(self, services: Services) -> None:
        self._creating = self._creating or asyncio.Lock()
        async with self._creating:
            if SHARE_STATE_TOPIC in services.metadata.image.topics:
                return
            refused = await create_missing(services, None, [SHARE_STATE_TOPIC])
            if refused:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{SHARE_STATE_TOPIC} could not be created ({refused[SHARE_STATE_TOPIC].name}); "
                    "are as many brokers alive as share.coordinator.state.topic.replication.factor?",
                )

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        hosted = self._services().partitions
        found = {tp: hosted.get(tp.topic, tp.partition) for tp in partitions}
        return {tp: p.high_watermark for tp, p in found.items() if p is not None and p.is_leader}

    async def delete_before(self, tp: TopicPartition, offset: int) -> None:
        services = self._services()
        services.partitions.require(tp.topic, tp.partition).delete_records(offset, services.clock.now_ms())

    def _services(self) -> Services:
        assert self.services is not None
        return self.services


class GroupShareSettings:
    """replication.SettingsOf: `share.*` of single groups, computed once for each image."""

    def __init__(self, image: Callable[[], ClusterImage], view: Callable[[ClusterImage], ConfigView]) -> None:
        self._image = image
        self._view = view
        self._of: ClusterImage | None = None
        self._known: dict[str, ShareSettings] = {}

    def __call__(self, group_id: str) -> ShareSettings:
        image = self._image()
        if image is not self._of:
            self._of = image
            self._known.clear()
        found = self._known.get(group_id)
        if found is None:
            found = self._known[group_id] = share_settings(self._view(image), group_id)
        return found


def share_settings(view: ConfigView, group_id: str) -> ShareSettings:
    value: dict[str, Any] = dict(view.group(group_id))
    reset, lookback_ms = SpecialTimestamp.LATEST, None
    text = str(value["share.auto.offset.reset"]).lower()
    if text == "earliest":
        reset = SpecialTimestamp.EARLIEST
    elif text.startswith("by_duration:"):
        lookback_ms = duration_ms(text.removeprefix("by_duration:"))
    committed = value["share.isolation.level"] == "read_committed"
    return ShareSettings(
        ShareLimits(
            value["share.delivery.count.limit"],
            value["share.partition.max.record.locks"],
            value["share.record.lock.duration.ms"],
            value["share.renew.acknowledge.enable"],
        ),
        Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED,
        reset,
        lookback_ms,
    )


def duration_ms(text: str) -> int:
    """An ISO-8601 duration of days, hours, minutes and seconds."""
    found = _DURATION.fullmatch(text)
    assert found is not None, "configs are validated when they are set"
    parts = zip(found.groups(), _PART_MS, strict=True)
    return round(sum(float(number) * unit for number, unit in parts if number is not None))


def share_coordinator_config(config: NodeConfig) -> ShareCoordinatorConfig:
    return ShareCoordinatorConfig(
        snapshot_update_records_per_snapshot=config["share.coordinator.snapshot.update.records.per.snapshot"],
        cold_partition_snapshot_interval_ms=config["share.coordinator.cold.partition.snapshot.interval.ms"],
        prune_interval_ms=config["share.coordinator.state.topic.prune.interval.ms"],
        write_timeout_ms=config["share.coordinator.write.timeout.ms"],
    )


def build_shares(
    config: NodeConfig,
    local: LocalShares,
    groups: GroupCoordinator,
    writer: ReplicatedWriter,
    settings: GroupShareSettings,
    image: ClusterImage,
    clock: Clock,
    rng: Rng,
) -> Shares:
    persister = Persister(local, rng)
    return Shares(
        groups=ShareGroupService(groups, persister, local),
        coordinator=ShareCoordinator(share_coordinator_config(config), writer, local, ImageCatalog(image), clock, rng),
        partitions=SharePartitions(persister, settings, clock),
        sessions=ShareSessions(config["group.share.max.share.sessions"]),
    )


class ShareFeed:
    """Tells the share coordinator and the share partitions' leaders what concerns them."""

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
        gone = frozenset(topic_id for topic_id in delta.topics.deleted)
        self._shares.coordinator.on_topics_changed(ImageCatalog(image), gone)
