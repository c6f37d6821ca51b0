"""Table: OffsetDelete (key 47) deletes a group's offsets for topics that the group no longer subscribes to."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int16, int32, string


class OffsetDeleteRequestPartition(MessageStruct):
    partition_index: int = int32()


class OffsetDeleteRequestTopic(MessageStruct):
    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Request, key=47, versions="0"):
    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(MessageStruct):
    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(MessageStruct):
    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Response, key=47, versions="0"):
    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
