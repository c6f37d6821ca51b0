"""Machine: the transforms that change which fields a key or value has: ReplaceField, HoistField, ExtractField, Flatten.

Source: the classes of these names in org.apache.kafka.connect.transforms.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from barnabas.spark.connectors.transforms.errors import TransformPlanError
from barnabas.spark.connectors.transforms.records import (
    Part,
    build_struct,
    child,
    children,
    decode_objects,
    is_schemaless,
    json_column,
    object_or_null,
    part_field,
    replace_column,
    require_struct,
    struct_of,
)
from barnabas.spark.connectors.transforms.settings import Settings, Transform


def build_replace_field(settings: Settings, part: Part) -> Transform:
    """ReplaceField: fewer fields, or other names. Null keys and values stay null."""
    exclude, include = set(settings.list("exclude")), set(settings.list("include"))
    renames = dict(_rename(settings, pair) for pair in settings.list("renames"))

    def kept(name: str) -> bool:
        return name not in exclude and (not include or name in include)

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            found = [object_or_null(row, part, "ReplaceField") for row in decode_objects(column, field)]
            rows = [
                None if row is None else {renames.get(name, name): row[name] for name in row if kept(name)}
                for row in found
            ]
            return json_column(batch, field, rows)
        if column.null_count == len(column):
            return batch
        require_struct(field, "ReplaceField")
        wanted = [(old, array) for old, array in zip(field.type, children(column), strict=True) if kept(old.name)]
        fields = [old.with_name(renames.get(old.name, old.name)) for old, _ in wanted]
        new = struct_of(field, fields, "ReplaceField", optional=False)
        return replace_column(batch, new, build_struct([array for _, array in wanted], new.type, column))

    return apply


def _rename(settings: Settings, pair: str) -> tuple[str, str]:
    names = pair.split(":")
    if len(names) != 2 or not all(names):
        raise settings.refuse("renames", "a list of old:new pairs")
    return names[0], names[1]


def build_hoist_field(settings: Settings, part: Part) -> Transform:
    """HoistField: an object whose only field is the key or value as it was, null too."""
    name = settings.text("field")

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            return json_column(batch, field, [{name: row} for row in decode_objects(column, field)])
        type_ = pa.struct([field.with_name(name).with_nullable(field.nullable or column.null_count > 0)])
        array = pa.StructArray.from_arrays([column], fields=list(type_))
        return replace_column(batch, pa.field(part, type_, nullable=False), array)

    return apply


def build_extract_field(settings: Settings, part: Part) -> Transform:
    """ExtractField: one field in place of the object; with `field.syntax.version=V2` a path such as `a.b`."""
    text = settings.text("field")
    path = _path(settings, text) if settings.text("field.syntax.version") == "V2" else (text,)

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            return json_column(batch, field, [_extract(row, path, part) for row in decode_objects(column, field)])
        if column.null_count == len(column):
            return batch
        found, array = field, column
        for step in path:
            require_struct(found.with_name(part), "ExtractField")
            inner = child(found, step)
            if inner is None:
                names = ", ".join(each.name for each in found.type)
                raise TransformPlanError(f"ExtractField finds no field {text!r} in the {part}; its fields are {names}")
            array = children(array)[found.type.get_field_index(step)]
            found = inner
        return replace_column(batch, found.with_name(part), array)

    return apply


def _path(settings: Settings, text: str) -> tuple[str, ...]:
    """The steps of a path of version 2: dots separate them, and backquotes enclose a name that has dots."""
    steps: list[str] = []
    rest = text
    while True:
        if rest.startswith("`"):
            end = rest.find("`", 1)
            while end > 0 and end + 1 < len(rest) and rest[end + 1] != ".":
                end = rest.find("`", end + 1)
            if end < 0:
                raise settings.refuse("field", "a path whose backquotes are closed before a dot or the end")
            steps.append(rest[1:end])
            rest = rest[end + 1 :]
        else:
            end = rest.find(".")
            steps.append(rest if end < 0 else rest[:end])
            rest = "" if end < 0 else rest[end:]
        if not rest:
            break
        rest = rest[1:]
    return tuple(steps)


def _extract(row: Any, path: tuple[str, ...], part: Part) -> Any:
    found = object_or_null(row, part, "ExtractField")
    value: Any = found
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def build_flatten(settings: Settings, part: Part) -> Transform:
    """Flatten: the fields of nested objects, with the names of all levels. Lists stay as they are."""
    delimiter = settings.text("delimiter")

    def apply(batch: Any) -> Any:
        field, column = part_field(batch.schema, part), batch.column(part)
        if is_schemaless(field):
            rows = []
            for row in decode_objects(column, field):
                found = object_or_null(row, part, "Flatten")
                rows.append(None if found is None else _flat_object(found, "", delimiter, {}))
            return json_column(batch, field, rows)
        if column.null_count == len(column):
            return batch
        require_struct(field, "Flatten")
        fields: list[Any] = []
        arrays: list[Any] = []
        _flat_struct(field, column, "", (delimiter, field.nullable), (fields, arrays))
        new = struct_of(field, fields, "Flatten", optional=False)
        return replace_column(batch, new, build_struct(arrays, new.type, column))

    return apply


def _flat_object(value: dict[str, Any], prefix: str, delimiter: str, into: dict[str, Any]) -> dict[str, Any]:
    for name, item in value.items():
        full = prefix + delimiter + name if prefix else name
        if isinstance(item, dict):
            _flat_object(item, full, delimiter, into)
        else:
            into[full] = item
    return into


def _flat_struct(
    field: Any, array: Any, prefix: str, options: tuple[str, bool], into: tuple[list[Any], list[Any]]
) -> None:
    """Add the fields of a struct, and of the structs in it. `options` has the delimiter, and if a struct around this
    one may be null.
    """
    delimiter, optional = options
    for inner, cells in zip(field.type, children(array), strict=True):
        full = prefix + delimiter + inner.name if prefix else inner.name
        nullable = optional or inner.nullable
        if pa.types.is_struct(inner.type):
            _flat_struct(inner, cells, full, (delimiter, nullable), into)
        elif pa.types.is_map(inner.type):
            raise TransformPlanError(
                f"Flatten cannot change the map {full} of the {field.name}; drop it with ReplaceField"
            )
        else:
            into[0].append(inner.with_name(full).with_nullable(nullable))
            into[1].append(cells)
