"""Shell: what a backup reads from a cluster besides records: topics, configs, groups, ACLs, users and quotas.

What the cluster refuses to show, or does not have, becomes a note of the run. Topics, configs and offsets must be
readable: without them a backup would be silently incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from barnabas.backup.errors import BackupError
from barnabas.backup.planning import LogNow
from barnabas.backup.values import (
    AclBackup,
    BackedUpOffset,
    GroupBackup,
    PartitionBackup,
    QuotaBackup,
    UserBackup,
)
from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.share_groups import list_share_group_offsets
from barnabas.client.cluster.fanout import LeaderResult, by_topic, send_to_leaders
from barnabas.client.values import EARLIEST, LATEST, ConfigResource, ConfigSource, GroupListing
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import CONSUMER_REPLICA_ID, TopicPartition, uuid_to_text
from barnabas.protocol.security.acls import AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.messages import offset_for_leader_epoch as epochs

T = TypeVar("T")

SHARE: Final = "share"
_STREAMS: Final = "streams"
_CONSUMER_PROTOCOLS: Final = ("", "consumer")
_REFUSALS: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)


class BackupTopics(Struct, frozen=True):
    """The topics of a backup: those that a pattern matches as a whole, and no pattern of the exclusions. Without
    patterns, all but internal ones (`__*`)."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def matches(self, name: str, *, is_internal: bool = False) -> bool:
        if any(re.fullmatch(pattern, name) for pattern in self.exclude):
            return False
        if is_internal or name.startswith("__"):
            return name in self.include
        return not self.include or any(re.fullmatch(pattern, name) for pattern in self.include)

    def check(self) -> None:
        """Raises ValueError for a pattern that is no regular expression."""
        for pattern in (*self.include, *self.exclude):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}.") from None


class TopicNow(Struct, frozen=True):
    """A topic of the cluster."""

    name: str
    topic_id: str
    replication_factor: int
    partitions: int
    configs: dict[str, str]


async def read_topics(admin: AsyncAdmin, selection: BackupTopics) -> list[TopicNow]:
    """The selected topics with the configs that are set on them. Raises KafkaError."""
    views = await admin.cluster.all_topics()
    chosen = {name: view for name, view in views.items() if selection.matches(name, is_internal=view.is_internal)}
    resources = {name: ConfigResource.topic(name) for name in chosen}
    described = await admin.describe_configs(resources.values()) if resources else {}
    topics = []
    for name, view in sorted(chosen.items()):
        if view.error is not ErrorCode.NONE and not view.error.retriable:
            raise KafkaError(view.error, f"Topic {name}: {view.error.message}")
        configs = described[resources[name]]
        if isinstance(configs, KafkaError):
            raise configs
        own = {
            entry.name: entry.value
            for entry in configs.values()
            if entry.source is ConfigSource.TOPIC and entry.value is not None
        }
        factor = max((len(partition.replicas) for partition in view.partitions), default=1)
        topics.append(TopicNow(name, uuid_to_text(view.topic_id), factor, view.partition_count, own))
    return topics


async def read_groups(admin: AsyncAdmin, topics: Iterable[str], notes: list[str]) -> tuple[GroupBackup, ...]:
    """The committed offsets of all groups in these topics."""
    wanted = set(topics)
    groups = []
    for listing in sorted(await admin.list_groups(), key=lambda listing: listing.group_id):
        if listing.type == _STREAMS:
            notes.append(f"Group {listing.group_id} has the protocol of Kafka Streams: its offsets are not backed up.")
            continue
        if listing.type != SHARE and listing.protocol_type not in _CONSUMER_PROTOCOLS:
            continue  # Kafka Connect and others keep no offsets in their groups
        try:
            offsets = await _offsets_of(admin, listing)
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                notes.append(f"The offsets of group {listing.group_id} could not be read: {error}")
            continue
        chosen = tuple(offset for offset in offsets if offset.topic in wanted)
        if chosen:
            groups.append(GroupBackup(listing.group_id, listing.type or "classic", chosen))
    return tuple(groups)


