"""Codec: the options of `format("barnabas.files")` -> FileSourceOptions or FileSinkOptions.

`file` and `topic` are the options of Connect's FileStreamSource and FileStreamSink.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from barnabas.core.reprs import repr_without
from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.lake.options import below, local_or_uri
from barnabas.spark.connectors.option_rows import ConnectorOption, ConnectorOptions
from barnabas.spark.connectors.record_encoder import RECORD_PREFIXES, check_record_options
from barnabas.spark.connectors.sinking.options import ROW_OPTIONS, ROW_PREFIXES, RowOptions, parse_row_options
from barnabas.spark.errors import OptionError


class FileFormat(Enum):
    """`file.format`."""

    AVRO = "avro"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    TEXT = "text"


_SHARED: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption("file", "One text file, whose lines are records (Connect's FileStream).", parse_as.name),
    ConnectorOption("path", "A directory or URI of files, such as /data/orders or s3://bucket/orders.", parse_as.name),
    ConnectorOption("file.format", "avro, csv, json (a JSON object on each line), parquet or text.",
                    parse_as.one_of(FileFormat)),
)  # fmt: skip
SOURCE_OPTIONS: Final[tuple[ConnectorOption, ...]] = (
    *_SHARED,
    ConnectorOption("topic", "The value of the column topic.", parse_as.name),
    ConnectorOption("maxBytesPerTrigger", "About how many bytes a micro-batch reads.", parse_as.size),
    ConnectorOption("key.converter", "The converter of keys, which are null; with it, lines are records."),
    ConnectorOption("value.converter", "The converter of lines; with it, lines are records for a topic."),
    ConnectorOption("transforms", "The names of transforms; with it, lines are records.", parse_as.name_list),
    ConnectorOption("predicates", "The names of predicates.", parse_as.name_list),
    ConnectorOption("avro.schema", "The schema to read Avro files with; without it, that of the first file."),
)
SINK_OPTIONS: Final[tuple[ConnectorOption, ...]] = (
    *_SHARED,
    ConnectorOption("file.bytes.max", "A task begins another file after this many bytes of rows in memory.",
                    parse_as.size, 128 * 1024 * 1024),
)  # fmt: skip
PREFIXES: Final = ("storage.",)
_OF_TABLES: Final = (
    "dbtable", "table.name.format", "insert.mode", "pk.mode", "pk.fields", "delete.enabled",
    "unavailable.value.placeholder", "stagingLocation",
)  # fmt: skip
"""Options of sinks that write tables."""
BYTES_PER_TRIGGER: Final = 64 * 1024 * 1024


class FileSourceOptions(msgspec.Struct, frozen=True):
    """All options of a query that reads: one text file, or a directory of files in one format."""

    place: str
    is_file: bool
    format: FileFormat
    topic: str | None = None
    bytes_max: int = BYTES_PER_TRIGGER
    avro_schema: str | None = None
    storage: Mapping[str, str] = {}
    records: Mapping[str, str] | None = None
    """The options of converters and transforms, with which lines are records; None: lines are text."""

    __repr__ = repr_without("storage", "records")


class FileSinkOptions(msgspec.Struct, frozen=True):
    """All options of a query that writes."""

    rows: RowOptions
    place: str
    is_file: bool
    format: FileFormat
    file_bytes: int = 128 * 1024 * 1024
    storage: Mapping[str, str] = {}

    __repr__ = repr_without("storage")


def parse_file_source(texts: Mapping[str, str]) -> FileSourceOptions:
    """Raises OptionError for a missing, unknown or invalid option."""
    given = ConnectorOptions(texts, SOURCE_OPTIONS, prefixes=(*PREFIXES, *RECORD_PREFIXES))
    given.check_names()
    place, is_file, kind = _place(given)
    records = _records(given, is_file=is_file)
    if not is_file and kind is not FileFormat.AVRO:
        raise OptionError(
            f"barnabas.files reads directories of Avro files; Spark reads {kind.value}: use format('{kind.value}')"
        )
    if given.get("avro.schema") is not None and is_file:
        raise OptionError("avro.schema has no effect on a text file: leave it out")
    return FileSourceOptions(
        place,
        is_file,
        kind,
        given.get("topic"),
        given.get("maxBytesPerTrigger") or BYTES_PER_TRIGGER,
        given.get("avro.schema"),
        below(given, "storage."),
        records,
    )


def _records(given: ConnectorOptions, *, is_file: bool) -> dict[str, str] | None:
    """The options with which lines are records. Raises OptionError."""
    found = given.under(*RECORD_PREFIXES)
    if not found:
        return None
    if not is_file:
        raise OptionError(
            f"{next(iter(found))} is for the lines of one text file: Spark's functions change the columns of Avro files"
        )
    if given.get("topic") is None:
        raise OptionError("topic must be given with converters or transforms: the topic of the records")
    check_record_options(found)
    return found


def parse_file_sink(texts: Mapping[str, str]) -> FileSinkOptions:
    """Raises OptionError for a missing, unknown or invalid option."""
    shared = tuple(row for row in ROW_OPTIONS if row.name not in _OF_TABLES)
    given = ConnectorOptions(texts, (*SINK_OPTIONS, *shared), prefixes=(*ROW_PREFIXES, *PREFIXES))
    given.check_names()
    place, is_file, kind = _place(given)
    if is_file and "://" in place:
        raise OptionError("file must be a local path, since lines are appended to it; for a URI, give path")
    named = {**texts, "table.name.format": place}
    rows = parse_row_options(ConnectorOptions(named, ROW_OPTIONS), named)
    return FileSinkOptions(rows, place, is_file, kind, given.get("file.bytes.max"), below(given, "storage."))


def _place(given: ConnectorOptions) -> tuple[str, bool, FileFormat]:
    """Where the files are, whether that is one file, and their format."""
    kind = given.get("file.format")
    if "file" in given:
        if "path" in given:
            raise OptionError("file and path exclude each other: give file for one text file, path for a directory")
        if kind not in (None, FileFormat.TEXT):
            raise OptionError("one file has the format text: give path, a directory, for other formats")
        return local_or_uri(given.get("file")), True, FileFormat.TEXT
    if "path" not in given:
        raise OptionError(
            "path must be given: a directory or URI, such as .start('/data/orders'); or file, a text file"
        )
    if kind is None:
        raise OptionError("file.format must be given: avro, csv, json, parquet or text")
    return local_or_uri(given.get("path")), False, kind
