"""Shell: runs on the driver: the Spark type of typed keys and values.

schema()      the type of each column, from the schema in the options or in the registry
reader(...)   the same schemas, pinned: all tasks of the query read with them, whatever is registered meanwhile
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.registry.values import RegisteredSchema
from barnabas.spark.errors import OptionError
from barnabas.spark.records.formats import PartFormat, RecordFormat, RecordFormats
from barnabas.spark.records.registries import connect_registry, find_schema

Pinned = Mapping[str, RegisteredSchema]
"""The schema with which a query reads its `key` and its `value`."""

_HAS_SCHEMA = (RecordFormat.AVRO, RecordFormat.JSON_SCHEMA, RecordFormat.PROTOBUF)


def pin_schemas(formats: RecordFormats, columns: Sequence[str], topics: tuple[str, ...]) -> Pinned:
    """The schemas of the parts that are among the columns. Raises OptionError and SparkSourceError."""
    return {
        part.part: find_schema(part, formats.registry, topics)
        for part in formats.typed
        if part.part in columns and part.format in _HAS_SCHEMA
    }


def column_types(formats: RecordFormats, columns: Sequence[str], pinned: Pinned) -> dict[str, str]:
    """The Spark types (DDL) of the typed columns. Raises OptionError if a schema has no type in Spark."""
    return {part.part: _ddl(part, formats, pinned.get(part.part)) for part in formats.typed if part.part in columns}


def _ddl(part: PartFormat, formats: RecordFormats, pinned: RegisteredSchema | None) -> str:
    if part.format is RecordFormat.STRING:
        return "string"
    if part.format is RecordFormat.JSON:
        return _json_ddl(part)
    assert pinned is not None
    from barnabas.spark.records.types import spark_ddl

    try:
        return spark_ddl(arrow_type_of(part, formats, pinned))
    except ValueError as error:
        raise OptionError(
            f"the schema of the {part.part}s ({pinned.subject or f'option {part.part}Schema'}) has no type in Spark:"
            f" {error}. Give {part.part}Schema with a schema of the fields that you need, or read the column raw"
        ) from error


def _json_ddl(part: PartFormat) -> str:
    """The type that `valueSchema` gives to plain JSON: DDL, Spark's own JSON, or a JSON Schema."""
    if part.schema is None:
        raise OptionError(
            f"{part.part}Format=json needs the type of the documents: {part.part}Schema='id BIGINT, name STRING', or"
            " the DataFrame's schema, spark.read.schema(...)"
        )
    text = part.schema.strip()
    if text.startswith("{"):
        try:
            document = json.loads(text)
        except ValueError as error:
            raise OptionError(f"{part.part}Schema is not JSON: {error}") from None
        if document.get("type") == "struct" and "fields" in document:
            from pyspark.sql.types import StructType

            found: str = StructType.fromJson(document).simpleString()
            return found
        from barnabas.spark.records.json_types import arrow_of_json_schema
        from barnabas.spark.records.types import spark_ddl

        try:
            return spark_ddl(arrow_of_json_schema(text))
        except ValueError as error:
            raise OptionError(f"{part.part}Schema has no type in Spark: {error}") from None
    whole = text.lower().startswith(("struct<", "array<", "map<")) or " " not in text
    return text if whole else f"struct<{text}>"


def arrow_type_of(part: PartFormat, formats: RecordFormats, pinned: RegisteredSchema) -> Any:
    """The Arrow type of the values of a schema. Raises ValueError if there is none."""
    schema = pinned.schema
    if part.format is RecordFormat.AVRO:
        from barnabas.registry.columns.avro_types import arrow_type, load_avro

        loaded = load_avro(connect_registry(part, formats.registry), schema)
        return arrow_type(loaded, loaded.parsed)
    if part.format is RecordFormat.PROTOBUF:
        from barnabas.registry.columns.protobuf_types import arrow_type as message_type

        return message_type(message_class(part, formats, pinned).DESCRIPTOR)
    from barnabas.spark.records.json_types import arrow_of_json_schema

    return arrow_of_json_schema(schema.text)


def message_class(part: PartFormat, formats: RecordFormats, pinned: RegisteredSchema) -> Any:
    """The class of the Protobuf message: the one that `valueMessage` names, else the first of the schema."""
    from google.protobuf.message_factory import GetMessageClass

    from barnabas.registry.serde.protobuf import build_file

    file = build_file(connect_registry(part, formats.registry), pinned.schema)
    messages = list(file.message_types_by_name.values())
    wanted = [one for one in messages if part.message in (None, one.name, one.full_name)]
    if not wanted:
        names = ", ".join(one.full_name for one in messages)
        raise OptionError(f"{part.part}Message={part.message} is not a message of the schema, which has {names}")
    return GetMessageClass(wanted[0])
