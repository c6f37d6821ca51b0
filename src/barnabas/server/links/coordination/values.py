"""Value: a link, and the stored state of a mirror partition, as the coordinator of links keeps them.

The fields of `MirrorStored` are those that the leaders of mirror partitions write. The coordinator reads the state and
the two epochs only; the other fields are for the next leader.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct

from barnabas.core.ids import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicId

NO_STATE: Final = 0
"""The state of a partition whose leader has read, and not yet written."""
STOPPED: Final = 7
"""`MirrorState.STOPPED` of the leaders: the partition is no mirror any more."""


class MirrorId(Struct, frozen=True, order=True):
    """Names the stored state of one mirror partition."""

    link: str
    topic_id: TopicId
    partition: int


class MirrorStored(Struct, frozen=True):
    """The state of a mirror partition, as its leader has written it."""

    state: int = NO_STATE
    state_epoch: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    position_epoch: int = NO_LEADER_EPOCH
    position_offset: int = -1
    is_aligned: bool = False
    truncate_to: int = -1
    fence_epoch: int = NO_LEADER_EPOCH
    source_topic_id: UUID = NO_TOPIC_ID
    reason: str = ""


Settings = tuple[tuple[str, str], ...]


class StoredLink(Struct, frozen=True):
    """The definition of a link."""

    name: str
    bootstrap_servers: str
    client: Settings = ()
    topics: tuple[str, ...] = ()
    topics_exclude: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    groups_exclude: tuple[str, ...] = ()
    acls: tuple[str, ...] = ()
    settings: Settings = ()
    source_cluster_id: str | None = None
    version: int = 0
