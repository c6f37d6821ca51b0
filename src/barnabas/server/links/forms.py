"""Value: links and mirror states between the packages that have a form of their own: coordination and replication."""

from __future__ import annotations

from barnabas.core.ids import NO_TOPIC_ID
from barnabas.server.links.coordination.values import NO_STATE, MirrorId, MirrorStored, StoredLink
from barnabas.server.links.fetching.ports import MirrorPartition
from barnabas.server.links.fetching.states import MirrorState
from barnabas.server.links.fetching.values import LinkDefinition, MirrorPosition, StoredMirror


def definition_of(link: StoredLink) -> LinkDefinition:
    return LinkDefinition(
        name=link.name,
        bootstrap_servers=link.bootstrap_servers,
        client=dict(link.client),
        topics=link.topics,
        topics_exclude=link.topics_exclude,
        groups=link.groups,
        groups_exclude=link.groups_exclude,
        acls=link.acls,
        settings=dict(link.settings),
        source_cluster_id=link.source_cluster_id,
        version=link.version,
    )


def key_of(partition: MirrorPartition) -> MirrorId:
    return MirrorId(partition.link, partition.topic_id, partition.partition)


def mirror_of(stored: MirrorStored) -> StoredMirror | None:
    """None if only a leader epoch is stored."""
    if stored.state == NO_STATE:
        return None
    return StoredMirror(
        state=MirrorState(stored.state),
        state_epoch=stored.state_epoch,
        leader_epoch=stored.leader_epoch,
        position=MirrorPosition(stored.position_epoch, stored.position_offset),
        is_aligned=stored.is_aligned,
        truncate_to=stored.truncate_to,
        fence_epoch=stored.fence_epoch,
        source_topic_id=None if stored.source_topic_id == NO_TOPIC_ID else stored.source_topic_id,
        reason=stored.reason,
    )


def stored_form(mirror: StoredMirror) -> MirrorStored:
    return MirrorStored(
        state=int(mirror.state),
        state_epoch=mirror.state_epoch,
        leader_epoch=mirror.leader_epoch,
        position_epoch=mirror.position.epoch,
        position_offset=mirror.position.offset,
        is_aligned=mirror.is_aligned,
        truncate_to=mirror.truncate_to,
        fence_epoch=mirror.fence_epoch,
        source_topic_id=mirror.source_topic_id or NO_TOPIC_ID,
        reason=mirror.reason,
    )
