"""Table: the function that builds each transform and predicate from its settings, by the names in `definitions.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.spark.connectors.transforms.definitions import (
    PREDICATES,
    PREDICATES_PACKAGE,
    TRANSFORMS,
    TRANSFORMS_PACKAGE,
    Definition,
)
from barnabas.spark.connectors.transforms.headers import build_drop_headers, build_header_from, build_insert_header
from barnabas.spark.connectors.transforms.metadata import (
    build_insert_field,
    build_set_schema_metadata,
    build_value_to_key,
)
from barnabas.spark.connectors.transforms.records import Part
from barnabas.spark.connectors.transforms.reshaping import (
    build_extract_field,
    build_flatten,
    build_hoist_field,
    build_replace_field,
)
from barnabas.spark.connectors.transforms.routing import (
    Predicate,
    build_has_header_key,
    build_record_is_tombstone,
    build_regex_router,
    build_timestamp_router,
    build_topic_name_matches,
)
from barnabas.spark.connectors.transforms.settings import Settings, Transform
from barnabas.spark.connectors.transforms.timestamps import build_timestamp_converter
from barnabas.spark.connectors.transforms.unwrapping import DEBEZIUM_PACKAGE, UNWRAP, build_unwrap
from barnabas.spark.connectors.transforms.values import build_cast, build_mask_field


def build_filter(settings: Settings) -> Transform:
    """Filter: no record at all; a predicate says which records come here."""
    return lambda batch: batch.slice(0, 0)


OF_PART: Final[Mapping[str, Callable[[Settings, Part], Transform]]] = {
    "Cast": build_cast,
    "ExtractField": build_extract_field,
    "Flatten": build_flatten,
    "HeaderFrom": build_header_from,
    "HoistField": build_hoist_field,
    "InsertField": build_insert_field,
    "MaskField": build_mask_field,
    "ReplaceField": build_replace_field,
    "SetSchemaMetadata": build_set_schema_metadata,
    "TimestampConverter": build_timestamp_converter,
}
"""The transforms with the variants $Key and $Value."""

OF_RECORD: Final[Mapping[str, Callable[[Settings], Transform]]] = {
    "DropHeaders": build_drop_headers,
    "Filter": build_filter,
    "InsertHeader": build_insert_header,
    "RegexRouter": build_regex_router,
    "TimestampRouter": build_timestamp_router,
    "ValueToKey": build_value_to_key,
}
"""The transforms without variants."""

PREDICATE_BUILDERS: Final[Mapping[str, Callable[[Settings], Predicate]]] = {
    "HasHeaderKey": build_has_header_key,
    "RecordIsTombstone": build_record_is_tombstone,
    "TopicNameMatches": build_topic_name_matches,
}

_PARTS: Final[tuple[tuple[str, Part], ...]] = (("$Key", "key"), ("$Value", "value"))


def transform_classes() -> dict[str, Definition]:
    """Every name by which a transform may be configured: its class, and its class without the package."""
    found: dict[str, Definition] = {}
    for definition in TRANSFORMS:
        for suffix in ("$Key", "$Value") if definition.variants else ("",):
            found[definition.name + suffix] = definition
            found[TRANSFORMS_PACKAGE + definition.name + suffix] = definition
    return found | {UNWRAP.name: UNWRAP, DEBEZIUM_PACKAGE + UNWRAP.name: UNWRAP}


def predicate_classes() -> dict[str, Definition]:
    """Every name by which a predicate may be configured."""
    found = {definition.name: definition for definition in PREDICATES}
    return found | {PREDICATES_PACKAGE + name: definition for name, definition in found.items()}


def build_transform(class_name: str, definition: Definition, settings: Settings) -> Transform:
    """The function of a configured transform. Raises TransformConfigError."""
    if definition is UNWRAP:
        return build_unwrap(settings)
    for suffix, part in _PARTS:
        if class_name.endswith(suffix):
            return OF_PART[definition.name](settings, part)
    return OF_RECORD[definition.name](settings)
