"""Codec: columns for an Avro schema that is not theirs: the latest version of a subject (use.latest.version)."""

from __future__ import annotations

from typing import Any

from barnabas.client.columns.byte_column import pa
from barnabas.registry.columns.avro_types import FastavroSchema, arrow_type, nullable, type_name
from barnabas.registry.values import RegisteredSchema
from barnabas.spark.connectors.converters.errors import ConverterDataError


def fitted_column(column: Any, avro: FastavroSchema, registered: RegisteredSchema, *, strict: bool) -> Any:
    """The column with the fields of the schema, by their names: a missing field has its default. Raises
    ConverterDataError for a field without one, and, if `strict`, for a field that the schema does not have.
    """
    return _Fitting(avro, f"version {registered.version} of {registered.subject}", strict).fit(
        column, avro.parsed, "the value"
    )


class _Fitting:
    def __init__(self, avro: FastavroSchema, name: str, strict: bool) -> None:
        self._avro = avro
        self._name = name
        self._strict = strict

    def fit(self, column: Any, part: Any, path: str) -> Any:
        part = self._avro.resolve(nullable(part)[1])
        if type_name(part) == "union":
            return column  # a struct with a field per type, which is matched by position
        if type_name(part) == "record" and pa.types.is_struct(column.type):
            return self._record(column, part, path)
        try:
            kind = arrow_type(self._avro, part)
        except ValueError:
            return column
        if pa.types.is_nested(kind) or pa.types.is_nested(column.type):
            return column
        try:
            return column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ConverterDataError(f"{path} does not fit {self._name}: {error}") from error

    def _record(self, column: Any, part: Any, path: str) -> Any:
        names = {one["name"] for one in part["fields"]}
        extra = [field.name for field in column.type if field.name not in names]
        if extra and self._strict:
            raise ConverterDataError(
                f"{self._name} has no field {extra[0]}, which {path} has: register a version with it, or set"
                " use.latest.version=false; latest.compatibility.strict=false leaves the field out"
            )
        parts, fields = [], []
        for one in part["fields"]:
            index = column.type.get_field_index(one["name"])
            if index >= 0:
                made = self.fit(column.field(index), one["type"], f"the field {one['name']}")
            else:
                made = self._default(one, len(column), path)
            parts.append(made)
            fields.append(pa.field(one["name"], made.type))
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask) if parts else column

    def _default(self, field: Any, rows: int, path: str) -> Any:
        if "default" not in field:
            raise ConverterDataError(
                f"{path} has no field {field['name']}, which {self._name} needs: add it, or give it a default there"
            )
        kind = arrow_type(self._avro, field["type"])
        value = field["default"]
        if isinstance(value, str) and pa.types.is_binary(kind):
            value = value.encode("latin-1")
        return pa.repeat(pa.scalar(value, kind), rows) if value is not None else pa.nulls(rows, kind)
