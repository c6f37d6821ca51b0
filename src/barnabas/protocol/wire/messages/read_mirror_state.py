"""Table: ReadMirrorState (key 10008, not in Kafka): the leader of a mirror partition reads its stored state."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nested,
    string,
    uuid,
)


class MirrorStateData(MessageStruct):
    """The state of one mirror partition, as its leader stores it. State 0: nothing is stored yet."""

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


class ReadMirrorStateRequest(Request, key=10008, versions="0", flexible="0+"):
    link: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()
    leader_epoch: int = int32()


class ReadMirrorStateResponse(Response, key=10008, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    state: MirrorStateData = nested(MirrorStateData)
