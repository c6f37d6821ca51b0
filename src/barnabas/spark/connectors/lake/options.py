"""Codec: the options of `format("barnabas.delta")` and `format("barnabas.iceberg")` -> LakeOptions.

What the rows are, their keys, and how they change a table are the options of all sinks (`sinking/options.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.option_rows import ConnectorOption, ConnectorOptions
from barnabas.spark.connectors.sinking.options import (
    ROW_OPTIONS,
    ROW_PREFIXES,
    RowOptions,
    parse_row_options,
)
from barnabas.spark.errors import OptionError

FILE_BYTES: Final = 128 * 1024 * 1024


class LakeKind(Enum):
    """The format of a table; the value is the name of the connector in Spark."""

    DELTA = "barnabas.delta"
    ICEBERG = "barnabas.iceberg"


LAKE_OPTIONS: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption(
        "path", "Delta: the table's directory or URI, such as /lake/orders or s3://bucket/${topic}.", parse_as.name
    ),
    ConnectorOption("table", "Iceberg: the table in the catalog, such as shop.orders or shop.${topic}.", parse_as.name),
    ConnectorOption("auto.create", "Create the table if it does not exist.", parse_as.boolean, True),
    ConnectorOption("auto.evolve", "Add the columns that only the rows have, as nullable.", parse_as.boolean, True),
    ConnectorOption(
        "partition.by",
        "The partitions of a table that is created: columns, and for Iceberg also year(c), month(c), day(c), hour(c),"
        " bucket(n, c) and truncate(n, c), separated by commas.",
    ),
    ConnectorOption(
        "file.bytes.max",
        "A task begins another file after this many bytes of rows in memory.",
        parse_as.size,
        FILE_BYTES,
    ),
)
PREFIXES: Final = ("storage.", "catalog.")
_NOT_HERE: Final = ("stagingLocation", "dbtable", "table.name.format")
"""Options of other sinks. The rows of an upsert are staged in the table's own directory."""


class PartitionField(msgspec.Struct, frozen=True):
    """One partition of a table: a column, or a transform of a column, of which some have a number."""

    column: str
    transform: str = "identity"
    number: int | None = None


class LakeOptions(msgspec.Struct, frozen=True):
    """All options of one query. `storage` and `catalog` are passed to deltalake and pyiceberg."""

    kind: LakeKind
    rows: RowOptions
    create: bool = True
    evolve: bool = True
    partitions: tuple[PartitionField, ...] = ()
    file_bytes: int = FILE_BYTES
    storage: Mapping[str, str] = {}
    catalog: Mapping[str, str] = {}


def parse_lake_options(kind: LakeKind, texts: Mapping[str, str]) -> LakeOptions:
    """The options of a sink. Raises OptionError for a missing, unknown or invalid option."""
    known = tuple(row for row in ROW_OPTIONS if row.name not in _NOT_HERE)
    given = ConnectorOptions(texts, (*LAKE_OPTIONS, *known), prefixes=(*ROW_PREFIXES, *PREFIXES), refused=_REFUSED)
    given.check_names()
    target = table_target(kind, given)
    all_rows = ConnectorOptions({**texts, "table.name.format": target}, (*LAKE_OPTIONS, *ROW_OPTIONS))
    partitions = parse_partitions(given.get("partition.by") or "")
    if kind is LakeKind.DELTA and any(field.transform != "identity" for field in partitions):
        raise OptionError("a Delta table is partitioned by columns only: name columns in partition.by")
    return LakeOptions(
        kind,
        parse_row_options(all_rows, {**texts, "table.name.format": target}),
        given.get("auto.create"),
        given.get("auto.evolve"),
        partitions,
        given.get("file.bytes.max"),
        below(given, "storage."),
        catalog_options(kind, given),
    )


