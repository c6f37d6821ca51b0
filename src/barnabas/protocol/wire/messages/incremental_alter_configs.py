"""Table: IncrementalAlterConfigs (key 44) changes single configuration values: set, delete, append, subtract."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, boolean, int8, int16, int32, string


class AlterableConfig(MessageStruct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(null="0+", sensitive=True)


class AlterConfigsResource(MessageStruct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(MessageStruct):
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