async def _offsets_of(admin: AsyncAdmin, listing: GroupListing) -> list[BackedUpOffset]:
    found: list[BackedUpOffset] = []
    if listing.type == SHARE:
        deadline = admin.cluster.deadline()
        for name, share in sorted(
            (await list_share_group_offsets(admin.cluster, listing.group_id, deadline=deadline)).items()
        ):
            if isinstance(share, KafkaError):
                raise share
            if share.start_offset is not None:
                found.append(BackedUpOffset(name.topic, name.partition, share.start_offset, share.leader_epoch))
        return found
    for name, committed in sorted((await admin.list_group_offsets(listing.group_id)).items()):
        if isinstance(committed, KafkaError):
            raise committed
        found.append(
            BackedUpOffset(name.topic, name.partition, committed.offset, committed.leader_epoch, committed.metadata)
        )
    return found


async def read_acls(admin: AsyncAdmin, notes: list[str]) -> tuple[AclBackup, ...] | None:
    found = await _if_allowed("ACLs", lambda: admin.describe_acls(), notes)
    if found is None:
        return None
    return tuple(
        AclBackup(
            AclResourceType(acl.resource_type).name,
            acl.resource_name,
            PatternType(acl.pattern_type).name,
            acl.principal,
            acl.host,
            AclOperation(acl.operation).name,
            AclPermissionType(acl.permission_type).name,
        )
        for acl in found
    )


async def read_users(admin: AsyncAdmin, notes: list[str]) -> tuple[UserBackup, ...] | None:
    found = await _if_allowed("SCRAM users", lambda: admin.describe_user_scram_credentials(), notes)
    if found is None:
        return None
    return tuple(
        UserBackup(name, dict(mechanisms))
        for name, mechanisms in sorted(found.items())
        if not isinstance(mechanisms, KafkaError)
    )


async def read_quotas(admin: AsyncAdmin, notes: list[str]) -> tuple[QuotaBackup, ...] | None:
    found = await _if_allowed("quotas", lambda: admin.describe_client_quotas(), notes)
    if found is None:
        return None
    return tuple(QuotaBackup(dict(entity), dict(values)) for entity, values in sorted(found.items(), key=str))


async def _if_allowed(what: str, read: Callable[[], Awaitable[T]], notes: list[str]) -> T | None:
    try:
        return await read()
    except KafkaError as error:
        if error.code not in _REFUSALS:
            raise
        if error.code is not ErrorCode.SECURITY_DISABLED:
            notes.append(f"The cluster does not show its {what}: {error}")
        return None


async def read_logs(
    admin: AsyncAdmin, topics: Sequence[TopicNow], before: Mapping[TopicPartition, PartitionBackup]
) -> dict[TopicPartition, LogNow]:
    """The bounds of every log, and where it ends the leader epoch of the last batch of the backup. Raises BackupError
    if a partition does not answer: a backup without it would be incomplete."""
    names = [TopicPartition(topic.name, index) for topic in topics for index in range(topic.partitions)]
    starts = await admin.list_offsets(dict.fromkeys(names, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(names, LATEST))
    known = {name: before[name].last_epoch for name in names if name in before and before[name].last_epoch >= 0}
    epoch_ends = await _epoch_ends(admin, known)
    logs = {}
    for name in names:
        start, end = starts[name], ends[name]
        for answer in (start, end):
            if isinstance(answer, KafkaError):
                raise BackupError(f"{name} cannot be read: {answer}. Nothing was changed; run the backup again.")
        assert not isinstance(start, KafkaError) and not isinstance(end, KafkaError)
        logs[name] = LogNow(start.offset, max(end.offset, start.offset), epoch_ends.get(name))
    return logs


async def _epoch_ends(admin: AsyncAdmin, known: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Where each log ends the given leader epoch; partitions whose leader does not know it are left out."""

    def build(part: dict[TopicPartition, int]) -> epochs.OffsetForLeaderEpochRequest:
        return epochs.OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[
                epochs.OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        epochs.OffsetForLeaderPartition(partition=i, leader_epoch=part[TopicPartition(topic, i)])
                        for i in indexes
                    ],
                )
                for topic, indexes in by_topic(part).items()
            ],
        )

    def parse(response: epochs.OffsetForLeaderEpochResponse) -> Iterable[LeaderResult[int]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield TopicPartition(topic.topic, p.partition), p.error_code, p.end_offset

    if not known:
        return {}
    found = await send_to_leaders(
        admin.cluster, known, build, parse, what="The end of a leader epoch", deadline=admin.cluster.deadline()
    )
    return {name: end for name, end in found.items() if not isinstance(end, KafkaError) and end >= 0}
