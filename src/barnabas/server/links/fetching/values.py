"""Value: links, mirror partitions and what is stored about them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from uuid import UUID

from msgspec import Struct, field

from barnabas.core.ids import NO_LEADER_EPOCH
from barnabas.core.reprs import repr_without
from barnabas.server.links.fetching.states import MirrorState

NO_OFFSET = -1


class MirrorMode(StrEnum):
    """What the operator wants of a mirror topic: the values of the topic config `mirror.state`.

    A topic is a mirror, and refuses writes, exactly as long as `mirror.name` is set and `mirror.state` is not STOPPED.
    """

    ACTIVE = "active"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"


class MirrorPosition(Struct, frozen=True):
    """The end of what is mirrored: the offset after the last mirrored record, and that record's leader epoch."""

    epoch: int = NO_LEADER_EPOCH
    offset: int = NO_OFFSET


UNKNOWN_POSITION = MirrorPosition()


class StoredMirror(Struct, frozen=True):
    """The state of a mirror partition as its leader writes it to the coordinator of the link.

    `state_epoch` grows with each write. The coordinator refuses a write with a `leader_epoch` below the stored one
    (FENCED_LEADER_EPOCH), and one whose `state_epoch` is not above the stored one (FENCED_STATE_EPOCH).
    """

    state: MirrorState
    state_epoch: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    """The local leader epoch of the writer."""
    position: MirrorPosition = UNKNOWN_POSITION
    """Set when the partition is stopped. In STOPPED it is final: a failback truncates the other side to it."""
    is_aligned: bool = False
    truncate_to: int = NO_OFFSET
    """A truncation that is under way in LOG_ALIGNMENT or ULE_RECOVERY; -1 if there is none."""
    fence_epoch: int = NO_LEADER_EPOCH
    """The first leader epoch in which this truncation may be carried out."""
    source_topic_id: UUID | None = None
    """The topic's id in the source; None without topic ids (Kafka before 2.8), and before the source was asked."""
    reason: str = ""
    """The reason for which the partition is FAILED."""


class LinkDefinition(Struct, frozen=True):
    """A link: where the source is, and what of it is mirrored. Stored by the coordinator of the link."""

    name: str
    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of the connection by the names of Kafka's clients: security.protocol, sasl.*, ssl.*, ..."""
    topics: tuple[str, ...] = ()
    """Patterns of the topics that are mirrored. A pattern must match the whole name."""
    topics_exclude: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Patterns of the groups whose offsets are copied."""
    groups_exclude: tuple[str, ...] = ()
    acls: tuple[str, ...] = ()
    """Rules `type;name;operation;permission;principal` of the ACLs that are copied."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the link itself: mirror.*"""
    source_cluster_id: str | None = None
    version: int = 0
    """Grows with each change of the definition."""

    __repr__ = repr_without("client")


class MirrorReport(Struct, frozen=True):
    """What the leader of a mirror partition says about it now (`links list`, `links describe`, metrics)."""

    link: str
    topic: str
    partition: int
    state: MirrorState | None
    """The state of the mirror; None until the leader has read the stored state."""
    position: MirrorPosition
    source_high_watermark: int = NO_OFFSET
    lag: int = NO_OFFSET
    """The source's high watermark minus the local one, in records; -1 if the source has not answered yet."""
    lag_bytes: int = NO_OFFSET
    """The lag in bytes, estimated from the mean size of the records here; -1 if there is nothing to estimate from."""
    lag_ms: int = NO_OFFSET
    """For how long the mirror has been behind (`lag.py`); -1 if the source has not answered yet."""
    last_fetch_ms: int = NO_OFFSET
    """The time of the source's last answer (wall clock)."""
    skipped_records: int = 0
    """Offsets that retention deleted on the source before they were mirrored, since this leader was elected."""
    reason: str = ""
    """The reason for which the mirror does not advance, if it does not."""
