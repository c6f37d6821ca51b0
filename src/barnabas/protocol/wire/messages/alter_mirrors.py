"""Table: AlterMirrors (key 10005, not in Kafka) starts, pauses, resumes, stops or recovers mirror topics of a link."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, boolean, int8, int16, int32, string


class AlterMirrorsRequest(Request, key=10005, versions="0", flexible="0+"):
    link: str = string()
    operation: int = int8()
    topics: list[str] = array(string)
    validate_only: bool = boolean()
    only_local: bool = boolean()


class AlteredMirror(MessageStruct):
    topic: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    state: str = string()
    partitions: int = int32()


class AlterMirrorsResponse(Response, key=10005, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    topics: list[AlteredMirror] = array(AlteredMirror)
