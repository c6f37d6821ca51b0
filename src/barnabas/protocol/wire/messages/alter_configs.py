"""Table: AlterConfigs (key 33).

Replaces the whole configuration of resources (superseded by IncrementalAlterConfigs).
"""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, boolean, int8, int16, int32, string


class AlterableConfig(MessageStruct):
    name: str = string()
    value: str | None = string(null="0+", sensitive=True)


class AlterConfigsResource(MessageStruct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(MessageStruct):
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
