"""Machine: Debezium's ExtractNewRecordState, which makes change events flat (`events/unwrap.py`).

The keys `drop.tombstones` and `delete.handling.mode` of older versions are understood, too.
Source: io.debezium.transforms.ExtractNewRecordStateConfigDefinition.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.spark.connectors.events.errors import EventError
from barnabas.spark.connectors.events.unwrap import DeleteHandling, UnwrapOptions, added_fields, unwrap
from barnabas.spark.connectors.transforms.definitions import Definition, KeyKind, TransformKey
from barnabas.spark.connectors.transforms.errors import TransformPlanError
from barnabas.spark.connectors.transforms.settings import Settings, Transform, boolean

DEBEZIUM_PACKAGE: Final = "io.debezium.transforms."

UNWRAP: Final = Definition(
    "ExtractNewRecordState",
    (
        TransformKey(
            "delete.tombstone.handling.mode",
            choices=tuple(mode for mode in DeleteHandling if mode is not DeleteHandling.KEEP_TOMBSTONE),
            doc="what becomes of deletes and their tombstones; tombstone if it is not set",
        ),
        TransformKey(
            "add.fields", KeyKind.LIST, default="", doc="fields of the event to add to the row: op, source.ts_ms"
        ),
        TransformKey("add.fields.prefix", default="__", doc="start of their names"),
        TransformKey("add.headers", KeyKind.LIST, default="", doc="fields of the event to add as headers"),
        TransformKey("add.headers.prefix", default="__", doc="start of their names"),
        TransformKey("route.by.field", doc="the field of the row that has the topic"),
        TransformKey("drop.tombstones", KeyKind.BOOLEAN, doc="of older versions: use delete.tombstone.handling.mode"),
        TransformKey(
            "delete.handling.mode",
            choices=("drop", "rewrite", "none"),
            doc="of older versions: use delete.tombstone.handling.mode",
        ),
    ),
    variants=False,
)

_OLDER: Final = {
    # (delete.handling.mode, drop.tombstones)
    ("drop", True): DeleteHandling.DROP,
    ("drop", False): DeleteHandling.KEEP_TOMBSTONE,
    ("rewrite", True): DeleteHandling.REWRITE,
    ("rewrite", False): DeleteHandling.REWRITE_WITH_TOMBSTONE,
    ("none", True): DeleteHandling.DELETE_TO_TOMBSTONE,
    ("none", False): DeleteHandling.TOMBSTONE,
}


def build_unwrap(settings: Settings) -> Transform:
    """ExtractNewRecordState: the value becomes the row after the change."""
    options = UnwrapOptions(
        _deletes(settings),
        added_fields(settings.list("add.fields"), settings.text("add.fields.prefix")),
        added_fields(settings.list("add.headers"), settings.text("add.headers.prefix")),
        settings.optional("route.by.field"),
    )

    def apply(batch: Any) -> Any:
        try:
            return unwrap(batch, options)
        except EventError as error:
            raise TransformPlanError(str(error)) from error

    return apply


def _deletes(settings: Settings) -> DeleteHandling:
    mode = settings.optional("delete.tombstone.handling.mode")
    if mode is not None:
        return DeleteHandling(mode)
    older, dropped = settings.optional("delete.handling.mode"), settings.optional("drop.tombstones")
    if older is None and dropped is None:
        return DeleteHandling.TOMBSTONE
    return _OLDER[older or "drop", boolean(f"{settings.prefix}drop.tombstones", dropped or "true")]
