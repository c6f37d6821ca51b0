"""Machine: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, and the expiry of offsets.

OffsetCommit  v2-4 have a retention time in the request; v9 serves consumer groups; v10 identifies topics by id.

The records of a commit are built in `commit_build`, the response of a fetch in `offset_fetch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
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
)
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from barnabas.server.coordination.group import groups
from barnabas.server.coordination.group.classic import rebalance as classic_rebalance
from barnabas.server.coordination.group.classic.group import PREPARING, STABLE, ClassicGroup
from barnabas.server.coordination.group.commit_build import (
    BuiltCommit,
    CommitRules,
    Encode,
    Steps,
    build_offset_commit,
    build_txn_offset_commit,
    finish,
)
from barnabas.server.coordination.group.config import GroupCoordinatorConfig
from barnabas.server.coordination.group.groups import GroupTable
from barnabas.server.coordination.group.offset_fetch import fetch_offsets
from barnabas.server.coordination.group.offset_store import (
    CommittedOffset,
    CommittedOffsets,
    commit_tombstone,
)
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.ports import GroupRequestContext, ProducerIdAndEpoch, TopicCatalog

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


class Offsets:
    """The offset APIs for the groups of one shard."""

    def __init__(self, config: GroupCoordinatorConfig, table: GroupTable, store: CommittedOffsets) -> None:
        self._config = config
        self._table = table
        self._store = store

    def commit_rules(self, api_version: int, now_ms: int, encode: Encode | None = None) -> CommitRules:
        """The rules by which a commit is built."""
        return CommitRules(api_version, now_ms, self._config.offset_metadata_max_bytes, encode)

    # -- commit --------------------------------------------------------------------------------------------------

    def commit(
        self,
        op: WriteOperation,
        ctx: GroupRequestContext,
        topics: TopicCatalog,
        request: OffsetCommitRequest,
        built: BuiltCommit[OffsetCommitResponse] | None = None,
    ) -> OffsetCommitResponse:
        """Handle OffsetCommit. `built` are its records, if they were built before. Raises KafkaError if the member may
        not commit offsets of the group."""
        group = self._table.get(request.group_id)
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                modern = ctx.api_version >= MEMBER_EPOCHS_FROM
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if modern else ErrorCode.ILLEGAL_GENERATION)
            if built is None or not built.is_current(request.topics, topics, ctx.api_version):
                built = finish(build_offset_commit(self.commit_rules(ctx.api_version, op.now_ms), topics, request))
            if not built.records:
                return built.response  # all topics are unknown: no offset is written, and no group begins
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
        if built is None or not built.is_current(request.topics, topics, ctx.api_version):
            built = finish(build_offset_commit(self.commit_rules(ctx.api_version, op.now_ms), topics, request))
        op.write(*built.records)
        op.encoded = built.encoded
        return built.response

    def commit_transactional(
        self,
        op: WriteOperation,
        ctx: GroupRequestContext,
        topics: TopicCatalog,
        request: TxnOffsetCommitRequest,
        built: BuiltCommit[TxnOffsetCommitResponse] | None = None,
    ) -> TxnOffsetCommitResponse:
        """Handle TxnOffsetCommit: write offsets that take effect when the producer's transaction commits. Raises
        KafkaError."""
        group = self._table.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            if built is None or not built.is_current(request.topics, topics, 0):
                built = finish(build_txn_offset_commit(self.commit_rules(ctx.api_version, op.now_ms), topics, request))
            if not built.records:
                return built.response  # all topics are unknown: no offset is written, and no group begins
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
        if built is None or not built.is_current(request.topics, topics, 0):
            built = finish(build_txn_offset_commit(self.commit_rules(ctx.api_version, op.now_ms), topics, request))
        op.write(*built.records)
        op.encoded = built.encoded
        return built.response

    # -- fetch ---------------------------------------------------------------------------------------------------

    def fetch(
        self, topics: TopicCatalog, request: OffsetFetchRequestGroup, api_version: int, *, stable: bool
    ) -> Steps[OffsetFetchResponseGroup]:
        """The offsets of one group, as a response that is built in slices (`fetch_offsets`). Raises KafkaError."""
        return fetch_offsets(self._table, self._store, topics, request, api_version, stable=stable)

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
