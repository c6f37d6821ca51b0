"""Table: DescribeClientQuotas (key 48) shows the quotas of users, client ids and addresses."""

from __future__ import annotations

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
)


class ComponentData(MessageStruct):
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(null="0+")


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class EntityData(MessageStruct):
    entity_type: str = string()
    entity_name: str | None = string(null="0+")


class ValueData(MessageStruct):
    key: str = string()
    value: float = float64()


class EntryData(MessageStruct):
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    entries: list[EntryData] | None = array(EntryData, null="0+")
