"""Codec: a column of keys or values in its format -> a column of the type that Spark expects, and the rows that fail.

`registry.columns` decodes whole columns with compiled programs. Plain JSON, and values of a schema that is given as
text, are framed first, so that the same code reads them.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas.client.columns.byte_column import from_arrow
from barnabas.registry.columns import AvroColumns, JsonColumns, ProtobufColumns
from barnabas.registry.columns.base import schema_ids
from barnabas.registry.errors import RegistryError
from barnabas.registry.values import RegisteredSchema
from barnabas.spark.errors import SchemaChangedError
from barnabas.spark.records.formats import PartFormat, RecordFormat, RecordFormats, SchemaEvolution
from barnabas.spark.records.inference import message_class
from barnabas.spark.records.registries import connect_registry, frame, registry_client
from barnabas.spark.records.types import conform

Failures = Mapping[int, str]
"""Row -> why it cannot be read."""

VALUE_SHOWN_MAX = 80
"""The largest number of characters of a wrong value in a message."""


class PartDecoder:
    """Decodes the keys or the values of one query to the Arrow type `target`, one batch after the other."""

    def __init__(self, part: PartFormat, formats: RecordFormats, pinned: RegisteredSchema | None, target: Any) -> None:
        self._part = part
        self._target = target
        self._framed = part.format is RecordFormat.JSON or formats.registry is None
        self._guard = None
        if pinned is not None and pinned.subject and formats.evolution is not SchemaEvolution.IGNORE:
            self._guard = EvolutionGuard(part, formats, pinned)
        self._columns: Any = None if part.format is RecordFormat.STRING else self._make(formats, pinned)

    def _make(self, formats: RecordFormats, pinned: RegisteredSchema | None) -> Any:
        part, registry = self._part, connect_registry(self._part, formats.registry)
        if part.format is RecordFormat.AVRO:
            assert pinned is not None
            return AvroColumns(registry, pinned.schema, is_key=part.is_key, on_error="null")
        if part.format is RecordFormat.PROTOBUF:
            assert pinned is not None
            reader = message_class(part, formats, pinned)
            return ProtobufColumns(registry, reader_class=reader, is_key=part.is_key, on_error="null")
        kind = self._target
        if not _fast_json(kind):
            return None
        return JsonColumns(registry, kind, is_key=part.is_key, on_error="null")

    def decode(self, column: Any, topic: str) -> tuple[Any, Failures]:
        """The typed column and the rows that failed, which are null in it. Raises SchemaChangedError, and
        RegistryError or RegistryUnreachableError if the registry does not answer.
        """
        if self._part.format is RecordFormat.STRING:
            return _strings(column)
        if self._guard is not None:
            self._guard.check(column)
        framed = frame(column, self._part) if self._framed else column
        if self._columns is None:
            return _json_rows(framed, self._target)
        decoded = self._columns.decode(framed, topic)
        failures: dict[int, str] = {}
        if decoded.errors is not None and decoded.errors.null_count < len(decoded.errors):
            failures = {row: text for row, text in enumerate(decoded.errors.to_pylist()) if text is not None}
        return self._conform(decoded.values, failures)

    def _conform(self, values: Any, failures: dict[int, str]) -> tuple[Any, Failures]:
        try:
            return conform(values, self._target), failures
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # of a cast: some row does not fit the query's type
            pass
        good = []
        for row in range(len(values)):
            try:
                good.append(conform(values.slice(row, 1), self._target))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # this row is one of them
                failures.setdefault(row, str(error))
                good.append(pa.nulls(1, self._target))
        return pa.concat_arrays(good), failures


class EvolutionGuard:
    """Stops a query at a record with another schema than the pinned one, as `schema.evolution` says."""

    def __init__(self, part: PartFormat, formats: RecordFormats, pinned: RegisteredSchema) -> None:
        assert formats.registry is not None
        self._part = part
        self._evolution = formats.evolution
        self._pinned = pinned
        self._registry = formats.registry
        self._allowed = {pinned.id}

    def check(self, column: Any) -> None:
        """Raise SchemaChangedError if a value of the column has a schema that is not allowed."""
        ids = schema_ids(from_arrow(column))
        for schema_id in np.unique(ids).tolist():
            if schema_id >= 0 and schema_id not in self._allowed:
                self._check_id(schema_id)
                self._allowed.add(schema_id)

    def _check_id(self, schema_id: int) -> None:
        pinned, part = self._pinned, self._part.part
        reads = f"the query reads with version {pinned.version} of {pinned.subject} (id {pinned.id})"
        if self._evolution is SchemaEvolution.FAIL:
            raise SchemaChangedError(
                f"a {part} was written with the schema id {schema_id}, but {reads}, and schema.evolution is fail:"
                " choose the version with the option SchemaVersion, or set schema.evolution to ignore or restart"
            )
        try:
            latest = registry_client(self._registry).latest(pinned.subject)
        except RegistryError:
            return  # the subject was deleted: there is nothing that a restart could pick up
        if latest.id != pinned.id and self._part.version is None:
            raise SchemaChangedError(
                f"a {part} was written with the schema id {schema_id}; {reads}, but version {latest.version} is"
                " registered. Start the query again: it then reads with that version (schema.evolution=restart)"
            )


def _strings(column: Any) -> tuple[Any, Failures]:
    try:
        return column.cast(pa.string()), {}
    except pa.ArrowInvalid:
        failures: dict[int, str] = {}
        values: list[str | None] = []
        for row, value in enumerate(column.to_pylist()):
            try:
                values.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                failures[row] = f"it is not UTF-8: {error}"
                values.append(None)
        return pa.array(values, pa.string()), failures


def _fast_json(kind: Any) -> bool:
    """Whether Arrow's JSON parser reads values of this type."""
    if pa.types.is_struct(kind):
        return all(_fast_json(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _fast_json(kind.value_type)
    plain = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_timestamp)
    return any(check(kind) for check in plain)


def _json_rows(framed: Any, kind: Any) -> tuple[Any, Failures]:
    """Reads documents one by one, for types that Arrow's JSON parser does not read: maps, decimals, dates, binary."""
    failures: dict[int, str] = {}
    parts = []
    for row, value in enumerate(framed.to_pylist()):
        try:
            document = None if value is None else shape(json.loads(value[5:]), kind)
            parts.append(pa.array([document], kind))
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:  # json, `shape`, pa.array
            failures[row] = str(error)
            parts.append(pa.nulls(1, kind))
    return (pa.concat_arrays(parts) if parts else pa.nulls(0, kind)), failures


def shape(value: Any, kind: Any) -> Any:
    """A value of a JSON document as pyarrow expects it for the type. Raises ValueError, TypeError or ArithmeticError if
    the value does not fit.
    """
    if value is None:
        return None
    if (pa.types.is_struct(kind) or pa.types.is_map(kind)) and not isinstance(value, dict):
        raise ValueError(f"{json.dumps(value)[:VALUE_SHOWN_MAX]} is not an object")
    if pa.types.is_struct(kind):
        return {field.name: shape(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise ValueError(f"{json.dumps(value)[:VALUE_SHOWN_MAX]} is not an array")
        return [shape(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return [(key, shape(one, kind.item_type)) for key, one in value.items()]
    if pa.types.is_decimal(kind):
        return decimal.Decimal(str(value)).quantize(decimal.Decimal(1).scaleb(-kind.scale))
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        return datetime.datetime.fromisoformat(value)
    if pa.types.is_binary(kind):
        return base64.b64decode(value, validate=True)
    return value