_REFUSED: Final = {
    "stagingLocation": "the rows of an upsert are staged in the table's own directory",
    "dbtable": "name a Delta table by path, an Iceberg table by table",
    "table.name.format": "name a Delta table by path, an Iceberg table by table; both may contain ${topic}",
}


def table_target(kind: LakeKind, given: ConnectorOptions) -> str:
    """The location of a Delta table, or the name of an Iceberg table. Raises OptionError."""
    if kind is LakeKind.DELTA:
        if "table" in given:
            raise OptionError("barnabas.delta has no catalog: give the table's location as path instead of table")
        return local_or_uri(given.require("path", "the table's directory or URI, such as .start('/lake/orders')"))
    table = str(given.require("table", "namespace and name, such as shop.orders"))
    if "." not in table:
        raise OptionError(f"table must be a namespace and a name, such as shop.{table}; got {table!r}")
    return table


def catalog_options(kind: LakeKind, given: ConnectorOptions) -> dict[str, str]:
    """The properties of the Iceberg catalog; none for Delta. Raises OptionError."""
    catalog = below(given, "catalog.")
    if kind is LakeKind.ICEBERG:
        return catalog_properties({**below(given, "storage."), **catalog})
    if catalog:
        raise OptionError("barnabas.delta has no catalog: leave the options catalog.* out")
    return {}


def below(given: ConnectorOptions, prefix: str) -> dict[str, str]:
    """The options whose names begin with a prefix, without the prefix."""
    return {name.removeprefix(prefix): text for name, text in given.under(prefix).items()}


_PARTITION = re.compile(
    r"\s*(?:(year|month|day|hour)\((\w+)\)|(bucket|truncate)\((\d+)\s*,\s*(\w+)\)|([^,()]+?))\s*(?:,|$)"
)


def parse_partitions(text: str) -> tuple[PartitionField, ...]:
    """The fields that `partition.by` names. Raises OptionError."""
    fields: list[PartitionField] = []
    position = 0
    while position < len(text.rstrip()):
        match = _PARTITION.match(text, position)
        if match is None:
            raise OptionError(
                f"partition.by is not understood at {text[position:]!r}: give columns such as region, or for Iceberg"
                " day(created), bucket(16, id)"
            )
        time, time_column, numbered, number, numbered_column, column = match.groups()
        if time:
            fields.append(PartitionField(time_column, time))
        elif numbered:
            fields.append(PartitionField(numbered_column, numbered, int(number)))
        else:
            fields.append(PartitionField(column))
        position = match.end()
    return tuple(fields)


def catalog_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The properties of the Iceberg catalog. If only a local warehouse is given, the catalog is a SQLite file in that
    directory. Raises OptionError if neither is given.
    """
    properties = dict(given)
    properties.setdefault("name", "barnabas")
    if "uri" in properties:
        if properties["uri"].startswith(("http://", "https://")):
            properties.setdefault("type", "rest")
        elif "warehouse" not in properties and "type" not in properties:
            raise OptionError("catalog.uri of a database needs catalog.warehouse: the directory or URI of the tables")
        return properties
    if "type" in properties:
        return properties
    warehouse = properties.get("warehouse")
    if not warehouse:
        raise OptionError(
            "barnabas.iceberg needs a catalog: give catalog.warehouse=/lake for tables in a directory with a SQLite"
            " catalog, or catalog.uri=http://host:8181 for a REST catalog"
        )
    local = local_or_uri(warehouse)
    if "://" in local:
        raise OptionError(
            f"catalog.warehouse is {warehouse}, which cannot hold a SQLite catalog: also give catalog.uri, such as"
            " sqlite:////lake/catalog.db or the address of a REST catalog"
        )
    return {**properties, "type": "sql", "uri": f"sqlite:///{local}/catalog.db", "warehouse": f"file://{local}"}


def local_or_uri(location: str) -> str:
    """A location as deltalake and pyiceberg take it: `file:` URIs become absolute paths, other URIs stay."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return unquote(parts.path)
    return location.rstrip("/") or "/"
