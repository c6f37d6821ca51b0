"""Table: UpdateFeatures (key 57) raises or lowers the finalized level of cluster features."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(MessageStruct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(MessageStruct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+")


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
