"""Table: DescribeLinks (key 10004, not in Kafka): links, and the stored states of their mirror partitions."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.messages.alter_link import LinkData
from barnabas.protocol.wire.messages.read_mirror_state import MirrorStateData
from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    boolean,
    int16,
    int32,
    nested,
    string,
    uuid,
)


class DescribeLinksRequest(Request, key=10004, versions="0", flexible="0+"):
    names: list[str] | None = array(string, null="0+", default=None)
    include_mirrors: bool = boolean()
    topic_ids: list[UUID] | None = array(uuid, null="0+", default=None)
    only_local: bool = boolean()


class StoredPartition(MessageStruct):
    topic_id: UUID = uuid()
    topic: str | None = string(null="0+", default=None)
    partition: int = int32()
    state: MirrorStateData = nested(MirrorStateData)


class DescribedLink(MessageStruct):
    link: LinkData = nested(LinkData)
    coordinator_id: int = int32(default=-1)
    trouble: str = string()
    mirrors: list[StoredPartition] = array(StoredPartition)


class DescribeLinksResponse(Response, key=10004, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    links: list[DescribedLink] = array(DescribedLink)
