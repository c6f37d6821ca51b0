"""Machine: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, and the expiry of offsets.

OffsetCommit  v2-4 have a retention time in the request; v9 serves consumer groups; v10 identifies topics by id.
OffsetFetch   v1-7 one group; v8 several groups; v9 checks the member epoch; v10 identifies topics by id. A null list of
              topics requests all offsets of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_TOPIC_ID, TopicId
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.server.coordination.group import groups
from barnabas.server.coordination.group.classic import rebalance as classic_rebalance
from barnabas.server.coordination.group.classic.group import PREPARING, STABLE, ClassicGroup
from barnabas.server.coordination.group.config import GroupCoordinatorConfig
from barnabas.server.coordination.group.groups import GroupTable
from barnabas.server.coordination.group.offset_store import (
    NO_OFFSET,
    CommittedOffset,
    OffsetStore,
    commit_record,
    commit_tombstone,
)
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import CatalogTopic, GroupRequestContext, ProducerIdAndEpoch, TopicCatalog

TOPIC_IDS_FROM: Final = 10
MEMBER_EPOCHS_FROM: Final = 9


class OffsetsSummary(Struct, frozen=True):
    """The counts of a group's offsets, and their expiry."""

    committed: int
    pending: int
    """The number of offsets of open transactions."""
    kept: int
    """The number of committed offsets that do not expire in the group's current state."""
    retention_ms: int
    first_expiry_ms: int
    """The time at which the next offset expires; -1 if none expires."""


