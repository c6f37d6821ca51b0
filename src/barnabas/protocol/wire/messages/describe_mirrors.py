"""Table: DescribeMirrors (key 10006, not in Kafka): what a broker says about the mirror partitions that it leads."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, int8, int16, int32, int64, string


class DescribeMirrorsRequest(Request, key=10006, versions="0", flexible="0+"):
    links: list[str] | None = array(string, null="0+", default=None)


class DescribedMirror(MessageStruct):
    link: str = string()
    topic: str = string()
    partition: int = int32()
    state: int = int8()
    position_epoch: int = int32(default=-1)
    position_offset: int = int64(default=-1)
    source_high_watermark: int = int64(default=-1)
    lag: int = int64(default=-1)
    last_fetch_ms: int = int64(default=-1)
    skipped_records: int = int64()
    reason: str = string()


class DescribeMirrorsResponse(Response, key=10006, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    mirrors: list[DescribedMirror] = array(DescribedMirror)
