"""Table: the records of `__mirror_state`.

A record without a value deletes the link, or the state of the mirror partition. All records of a link are in the
partition to which the link's name hashes.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from barnabas.protocol.wire.schema import Message, MessageStruct, array, boolean, int8, int32, int64, string, uuid
from barnabas.server.coordination.log_format import LogFormat, RecordKind


class LinkKey(Message, versions="0"):
    """Kind 0: the definition of a link."""

    link: str = string()


class StoredSetting(MessageStruct):
    name: str = string()
    value: str = string(sensitive=True)


class LinkValue(Message, versions="0", flexible="0+"):
    bootstrap_servers: str = string()
    client: list[StoredSetting] = array(StoredSetting)
    topics: list[str] = array(string)
    topics_exclude: list[str] = array(string)
    groups: list[str] = array(string)
    groups_exclude: list[str] = array(string)
    acls: list[str] = array(string)
    settings: list[StoredSetting] = array(StoredSetting)
    source_cluster_id: str | None = string(null="0+", default=None)
    version: int = int32()


class MirrorKey(Message, versions="0"):
    """Kind 1: the state of a mirror partition."""

    link: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()


class MirrorValue(Message, versions="0", flexible="0+"):
    state: int = int8()
    state_epoch: int = int32()
    leader_epoch: int = int32(default=-1)
    position_epoch: int = int32(default=-1)
    position_offset: int = int64(default=-1)
    is_aligned: bool = boolean()
    truncate_to: int = int64(default=-1)
    fence_epoch: int = int32(default=-1)
    source_topic_id: UUID = uuid()
    reason: str = string()


FORMAT: Final = LogFormat([RecordKind(0, LinkKey, LinkValue), RecordKind(1, MirrorKey, MirrorValue)])
