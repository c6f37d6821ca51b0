"""Machine: a table's columns as PostgreSQL describes them, as the columns that the query reads.

The description is the message `R` of the changes, or what the catalog says in the transaction of a snapshot; both give
the same columns for the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.events.changes import ColumnSchema, Meaning, TableSchema
from barnabas.spark.connectors.postgres.messages import Column, Relation, TypeName
from barnabas.spark.connectors.postgres.types import ColumnType, Kind, NotANumber, ValuePolicy, column_type

_MEANINGS: Final = {
    "json": Meaning.JSON,
    "jsonb": Meaning.JSON,
    "xml": Meaning.XML,
    "uuid": Meaning.UUID,
    "timetz": Meaning.ZONED_TIME,
    "numeric": Meaning.NUMERIC,
}
_WITH_DIGITS: Final = frozenset((1083, 1114, 1184))
"""time, timestamp, timestamptz: their typmod is the number of digits of a second's fraction."""


class ReadColumns(Struct, frozen=True):
    """The columns of a table that the query reads: their places in the relation, and how each is read."""

    schema: TableSchema
    places: tuple[int, ...]
    kinds: tuple[ColumnType, ...]


def read_columns(
    database: str,
    relation: Relation,
    types: Mapping[int, TypeName],
    key: tuple[int, ...],
    policy: ValuePolicy,
    options: CaptureOptions,
) -> ReadColumns:
    """`key` has the indexes of the key columns in the relation; these are always read.

    Whether a column may be null is not in the changes, so that every column but those of the key may be.
    """
    name = f"{relation.schema}.{relation.table}"
    places = tuple(
        place
        for place, column in enumerate(relation.columns)
        if place in key or options.wants_column(name, column.name)
    )
    kinds = tuple(column_type(relation.columns[place], types, policy) for place in places)
    columns = tuple(
        column_schema(relation.columns[place], kind, policy, nullable=place not in key)
        for place, kind in zip(places, kinds, strict=True)
    )
    schema = TableSchema(
        database, relation.schema, relation.table, columns, tuple(places.index(place) for place in key)
    )
    return ReadColumns(schema, places, kinds)


def column_schema(column: Column, kind: ColumnType, policy: ValuePolicy, *, nullable: bool) -> ColumnSchema:
    """A column for events and rows."""
    innermost = kind
    while innermost.element is not None:
        innermost = innermost.element
    name = "numeric" if innermost.name.startswith("numeric") else innermost.name
    meaning = _MEANINGS.get(name, Meaning.PLAIN) if innermost.kind is Kind.STRING else Meaning.PLAIN
    if meaning is Meaning.NUMERIC and policy.not_a_number is NotANumber.TEXT:
        meaning = Meaning.PLAIN
    digits = column.typmod if column.type_oid in _WITH_DIGITS and column.typmod >= 0 else None
    return ColumnSchema(column.name, kind.arrow, nullable, meaning, digits=digits)
