"""Table: AlterLink (key 10003, not in Kafka) creates, changes or deletes a cluster link."""

from __future__ import annotations

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    boolean,
    int8,
    int16,
    int32,
    nested,
    string,
)


class LinkSetting(MessageStruct):
    """One setting of a link. A value may be a password, so it is never logged."""

    name: str = string()
    value: str = string(sensitive=True)


class LinkData(MessageStruct):
    """A link as it is stored, requested and described."""

    name: str = string()
    bootstrap_servers: str = string()
    client: list[LinkSetting] = array(LinkSetting)
    topics: list[str] = array(string)
    topics_exclude: list[str] = array(string)
    groups: list[str] = array(string)
    groups_exclude: list[str] = array(string)
    acls: list[str] = array(string)
    settings: list[LinkSetting] = array(LinkSetting)
    source_cluster_id: str | None = string(null="0+", default=None)
    version: int = int32()


class AlterLinkRequest(Request, key=10003, versions="0", flexible="0+"):
    operation: int = int8()
    validate_only: bool = boolean()
    only_local: bool = boolean()
    link: LinkData = nested(LinkData)


class AlterLinkResponse(Response, key=10003, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    link: LinkData = nested(LinkData)
