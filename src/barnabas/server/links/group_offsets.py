"""Shell: copies the offsets of groups from the source of a link.

Offsets are the same on both sides, but a mirror may have fewer records than the source, or start later: an offset is
moved to the nearest record that is here. Offsets of a group with members here are never changed: the coordinator of the
group rejects the request. Commits have no leader epoch, because the epochs of the source mean nothing to clients here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, TopicId
from barnabas.protocol.wire.messages import alter_share_group_offsets as altering
from barnabas.protocol.wire.messages import offset_commit as committing
from barnabas.server.links.changes import LocalMirrors
from barnabas.server.links.coordination.planning import Key, LocalFacts, MirrorBounds, Patterns, plan_offsets
from barnabas.server.links.coordination.values import StoredLink
from barnabas.server.links.fetching.ports import SourceRequests
from barnabas.server.links.router import raise_error
from barnabas.server.links.source_reading import (
    SourceGroup,
    SourceMetadata,
    read_groups,
    read_offsets,
)
from barnabas.server.peers.peer_router import PeerRouter

_HAS_MEMBERS: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP, ErrorCode.ILLEGAL_GENERATION})
_METADATA: Final = "barnabas-link"
"""The metadata of commits: who has committed."""


class PeerRequests:
    """Requests of this broker to the brokers of its own cluster, this one included."""

    def __init__(self, router: PeerRouter) -> None:
        self._router = router

    async def to_coordinator(self, group_id: str, request: Any) -> Any:
        """The response of the group's coordinator. Raises KafkaError."""
        local = self._router.local
        if CONSUMER_OFFSETS_TOPIC not in local.metadata.image.topics:
            await local.topic_creation.create_missing(None, [CONSUMER_OFFSETS_TOPIC])
        return await self._router.send(self._router.coordinator(CONSUMER_OFFSETS_TOPIC, group_id), request, "links")


class GroupOffsets:
    """Copies the offsets of the groups of one link."""

    def __init__(self, link: StoredLink, mirrors: LocalMirrors, peers: PeerRequests) -> None:
        self._patterns = Patterns(link.groups, link.groups_exclude)
        self._copies = bool(link.groups)
        self._mirrors = mirrors
        self._peers = peers

    async def follow(self, source: SourceRequests, metadata: SourceMetadata, own: Sequence[LocalFacts]) -> list[str]:
        """Copy the offsets of all groups for the mirrors `own`. Returns what went wrong. Raises KafkaError if the
        groups of the source cannot be listed."""
        if not self._copies or not own:
            return []
        groups = [g for g in await read_groups(source, metadata.brokers) if self._patterns.matches(g.group_id)]
        if not groups:
            return []
        keys = [(topic.name, index) for topic in own for index in range(topic.partitions)]
        bounds = await self._mirrors.bounds(keys)
        names = {topic.topic_id: name for name, topic in metadata.topics.items() if topic.topic_id is not None}
        ids = {topic.name: topic.topic_id for topic in own}
        troubles = []
        for group in groups:
            try:
                await self._copy(source, group, names, ids, bounds)
            except KafkaError as error:
                if error.code not in _HAS_MEMBERS:
                    troubles.append(f"group {group.group_id}: {error}")
        return troubles

    async def _copy(
        self,
        source: SourceRequests,
        group: SourceGroup,
        names: Mapping[TopicId, str],
        ids: Mapping[str, TopicId],
        bounds: Mapping[Key, MirrorBounds],
    ) -> None:
        there = {key: offset for key, offset in (await read_offsets(source, group, names)).items() if key in bounds}
        if not there:
            return
        here_as = SourceGroup(group.group_id, -1, group.is_share)
        try:
            here = await read_offsets(_Here(self._peers, group.group_id), here_as, {ids[name]: name for name in ids})
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            here = {}
        commits = plan_offsets(there, bounds, here)
        if commits and group.is_share:
            await self._alter_share_group(group.group_id, commits)
        elif commits:
            await self._commit(group.group_id, ids, commits)

    async def _commit(self, group_id: str, ids: Mapping[str, TopicId], commits: Mapping[Key, int]) -> None:
        topics: dict[str, committing.OffsetCommitRequestTopic] = {}
        for (name, index), offset in commits.items():
            entry = topics.setdefault(name, committing.OffsetCommitRequestTopic(name=name, topic_id=ids[name]))
            entry.partitions.append(
                committing.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=_METADATA
                )
            )
        request = committing.OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
        response = await self._peers.to_coordinator(group_id, request)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise KafkaError(error_code(partition.error_code))

    async def _alter_share_group(self, group_id: str, commits: Mapping[Key, int]) -> None:
        topics: dict[str, altering.AlterShareGroupOffsetsRequestTopic] = {}
        for (name, index), offset in commits.items():
            entry = topics.setdefault(name, altering.AlterShareGroupOffsetsRequestTopic(topic_name=name))
            entry.partitions.append(
                altering.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
            )
        request = altering.AlterShareGroupOffsetsRequest(group_id=group_id, topics=list(topics.values()))
        response = await self._peers.to_coordinator(group_id, request)
        raise_error(response)
        for topic in response.responses:
            for partition in topic.partitions:
                raise_error(partition)


class _Here:
    """This cluster as `read_offsets` asks it: every request goes to the coordinator of one group."""

    def __init__(self, peers: PeerRequests, group_id: str) -> None:
        self._peers = peers
        self._group_id = group_id

    async def request(self, message: Any, node_id: int | None = None) -> Any:
        return await self._peers.to_coordinator(self._group_id, message)
