"""Table: ReadLink (key 10007, not in Kafka): a broker reads the definition of a link, passwords included."""

from __future__ import annotations

from barnabas.protocol.wire.messages.alter_link import LinkData
from barnabas.protocol.wire.schema import Request, Response, int16, int32, nested, string


class ReadLinkRequest(Request, key=10007, versions="0", flexible="0+"):
    link: str = string()


class ReadLinkResponse(Response, key=10007, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    link: LinkData | None = nested(LinkData, null="0+", default=None)
