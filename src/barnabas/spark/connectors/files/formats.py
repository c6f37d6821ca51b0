"""Codec: Arrow tables as the bytes of a file, and Avro files as Arrow tables."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.connectors.files.errors import FileReadError, FileWriteError
from barnabas.spark.connectors.files.options import FileFormat
from barnabas.spark.records.avro_schemas import avro_schema_of
from barnabas.spark.records.encoding import float_text, json_texts
from barnabas.spark.records.types import conform, spark_arrow

SUFFIXES: Final = {
    FileFormat.AVRO: ".avro",
    FileFormat.CSV: ".csv",
    FileFormat.JSON: ".json",
    FileFormat.PARQUET: ".zstd.parquet",
    FileFormat.TEXT: ".txt",
}
READ_ROWS: Final = 10_000


def write_rows(rows: Any, kind: FileFormat) -> bytes:
    """A file with the rows of an Arrow table. Raises FileWriteError for a type that the format does not have."""
    out = io.BytesIO()
    try:
        if kind is FileFormat.PARQUET:
            import pyarrow.parquet as pq

            pq.write_table(rows, out, compression="zstd")
        elif kind is FileFormat.CSV:
            import pyarrow.csv as csv

            _check_csv(rows)
            csv.write_csv(rows, out)
        elif kind is FileFormat.JSON:
            for batch in rows.to_batches(READ_ROWS):
                out.write(_json_lines(batch))
        elif kind is FileFormat.AVRO:
            _write_avro(rows, out)
        else:
            out.write(text_lines(rows))
    except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise FileWriteError(
            f"the rows cannot be written as {kind.value}: {error}; cast or leave out the column"
        ) from error
    return out.getvalue()


def _check_csv(rows: Any) -> None:
    """Raise FileWriteError for the first column whose values CSV does not have. Bytes are written if they are text."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_nested(column.type):
            raise FileWriteError(
                f"the column {name} is {column.type}, which CSV does not have: write to_json({name}), or leave the"
                " column out"
            )
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            try:
                column.cast(pa.large_string())
            except pa.ArrowInvalid:
                value = next(one for one in column.to_pylist() if one is not None and not _is_text(one))
                raise FileWriteError(
                    f"the column {name} has bytes that are no text, which CSV does not have (0x{value[:20].hex()}):"
                    f" write base64({name}) or hex({name}), or leave the column out"
                ) from None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def text_lines(rows: Any) -> bytes:
    """The column `value`, a line for each row. A null is an empty line. Raises FileWriteError."""
    names = rows.column_names
    name = "value" if "value" in names else names[0]
    kind = rows.schema.field(name).type
    if (name != "value" and len(names) > 1) or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise FileWriteError(
            "a text file needs the column value, string or binary: give each row as one text, for example with"
            " to_json(struct(*)) AS value"
        )
    texts = rows[name].cast(pa.binary()).to_pylist()
    return b"".join((text or b"") + b"\n" for text in texts)


def _json_lines(batch: Any) -> bytes:
    """A JSON object on a line for each row, without the nulls, as Spark writes them."""
    if any(pa.types.is_nested(field.type) for field in batch.schema):
        structs = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        return b"".join(text + b"\n" for text in json_texts(structs, b"").to_pylist())
    names = batch.schema.names
    columns = [_json_column(column) for column in batch.columns]
    rows: Any = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
    if any(column.null_count for column in batch.columns):
        rows = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return msgspec.json.Encoder().encode_lines(list(rows))


def _json_column(column: Any) -> list[Any]:
    """The values that JSON has, and texts for all others: times, decimals, NaN and infinities."""
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column), min_count=0).as_py():
        values: list[float | None] = column.to_pylist()
        return [value if value is None or math.isfinite(value) else float_text(value) for value in values]
    return list(_json_texts_of(column).to_pylist())


def _json_texts_of(column: Any) -> Any:
    """Times as texts, which are faster to make for a column than for each value."""
    if pa.types.is_timestamp(column.type):
        zone = "" if column.type.tz is None else "Z"
        return pc.binary_join_element_wise(pc.strftime(column, "%Y-%m-%dT%H:%M:%S"), zone, "")
    if pa.types.is_decimal(column.type) or pa.types.is_date(column.type):
        return column.cast(pa.string())
    return column


