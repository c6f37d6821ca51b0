"""Machine: DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets, and deletion of share groups.

The share coordinator stores the offsets. The group coordinator knows which share partitions exist, and rejects changes
to a group with members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId
from barnabas.server.coordination.group.share.group import ShareGroup
from barnabas.server.coordination.group.share.manager import ShareGroupManager
from barnabas.server.coordination.group.share.ports import StateTopic, StateTopics
from barnabas.server.coordination.operation import WriteOperation


class ShareGroupOffsets:
    """The offset APIs of one shard's share groups."""

    def __init__(self, groups: ShareGroupManager) -> None:
        self._groups = groups

    def _find_empty(self, group_id: str) -> ShareGroup:
        """The share group, which must have no members. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._groups.table.find_share(group_id)
        if not group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        return group

    def known_topics(self, op: WriteOperation, group_id: str) -> StateTopics:
        """The initialized share partitions. Raises KafkaError GROUP_ID_NOT_FOUND."""
        op.wait_for_pending = True
        return self._groups.table.find_share(group_id).states.value.initialized

    def begin_alter(self, op: WriteOperation, group_id: str, starts: Mapping[TopicId, Mapping[int, int]]) -> int:
        """Start to change the start offsets of share partitions. Returns the new state epoch, which fences partition
        leaders with the previous one. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.

        A group that does not exist is created, if the request has a partition that exists: the offsets of a group can
        be set before its first member joins.
        """
        if group_id in self._groups.table.by_id:
            group = self._find_empty(group_id)
        elif starts:
            group = self._groups.table.new_share(group_id)
        else:
            return 0
        topics: dict[TopicId, StateTopic] = {}
        for topic_id, offsets in starts.items():
            view = self._groups.catalog.by_id(topic_id)
            if view is not None:  # else the topic was deleted after the service has looked it up
                topics[topic_id] = StateTopic(view.name, frozenset(offsets))
        if topics:
            self._groups.raise_epoch(op, group, always=True)
            self._groups.apply_and_write(op, group.states_record(group.states.value.mark_initializing(topics)))
        return group.epoch.value

    def begin_delete(
        self, op: WriteOperation, group_id: str, topic_ids: Collection[TopicId] | None
    ) -> Mapping[TopicId, frozenset[int]]:
        """Start to delete the state of these topics, or of all topics (None). Returns the share partitions to delete:
        those that the group knows, and all of a topic whose earlier deletion has failed. Raises KafkaError."""
        group = self._find_empty(group_id)
        states = group.states.value
        known = {*states.initialized, *states.initializing, *states.deleting}
        chosen = known if topic_ids is None else known & set(topic_ids)
        partitions = {topic_id: states.known(topic_id) for topic_id in sorted(chosen)}
        for topic_id in sorted(chosen & states.deleting.keys()):
            view = self._groups.catalog.by_id(topic_id)
            if view is None:  # the share coordinator deletes the state of deleted topics by itself
                del partitions[topic_id]
            else:
                partitions[topic_id] = frozenset(range(view.partitions))
        if partitions:
            self._groups.apply_and_write(op, group.states_record(states.mark_deleting(partitions)))
        else:
            op.wait_for_pending = True
        return partitions

    def finish_delete(self, op: WriteOperation, group_id: str, topic_ids: Collection[TopicId]) -> None:
        """The share coordinator has deleted the state of these topics."""
        group = self._groups.table.share(group_id)
        if group is not None:
            after = group.states.value.remove_deleting(topic_ids)
            if after != group.states.value:
                self._groups.apply_and_write(op, group.states_record(after))
