"""Value: remote segments, and the events that describe them in `__remote_log_metadata`.

A remote segment is the copy of one closed segment in the object store. It has an id of its own, because two leaders may
copy the same offsets: each attempt to copy is another remote segment. The states and their order are those of KIP-405:

    COPY_SEGMENT_STARTED ──► COPY_SEGMENT_FINISHED ──► DELETE_SEGMENT_STARTED ──► DELETE_SEGMENT_FINISHED
            └──────────────── the copy failed ─────────────────▲

    DELETE_PARTITION_MARKED ──► DELETE_PARTITION_STARTED ──► DELETE_PARTITION_FINISHED
"""

from __future__ import annotations

from enum import IntEnum
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from barnabas.core.ids import TopicId
from barnabas.server.storage.epochs import EpochEntry
from barnabas.server.storage.producers.state import ProducerEntry


class RemoteSegmentState(IntEnum):
    """The state of a remote segment; the numbers are those of Kafka's RemoteLogSegmentState."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3

    def may_become(self, following: RemoteSegmentState) -> bool:
        """Whether an event may change this state to `following`. A repeated event changes nothing and is valid."""
        if self is RemoteSegmentState.COPY_SEGMENT_STARTED:
            return following is not RemoteSegmentState.DELETE_SEGMENT_FINISHED
        return following in (self, self + 1)


class PartitionDeleteState(IntEnum):
    """The state of a deleted partition; the numbers are those of Kafka's RemotePartitionDeleteState."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2

    def may_become(self, following: PartitionDeleteState) -> bool:
        """Whether an event may change this state to `following`."""
        return following in (self, self + 1)


class RemotePartition(Struct, frozen=True, order=True):
    """A partition whose segments are copied. The topic's id, not its name, tells it from an older topic."""

    topic_id: TopicId
    partition: int
    topic: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RemoteSegmentId(Struct, frozen=True, order=True):
    """One copy of one segment."""

    partition: RemotePartition
    id: UUID


class RemoteSegment(Struct, frozen=True):
    """A remote segment. As an event, it begins a copy: its state is then COPY_SEGMENT_STARTED."""

    id: RemoteSegmentId
    start_offset: int
    """The base offset of the segment."""
    end_offset: int
    """The last offset of the segment, inclusive."""
    broker_id: int
    max_timestamp: int
    """The largest timestamp of the segment's records; -1 if no record has one."""
    event_timestamp: int
    """The time at which the state last changed, in milliseconds."""
    leader_epochs: tuple[EpochEntry, ...]
    """The leader epochs of the segment's records; the first begins at `start_offset`."""
    size_bytes: int
    """The size of the `.log` file."""
    custom_metadata: bytes | None = None
    """Kafka's storage plug-ins may attach some bytes. We attach none, and keep those of others."""
    state: RemoteSegmentState = RemoteSegmentState.COPY_SEGMENT_STARTED
    txn_index_empty: bool = False
    """Whether the segment has no abort marker, so that no transaction index was copied."""

    @property
    def is_readable(self) -> bool:
        return self.state is RemoteSegmentState.COPY_SEGMENT_FINISHED

    def updated(self, update: RemoteSegmentUpdate) -> RemoteSegment:
        """The segment after `update`, whose transition has been checked."""
        custom = self.custom_metadata if update.custom_metadata is None else update.custom_metadata
        return replace(
            self,
            broker_id=update.broker_id,
            event_timestamp=update.event_timestamp,
            custom_metadata=custom,
            state=update.state,
        )

    def update(self, state: RemoteSegmentState, broker_id: int, now_ms: int) -> RemoteSegmentUpdate:
        """The event that changes this segment's state to `state`."""
        return RemoteSegmentUpdate(self.id, broker_id, now_ms, state)


class RemoteSegmentUpdate(Struct, frozen=True):
    """The event that changes the state of a remote segment."""

    id: RemoteSegmentId
    broker_id: int
    event_timestamp: int
    state: RemoteSegmentState
    custom_metadata: bytes | None = None


class RemotePartitionDelete(Struct, frozen=True):
    """The event that changes the deletion state of a partition whose topic has been deleted."""

    partition: RemotePartition
    broker_id: int
    event_timestamp: int
    state: PartitionDeleteState


class CopiedState(Struct, frozen=True):
    """The state of a log at the end of a remote segment: a follower can continue its own log there."""

    end_offset: int
    """The offset after the segment's last one."""
    leader_epochs: tuple[EpochEntry, ...]
    """The leader epochs of the records below `end_offset`."""
    producers: tuple[ProducerEntry, ...]
    """The producers as of `end_offset`."""


RemoteLogEvent = RemoteSegment | RemoteSegmentUpdate | RemotePartitionDelete
"""One record of `__remote_log_metadata`."""


def partition_of(event: RemoteLogEvent) -> RemotePartition:
    """The partition that an event is about."""
    return event.partition if isinstance(event, RemotePartitionDelete) else event.id.partition
