"""Machine: what of a run is restored, what in the target prevents it, and which settings are set."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from barnabas.backup.cluster_state import SHARE, BackupTopics
from barnabas.backup.errors import BackupError
from barnabas.backup.values import AclBackup, BackedUpOffset, GroupBackup, QuotaBackup, RunManifest
from barnabas.core.ids import TopicPartition
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.security.quotas.limits import QuotaEntity

_NOT_RESTORED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "local.retention.ms",
        "local.retention.bytes",
    }
)
"""Configs that name brokers of the source, or need its object store."""
_OWN: Final = "mirror."
_NAMES_SHOWN: Final = 5


class Method(Enum):
    """How records are written into the target."""

    LINK = "link"
    """The brokers mirror the run: same bytes, same offsets. Needs Barnabas."""
    PRODUCE = "produce"
    """Committed records are produced, with new offsets. For any broker."""


class TargetFacts(Struct, frozen=True):
    """What the target has before the restore."""

    topics: frozenset[str]
    """Topics that no earlier attempt of this restore has created; internal ones are left out."""
    groups: Mapping[str, Mapping[TopicPartition, int]]
    """The committed offsets of the groups that the run has, too."""
    quotas: Mapping[QuotaEntity, Mapping[str, float]]


def select(run: RunManifest, selection: BackupTopics) -> RunManifest:
    """The part of a run that is restored. Raises BackupError if a pattern selects nothing."""
    if not selection.include and not selection.exclude:
        return run
    topics = tuple(topic for topic in run.topics if selection.matches(topic.name))
    if not topics:
        raise BackupError(
            f"Run {run.id} has no topic that matches. `barnabas backup describe` lists the topics of a run."
        )
    names = {topic.name for topic in topics}
    groups = []
    for group in run.groups:
        offsets = tuple(offset for offset in group.offsets if offset.topic in names)
        if offsets:
            groups.append(GroupBackup(group.group_id, group.type, offsets))
    return RunManifest(
        run.id, run.cluster_id, run.started_ms, run.finished_ms, run.complete, run.base, run.added_bytes, topics,
        tuple(groups), None, run.users, None, run.notes,
    )  # fmt: skip


def conflicts(run: RunManifest, target: TargetFacts, *, whole: bool) -> list[str]:
    """Why the target cannot take the run without overwriting something; empty if it can. With `whole`, any topic of
    the target is a reason: a restore of everything goes into an empty cluster."""
    found = []
    wanted = {topic.name for topic in run.topics}
    present = sorted(target.topics if whole else target.topics & wanted)
    if present:
        found.append(f"it has {_named('topic', present)}")
    groups = sorted(
        group.group_id
        for group in run.groups
        if any(
            target.groups.get(group.group_id, {}).get(TopicPartition(offset.topic, offset.partition), offset.offset)
            != offset.offset
            for offset in group.offsets
        )
    )
    if groups:
        found.append(f"it has other offsets of {_named('group', groups)}")
    quotas = sorted(
        str(quota.entity)
        for quota in run.quotas or ()
        if any(
            target.quotas.get(entity_of(quota), {}).get(name, value) != value for name, value in quota.quotas.items()
        )
    )
    if quotas:
        found.append(f"it has other quotas for {_named('entity', quotas, 'entities')}")
    return found


def _named(what: str, names: Sequence[str], plural: str = "") -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"the {what if len(names) == 1 else plural or what + 's'} {shown}{more}"


def configs_to_set(configs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The configs of a topic that are set on the target, and the names of those that are not."""
    left_out = sorted(name for name in configs if name in _NOT_RESTORED or name.startswith(_OWN))
    return {name: value for name, value in configs.items() if name not in left_out}, left_out


def link_name(run_id: str) -> str:
    """The name of the link that restores a run."""
    return f"restore-{run_id}"


def exact_patterns(topics: Collection[str]) -> list[str]:
    """Regular expressions that match these topics only."""
    return [re.escape(topic) for topic in topics]


def within(offset: BackedUpOffset, start: int, end: int) -> int:
    """A committed offset in a log that has the records from `start` to before `end`."""
    return max(start, min(offset.offset, end))


def translated(
    group: GroupBackup, offsets: Mapping[TopicPartition, Mapping[int, int]]
) -> list[tuple[BackedUpOffset, int]]:
    """The committed offsets of a group with what they became in the target. An offset of a partition that the run does
    not have is left out: a group can keep offsets of a topic that was created again with fewer partitions.
    """
    found = []
    for offset in group.offsets:
        of_partition = offsets.get(TopicPartition(offset.topic, offset.partition))
        if of_partition is not None:
            found.append((offset, of_partition[offset.offset]))
    return found


def is_share(group: GroupBackup) -> bool:
    return group.type == SHARE


def entity_of(quota: QuotaBackup) -> QuotaEntity:
    return tuple(sorted(quota.entity.items(), key=lambda item: item[0]))


def binding_of(acl: AclBackup) -> AclBinding:
    """Raises BackupError for a name that this version does not know."""
    try:
        return AclBinding(
            AclResourceType[acl.resource_type],
            acl.resource_name,
            PatternType[acl.pattern_type],
            acl.principal,
            acl.host,
            AclOperation[acl.operation],
            AclPermissionType[acl.permission],
        )
    except KeyError as unknown:
        raise BackupError(
            f"The ACL of {acl.principal} on {acl.resource_name} has {unknown}, which is unknown."
        ) from None


def lost_by_produce(run: RunManifest) -> list[str]:
    """Sentences about what a restore by Produce leaves out or changes."""
    lost = [
        "Offsets, leader epochs, producer ids and topic ids are new. Committed offsets of groups are translated.",
        "Aborted transactions, open transactions and transaction markers are left out; committed records become "
        "ordinary records.",
    ]
    if any(is_share(group) for group in run.groups):
        lost.append("Records of share groups that were acquired or being redelivered are delivered again.")
    return lost