def _write_avro(rows: Any, out: io.BytesIO) -> None:
    """An Avro container file (the section "Object Container Files" of the specification), with deflate.

    The rows are encoded by a compiled program for whole columns; schemas that have none are written by fastavro.
    """
    import fastavro

    from barnabas.registry.columns.avro_program import NoProgramError, compile_avro
    from barnabas.registry.columns.avro_types import load_avro_text
    from barnabas.registry.columns.avro_write import write_program

    text = avro_schema_of(pa.struct(list(rows.schema)), "row")
    try:
        loaded = load_avro_text(text)
        program = compile_avro(loaded, loaded)
        blocks = []
        for batch in rows.to_batches(READ_ROWS):
            column = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
            blocks.append((batch.num_rows, _joined_bytes(write_program(*program, column, b""))))
    except NoProgramError:
        records = (row for batch in rows.to_batches(READ_ROWS) for row in batch.to_pylist(maps_as_pydicts="strict"))
        fastavro.writer(out, fastavro.parse_schema(json.loads(text)), records, codec="deflate")
        return
    sync = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    out.write(b"Obj\x01" + _avro_long(2))
    for name, value in (("avro.schema", text.encode()), ("avro.codec", b"deflate")):
        out.write(_avro_long(len(name)) + name.encode() + _avro_long(len(value)) + value)
    out.write(_avro_long(0) + sync)
    for count, content in blocks:
        deflate = zlib.compressobj(level=6, wbits=-15)
        packed = deflate.compress(content) + deflate.flush()
        out.write(_avro_long(count) + _avro_long(len(packed)) + packed + sync)


def _joined_bytes(array: Any) -> Any:
    """The values of a binary array without nulls, one after another."""
    kind = "<i8" if pa.types.is_large_binary(array.type) else "<i4"
    offsets = np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array) + 1]
    return memoryview(array.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _avro_long(number: int) -> bytes:
    """A number as Avro writes it: zigzag, seven bits in each byte, the lowest first."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def avro_columns(schema: Any) -> Any:
    """The Arrow schema of the rows of an Avro file, in the types that Spark has. `schema` is the writer's or reader's
    schema as parsed JSON. Raises FileReadError.
    """
    from barnabas.registry.columns.avro_types import arrow_type, load_avro_text

    try:
        loaded = load_avro_text(json.dumps(schema))
        kind = arrow_type(loaded, loaded.parsed)
        if not pa.types.is_struct(kind):
            raise ValueError("its values are no records")
        return pa.schema([pa.field(field.name, spark_arrow(field.type), True) for field in kind])
    except ValueError as error:
        raise FileReadError(f"an Avro schema has no columns in Spark: {error}") from error


def read_avro(file: Any, columns: Any, place: str, reader_schema: Any | None) -> Iterator[Any]:
    """The rows of an Avro file as record batches with exactly these columns. Raises FileReadError."""
    import fastavro

    try:
        rows = fastavro.reader(file, reader_schema)
        pending: list[Any] = []
        for row in rows:
            pending.append(row)
            if len(pending) == READ_ROWS:
                yield _batch(pending, columns)
                pending = []
        if pending:
            yield _batch(pending, columns)
    except (ValueError, EOFError, KeyError, TypeError, fastavro.read.SchemaResolutionError, pa.ArrowException) as error:
        raise FileReadError(
            f"{place} cannot be read as Avro with the columns {', '.join(columns.names)}: {error!r}. Give the schema to"
            " read all files with as avro.schema, or move the file out of the directory"
        ) from error


def avro_schema_in(file: Any, place: str) -> Any:
    """The schema that an Avro file begins with, as parsed JSON. Raises FileReadError."""
    import fastavro

    try:
        return fastavro.reader(file).writer_schema
    except (ValueError, EOFError, KeyError) as error:
        raise FileReadError(f"{place} is no Avro file: {error!r}. Move it out of the directory") from error


def _batch(rows: list[Any], columns: Any) -> Any:
    table = pa.Table.from_pylist([{name: row.get(name) for name in columns.names} for row in rows])
    arrays = []
    for field in columns:
        column = table[field.name].combine_chunks()
        arrays.append(column if column.type == field.type else conform(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
