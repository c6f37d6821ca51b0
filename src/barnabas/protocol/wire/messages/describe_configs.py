"""Table: DescribeConfigs (key 32) shows configurations with their values, sources, synonyms and documentation."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, boolean, int8, int16, int32, string


class DescribeConfigsResource(MessageStruct):
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, null="0+")


class DescribeConfigsRequest(Request, key=32, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(MessageStruct):
    name: str = string()
    value: str | None = string(null="0+")
    source: int = int8()


class DescribeConfigsResourceResult(MessageStruct):
    name: str = string()
    value: str | None = string(null="0+")
    read_only: bool = boolean()
    is_default: bool = boolean("0")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", null="0+", ignorable=True)


class DescribeConfigsResult(MessageStruct):
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response, key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
