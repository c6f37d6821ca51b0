"""Table: AlterClientQuotas (key 49) sets or removes quotas."""

from __future__ import annotations

from barnabas.protocol.wire.schema import (
    MessageStruct,
    Request,
    Response,
    array,
    boolean,
    float64,
    int16,
    int32,
    string,
)


class EntityData(MessageStruct):
    entity_type: str = string()
    entity_name: str | None = string(null="0+")


class OpData(MessageStruct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class EntryData(MessageStruct):
    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class EntryDataResponse(MessageStruct):
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    entries: list[EntryDataResponse] = array(EntryDataResponse)
