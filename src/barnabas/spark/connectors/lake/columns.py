"""Machine: the columns of rows and of a table: their types, new columns, and rows in the table's form."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from barnabas.spark.connectors.lake.errors import LakeError
from barnabas.spark.records.types import conform, spark_arrow


def lake_schema(schema: Any) -> Any:
    """The columns of a table for rows of this schema: all are nullable, and in types that Delta and Iceberg have.
    Raises LakeError for types that they do not have.
    """
    columns = []
    for field in schema:
        try:
            columns.append(pa.field(field.name, spark_arrow(_value_type(field.type)), True))
        except ValueError:
            raise LakeError(
                f"the column {field.name} has the type {field.type}, which a lake table does not have; cast it, for"
                " example to string"
            ) from None
    return pa.schema(columns)


def _value_type(kind: Any) -> Any:
    """The type of the values of a dictionary column; other types are their own."""
    return _value_type(kind.value_type) if pa.types.is_dictionary(kind) else kind


def new_columns(table: Any, rows: Any) -> list[Any]:
    """The fields of rows that the table does not have. Both are Arrow schemas. Raises LakeError if a column of the rows
    does not fit the table's column of that name.
    """
    by_lower = {field.name.lower(): field for field in lake_schema(table)}
    added = []
    for given in rows:
        known = by_lower.get(given.name.lower())
        field = lake_schema(pa.schema([given])).field(0)
        if known is None:
            added.append(field)
        elif known.name != field.name:
            raise LakeError(
                f"the column {field.name} and the table's column {known.name} differ only in case; rename the column to"
                f" {known.name}"
            )
        elif not (pa.types.is_null(given.type) or _fits(field.type, known.type)):
            raise LakeError(
                f"the column {field.name} has the type {field.type} in the rows and {known.type} in the table; cast it"
                f" to {known.type}, or write it under another name"
            )
    return added


def _fits(given: Any, known: Any) -> bool:
    """Whether every value of the type `given` is a value of the type `known`."""
    types = pa.types
    if given.equals(known):
        return True
    if types.is_signed_integer(given):
        return bool(types.is_signed_integer(known) and known.bit_width >= given.bit_width) or bool(
            types.is_decimal(known) and known.precision - known.scale >= len(str(2 ** (given.bit_width - 1)))
        )
    if types.is_float32(given):
        return bool(types.is_float64(known))
    if types.is_decimal(given) and types.is_decimal(known):
        whole = known.precision - known.scale >= given.precision - given.scale
        return bool(whole and known.scale >= given.scale)
    if types.is_struct(given) and types.is_struct(known):
        own = {field.name: field.type for field in known}
        return all(field.name in own and _fits(field.type, own[field.name]) for field in given)
    if types.is_map(given) and types.is_map(known):
        return _fits(given.key_type, known.key_type) and _fits(given.item_type, known.item_type)
    if types.is_list(given) and types.is_list(known):
        return _fits(given.value_type, known.value_type)
    return False


def fit(rows: Any, schema: Any) -> Any:
    """An Arrow table of the rows with the columns of `schema`, in its order and types. Columns that the rows lack
    are null, and so are columns that are null in all rows, of whatever type. `rows` is a table or a record batch.
    Raises LakeError for a value that does not fit.
    """
    columns = []
    for field in schema:
        index = rows.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(index)
        if column.null_count == len(column):  # in JSON without a schema, such a column has no type of its own
            columns.append(pa.nulls(len(column), field.type))
            continue
        try:
            columns.append(_conformed(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise LakeError(
                f"the column {field.name} cannot be written as {field.type}: {error}; cast it before it is written"
            ) from error
    return pa.Table.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))


def _conformed(column: Any, kind: Any) -> Any:
    if column.type.equals(kind):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([conform(chunk, kind) for chunk in column.chunks], kind)
    return conform(column, kind)
