"""Table: WriteMirrorState (key 10009, not in Kafka): the leader of a mirror partition stores its state."""

from __future__ import annotations

from uuid import UUID

from barnabas.protocol.wire.messages.read_mirror_state import MirrorStateData
from barnabas.protocol.wire.schema import Request, Response, int16, int32, nested, string, uuid


class WriteMirrorStateRequest(Request, key=10009, versions="0", flexible="0+"):
    link: str = string()
    topic_id: UUID = uuid()
    partition: int = int32()
    state: MirrorStateData = nested(MirrorStateData)


class WriteMirrorStateResponse(Response, key=10009, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