def resolve(topics: TopicCatalog, name: str, topic_id: TopicId, api_version: int) -> CatalogTopic | ErrorCode:
    """The topic of a request: identified by name before version 10, and by id since then."""
    if api_version >= TOPIC_IDS_FROM:
        return topics.by_id(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    return topics.by_name(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Offsets:
    """The offset APIs for the groups of one shard."""

    def __init__(self, config: GroupCoordinatorConfig, table: GroupTable, store: OffsetStore) -> None:
        self._config = config
        self._table = table
        self._store = store

    # -- commit --------------------------------------------------------------------------------------------------

    def commit(
        self, op: WriteOperation, ctx: GroupRequestContext, topics: TopicCatalog, request: OffsetCommitRequest
    ) -> OffsetCommitResponse:
        """Handle OffsetCommit. Raises KafkaError if the member may not commit offsets of the group."""
        group = self._table.get(request.group_id)
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                modern = ctx.api_version >= MEMBER_EPOCHS_FROM
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if modern else ErrorCode.ILLEGAL_GENERATION)
            group = self._table.classic_or_new(request.group_id)
        groups.check_offset_commit(
            group,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            transactional=False,
            api_version=ctx.api_version,
        )
        if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING):
            member = group.members.get(request.member_id)
            if member is not None:
                classic_rebalance.schedule_session_timeout(op, group, member)
        retention = request.retention_time_ms
        expires = -1 if retention == -1 else op.now_ms + retention
        response = OffsetCommitResponse()
        for requested in request.topics:
            topic = resolve(topics, requested.name, requested.topic_id, ctx.api_version)
            topic_response = OffsetCommitResponseTopic(name=requested.name, topic_id=requested.topic_id)
            response.topics.append(topic_response)
            for p in requested.partitions:
                code = self._check_partition(topic, p.partition_index, p.committed_metadata)
                topic_response.partitions.append(
                    OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                )
                if code is ErrorCode.NONE and not isinstance(topic, ErrorCode):
                    timestamp = op.now_ms if p.commit_timestamp == -1 else p.commit_timestamp
                    stored = CommittedOffset(
                        p.committed_offset,
                        p.committed_leader_epoch,
                        p.committed_metadata or "",
                        timestamp,
                        expires,
                        topic.topic_id,
                    )
                    op.write(commit_record(request.group_id, topic.name, p.partition_index, stored))
        return response

    def commit_transactional(
        self, op: WriteOperation, ctx: GroupRequestContext, topics: TopicCatalog, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse:
        """Handle TxnOffsetCommit: write offsets that take effect when the producer's transaction commits. Raises
        KafkaError."""
        group = self._table.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            group = self._table.classic_or_new(request.group_id)
        try:
            groups.check_offset_commit(
                group,
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                transactional=True,
                api_version=ctx.api_version,
            )
        except KafkaError as error:
            if error.code is ErrorCode.STALE_MEMBER_EPOCH:  # TxnOffsetCommit does not define this code
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from error
            raise
        op.producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        response = TxnOffsetCommitResponse()
        for requested in request.topics:
            topic = resolve(topics, requested.name, NO_TOPIC_ID, 0)
            topic_response = TxnOffsetCommitResponseTopic(name=requested.name)
            response.topics.append(topic_response)
            for p in requested.partitions:
                code = self._check_partition(topic, p.partition_index, p.committed_metadata)
                topic_response.partitions.append(
                    TxnOffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                )
                if code is ErrorCode.NONE and not isinstance(topic, ErrorCode):
                    stored = CommittedOffset(
                        p.committed_offset,
                        p.committed_leader_epoch,
                        p.committed_metadata or "",
                        op.now_ms,
                        topic_id=topic.topic_id,
                    )
                    op.write(commit_record(request.group_id, topic.name, p.partition_index, stored))
        return response

    def _check_partition(self, topic: CatalogTopic | ErrorCode, partition: int, metadata: str | None) -> ErrorCode:
        if isinstance(topic, ErrorCode):
            return topic
        if not 0 <= partition < topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self._check_metadata(metadata)

    def _check_metadata(self, metadata: str | None) -> ErrorCode:
        too_large = metadata is not None and len(metadata) > self._config.offset_metadata_max_bytes
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else ErrorCode.NONE

    # -- fetch ---------------------------------------------------------------------------------------------------

    def fetch(
        self, topics: TopicCatalog, request: OffsetFetchRequestGroup, api_version: int, *, stable: bool
    ) -> OffsetFetchResponseGroup:
        """The offsets of one group. Raises KafkaError.

        With `stable` (`require_stable`, KIP-447) the newest state is read, and the caller waits until that state is
        committed; an offset that an open transaction has written gets UNSTABLE_OFFSET_COMMIT. Without `stable` the
        committed state is read.
        """
        group_id = request.group_id
        exists = True
        try:
            group = self._table.find(group_id) if stable else self._table.find_committed(group_id)
            groups.check_offset_fetch(group, request.member_id, request.member_epoch, committed=not stable)
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            exists = False
        response = OffsetFetchResponseGroup(group_id=group_id)
        if request.topics is None:
            if exists:
                response.topics = self._fetch_all(topics, group_id, api_version, stable=stable)
            return response
        for requested in request.topics:
            topic = self._find_topic(topics, requested.name, requested.topic_id, api_version)
            topic_response = OffsetFetchResponseTopics(name=requested.name, topic_id=requested.topic_id)
            response.topics.append(topic_response)
            for p in requested.partition_indexes:
                if topic is None:
                    topic_response.partitions.append(_no_offset(p, ErrorCode.UNKNOWN_TOPIC_ID))
                    continue
                name, topic_id = topic
                found = self._store.one(group_id, name, p, committed=not stable) if exists else None
                if found is not None and NO_TOPIC_ID not in (topic_id, found.topic_id) and found.topic_id != topic_id:
                    found = None  # the offset belongs to a deleted topic with the same name
                unstable = stable and exists and self._store.is_unstable(group_id, name, p)
                topic_response.partitions.append(_partition_response(p, found, unstable=unstable))
        return response

    def _find_topic(
        self, topics: TopicCatalog, name: str, topic_id: TopicId, api_version: int
    ) -> tuple[str, TopicId] | None:
        """The topic's name and id; None if the id is unknown. A deleted topic that is requested by name may have
        offsets."""
        if api_version >= TOPIC_IDS_FROM:
            by_id = topics.by_id(topic_id)
            return None if by_id is None else (by_id.name, topic_id)
        return name, NO_TOPIC_ID

    def _fetch_all(
        self, topics: TopicCatalog, group_id: str, api_version: int, *, stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        topic_responses: dict[str, OffsetFetchResponseTopics] = {}
        offsets = self._store.view(group_id, committed=not stable)
        for topic, partition in sorted(offsets):
            topic_response = topic_responses.get(topic)
            if topic_response is None:
                view = topics.by_name(topic)
                if view is None and api_version >= TOPIC_IDS_FROM:
                    continue  # a deleted topic has no id
                topic_id = NO_TOPIC_ID if view is None else view.topic_id
                topic_response = topic_responses[topic] = OffsetFetchResponseTopics(name=topic, topic_id=topic_id)
            unstable = stable and self._store.is_unstable(group_id, topic, partition)
            topic_response.partitions.append(
                _partition_response(partition, offsets[(topic, partition)], unstable=unstable)
            )
        return list(topic_responses.values())

    # -- delete and expire ---------------------------------------------------------------------------------------

    def delete(self, op: WriteOperation, topics: TopicCatalog, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Handle OffsetDelete. Raises KafkaError if the group does not exist or if its offsets may not be deleted."""
        group = self._table.find(request.group_id)
        groups.check_offset_delete(group)
        response = OffsetDeleteResponse()
        for requested in request.topics:
            topic_response = OffsetDeleteResponseTopic(name=requested.name)
            response.topics.append(topic_response)
            subscribed = groups.is_subscribed_to(group, requested.name)
            view = topics.by_name(requested.name)
            for p in requested.partitions:
                known = self._is_known(request.group_id, requested.name, p.partition_index)
                code = ErrorCode.NONE
                if subscribed:
                    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif not known and (view is None or not 0 <= p.partition_index < view.partitions):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topic_response.partitions.append(
                    OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=code)
                )
                if known and not subscribed:
                    op.write(commit_tombstone(request.group_id, requested.name, p.partition_index))
        return response

    def _is_known(self, group_id: str, topic: str, partition: int) -> bool:
        store = self._store
        return store.get(group_id, topic, partition) is not None or store.is_unstable(group_id, topic, partition)

    def delete_all(self, op: WriteOperation, group_id: str) -> None:
        """Write tombstones for all committed and pending offsets of the group."""
        for topic, partition in self._store.known_partitions(group_id):
            op.write(commit_tombstone(group_id, topic, partition))

    def expire(self, op: WriteOperation) -> None:
        """Delete the offsets whose retention has passed, and empty groups without offsets."""
        op.atomic = False
        for group_id in sorted(self._table.by_id):
            group = self._table.by_id[group_id]
            if self._expire_group(op, group_id, group) and groups.is_removable(group):
                op.write(*groups.tombstones(group))
        self._store.compact()

    def _expire_group(self, op: WriteOperation, group_id: str, group: groups.Group) -> bool:
        """Delete the group's expired offsets. Returns whether the group has no offsets left."""
        remains = False
        for (topic, partition), stored in sorted(self._store.view(group_id, committed=False).items()):
            expires_ms = self.expires_ms(group, topic, partition, stored)
            if expires_ms is not None and op.now_ms >= expires_ms:
                op.write(commit_tombstone(group_id, topic, partition))
            else:
                remains = True
        return not remains and not self._store.has_open_transactions(group_id)

    def expires_ms(self, group: groups.Group, topic: str, partition: int, stored: CommittedOffset) -> int | None:
        """The time at which the offset expires; None if it does not expire in the group's current state."""
        base = groups.expiry_base_ms(group, stored.commit_timestamp_ms)
        if base is None or groups.is_subscribed_to(group, topic):
            return None
        if self._store.is_unstable(group.group_id, topic, partition):
            return None
        if stored.expire_timestamp_ms != -1:
            return stored.expire_timestamp_ms
        return base + self._config.offsets_retention_ms

    def summary(self, group: groups.Group) -> OffsetsSummary:
        """The counts of the group's offsets, for ExplainGroup."""
        view = self._store.view(group.group_id, committed=False)
        times = [self.expires_ms(group, topic, partition, stored) for (topic, partition), stored in view.items()]
        due = [time for time in times if time is not None]
        known = self._store.known_partitions(group.group_id)
        return OffsetsSummary(
            len(view),
            sum(self._store.is_unstable(group.group_id, topic, partition) for topic, partition in known),
            len(times) - len(due),
            self._config.offsets_retention_ms,
            min(due, default=-1),
        )

    def on_topics_deleted(self, op: WriteOperation, deleted: Sequence[str]) -> None:
        """Delete all offsets of deleted topics."""
        gone = set(deleted)
        op.atomic = False
        for group_id in self._store.groups():
            for topic, partition in self._store.known_partitions(group_id):
                if topic in gone:
                    op.write(commit_tombstone(group_id, topic, partition))


def _partition_response(
    partition: int, found: CommittedOffset | None, *, unstable: bool
) -> OffsetFetchResponsePartitions:
    if unstable:
        return _no_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if found is None:
        return _no_offset(partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _no_offset(partition: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=NO_OFFSET, metadata="", error_code=code
    )
