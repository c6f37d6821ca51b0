"""Shell: cluster links (byte-exact mirrors), which only Barnabas brokers support.

Other brokers do not have these APIs, so that calls fail with UnsupportedApiError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.known_sums import sum_of_known
from barnabas.core.reprs import repr_without
from barnabas.protocol.wire.messages.alter_link import AlterLinkRequest, AlterLinkResponse, LinkData, LinkSetting
from barnabas.protocol.wire.messages.alter_mirrors import AlterMirrorsRequest, AlterMirrorsResponse
from barnabas.protocol.wire.messages.describe_links import DescribeLinksRequest, DescribeLinksResponse
from barnabas.protocol.wire.messages.describe_mirrors import DescribeMirrorsRequest, DescribeMirrorsResponse

STATE_NAMES: Final[Mapping[int, str]] = {
    0: "NEW",
    1: "LOG_ALIGNMENT",
    2: "EPOCH_FENCING",
    3: "MIRRORING",
    4: "PAUSING",
    5: "PAUSED",
    6: "STOPPING",
    7: "STOPPED",
    8: "ULE_RECOVERY",
    9: "FAILED",
}
"""The states of a mirror partition (KIP-1279) by their numbers; NEW until its leader has stored one."""
STOPPED: Final = "STOPPED"
FAILED: Final = "FAILED"


class MirrorAction(IntEnum):
    """What is done with mirror topics."""

    START = 0
    PAUSE = 1
    RESUME = 2
    STOP = 3
    RECOVER = 4


@dataclass(frozen=True, slots=True)
class Link:
    """A link: where the source cluster is, and what of it is mirrored. Patterns must match whole names."""

    name: str
    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of the brokers' connections to the source, by the names of Kafka's clients. Passwords are hidden in
    descriptions."""
    topics: tuple[str, ...] = ()
    topics_exclude: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    groups_exclude: tuple[str, ...] = ()
    acls: tuple[str, ...] = ()
    """Rules `type;name;operation;permission;principal` of the ACLs that are copied."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the link: mirror.*"""
    source_cluster_id: str | None = None
    version: int = 0

    __repr__ = repr_without("client")


@dataclass(frozen=True, slots=True)
class StoredMirrorState:
    """The state of a mirror partition as its coordinator has it. `offset` is where a stopped mirror ended, or -1."""

    topic: str | None
    """The name of the topic; None if the topic was deleted here."""
    topic_id: str
    partition: int
    state: str
    leader_epoch: int
    epoch: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class LinkDescription:
    """A link with the broker that coordinates it. `trouble` is empty if the link follows its source in all."""

    link: Link
    coordinator_id: int
    trouble: str
    mirrors: tuple[StoredMirrorState, ...]


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """What the leader of a mirror partition says about it now. Unknown numbers are -1."""

    link: str
    partition: TopicPartition
    state: str
    source_high_watermark: int
    lag: int
    last_fetch_ms: int
    skipped_records: int
    reason: str

    @property
    def known_lag(self) -> int | None:
        """The lag; None if it is unknown, because the source has not answered yet."""
        return None if self.lag < 0 else self.lag


def lag_of_link(link: LinkDescription, statuses: Iterable[MirrorStatus]) -> int | None:
    """The lag of all mirror partitions of a link; None without mirrors, or if the lag of one is unknown: its source has
    not answered yet, or no leader reports on it. `statuses` may have those of other links."""
    mine = [status for status in statuses if status.link == link.link.name]
    reported = {status.partition for status in mine}
    silent = any(
        mirror.topic is not None
        and mirror.state != STOPPED
        and TopicPartition(mirror.topic, mirror.partition) not in reported
        for mirror in link.mirrors
    )
    return None if silent else sum_of_known(status.known_lag for status in mine)


@dataclass(frozen=True, slots=True)
class MirrorChange:
    """The result of a command for one topic: `new`, `unchanged`, or the requested `mirror.state`; or an error."""

    topic: str
    state: str
    partitions: int
    error: KafkaError | None


async def create_link(cluster: Cluster, link: Link, *, validate_only: bool, deadline: float) -> Link:
    return await _alter(cluster, 0, link, validate_only=validate_only, deadline=deadline)


async def alter_link(cluster: Cluster, link: Link, *, validate_only: bool, deadline: float) -> Link:
    return await _alter(cluster, 1, link, validate_only=validate_only, deadline=deadline)


async def delete_link(cluster: Cluster, name: str, *, validate_only: bool, deadline: float) -> Link:
    return await _alter(cluster, 2, Link(name, ""), validate_only=validate_only, deadline=deadline)


async def _alter(cluster: Cluster, operation: int, link: Link, *, validate_only: bool, deadline: float) -> Link:
    async def attempt() -> Link:
        request = AlterLinkRequest(operation=operation, validate_only=validate_only, link=_data(link))
        response: AlterLinkResponse = await cluster.send_any(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, f"Link {link.name}")
        return _link(response.link)

    stored: Link = await cluster.retrying(f"Link {link.name}", attempt, deadline=deadline)
    return stored


async def describe_links(
    cluster: Cluster, names: Iterable[str] | None, *, deadline: float
) -> dict[str, LinkDescription]:
    wanted = None if names is None else list(names)

    async def attempt() -> dict[str, LinkDescription]:
        request = DescribeLinksRequest(names=wanted, include_mirrors=True)
        response: DescribeLinksResponse = await cluster.ask_any(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, "Describing links")
        return {entry.link.name: _described(entry) for entry in response.links}

    found: dict[str, LinkDescription] = await cluster.retrying("Describing links", attempt, deadline=deadline)
    return found


async def alter_mirrors(
    cluster: Cluster,
    link: str,
    action: MirrorAction,
    topics: Sequence[str],
    *,
    validate_only: bool,
    deadline: float,
) -> list[MirrorChange]:
    async def attempt() -> list[MirrorChange]:
        request = AlterMirrorsRequest(link=link, operation=action, topics=list(topics), validate_only=validate_only)
        response: AlterMirrorsResponse = await cluster.send_any(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, f"Link {link}")
        return [
            MirrorChange(
                topic.topic,
                topic.state,
                topic.partitions,
                item_error(topic.error_code, topic.error_message, topic.topic) if topic.error_code else None,
            )
            for topic in response.topics
        ]

    changes: list[MirrorChange] = await cluster.retrying(f"Link {link}", attempt, deadline=deadline)
    return changes


async def describe_mirrors(cluster: Cluster, links: Iterable[str] | None, *, deadline: float) -> list[MirrorStatus]:
    wanted = None if links is None else list(links)
    await cluster.refresh(deadline=deadline)

    async def ask(broker_id: int) -> list[MirrorStatus]:
        async def attempt() -> list[MirrorStatus]:
            request = DescribeMirrorsRequest(links=wanted)
            response: DescribeMirrorsResponse = await cluster.send(broker_id, request, deadline=deadline)
            if response.error_code:
                raise item_error(response.error_code, response.error_message, f"Mirrors of broker {broker_id}")
            return [_status(mirror) for mirror in response.mirrors]

        found: list[MirrorStatus] = await cluster.retrying(f"Mirrors of broker {broker_id}", attempt, deadline=deadline)
        return found

    answers = await asyncio.gather(*(ask(broker_id) for broker_id in sorted(cluster.metadata.brokers)))
    return sorted(
        (status for answer in answers for status in answer), key=lambda status: (status.link, status.partition)
    )


def _status(mirror: Any) -> MirrorStatus:
    return MirrorStatus(
        mirror.link,
        TopicPartition(mirror.topic, mirror.partition),
        STATE_NAMES.get(mirror.state, str(mirror.state)),
        mirror.source_high_watermark,
        mirror.lag,
        mirror.last_fetch_ms,
        mirror.skipped_records,
        mirror.reason,
    )


def _described(entry: Any) -> LinkDescription:
    mirrors = tuple(
        StoredMirrorState(
            mirror.topic,
            str(mirror.topic_id),
            mirror.partition,
            STATE_NAMES.get(mirror.state.state, str(mirror.state.state)),
            mirror.state.leader_epoch,
            mirror.state.position_epoch,
            mirror.state.position_offset,
            mirror.state.reason,
        )
        for mirror in entry.mirrors
    )
    return LinkDescription(_link(entry.link), entry.coordinator_id, entry.trouble, mirrors)


def _data(link: Link) -> LinkData:
    return LinkData(
        name=link.name,
        bootstrap_servers=link.bootstrap_servers,
        client=_settings(link.client),
        topics=list(link.topics),
        topics_exclude=list(link.topics_exclude),
        groups=list(link.groups),
        groups_exclude=list(link.groups_exclude),
        acls=list(link.acls),
        settings=_settings(link.settings),
        source_cluster_id=link.source_cluster_id,
        version=link.version,
    )


def _settings(settings: Mapping[str, str]) -> list[LinkSetting]:
    return [LinkSetting(name=name, value=value) for name, value in sorted(settings.items())]


def _link(data: LinkData) -> Link:
    return Link(
        data.name,
        data.bootstrap_servers,
        {setting.name: setting.value for setting in data.client},
        tuple(data.topics),
        tuple(data.topics_exclude),
        tuple(data.groups),
        tuple(data.groups_exclude),
        tuple(data.acls),
        {setting.name: setting.value for setting in data.settings},
        data.source_cluster_id,
        data.version,
    )
