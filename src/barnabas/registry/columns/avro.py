"""Codec: columns of Avro values, in whole batches.

Rows are grouped by the schema with which they were written. Each group is resolved to the reader's schema: by a
compiled program if `avro_program` can compile one for the two schemas, else record by record with fastavro.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, Final

import fastavro

from barnabas.client.columns.byte_column import ByteColumn, np, pa
from barnabas.client.errors import SerializationError
from barnabas.registry.client import RegistryClient
from barnabas.registry.columns.avro_kernels import GOOD, PROBLEMS, run_program
from barnabas.registry.columns.avro_program import ColumnNode, NoProgramError, Program, compile_avro
from barnabas.registry.columns.avro_types import FastavroSchema, arrow_type, load_avro
from barnabas.registry.columns.avro_write import write_program
from barnabas.registry.columns.base import (
    OnError,
    RegistryColumns,
    RowErrors,
    assemble,
    read_each,
    rows_of_ids,
    to_array,
)
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.serde.avro import AvroSerializer
from barnabas.registry.serde.base import topic_name
from barnabas.registry.serde.wire_format import HEADER, MAGIC
from barnabas.registry.values import Schema, SchemaType

_PROGRAMS_MAX: Final = 1_000


class AvroColumns(RegistryColumns):
    """Framed Avro <-> typed columns (a record becomes a struct).

    The columns have the type of the reader's schema. The reader's schema is `schema`. Without `schema`, it is the
    latest version of the topic's subject at the time of the first batch, or, if that subject has no Avro schema, the
    schema with the highest id in the batch. Later batches of the topic use the same schema, so a stream has one type,
    whatever versions its rows were written with. Writing uses `schema` or the latest version. The other options are
    those of `SerializerOptions`.
    """

    def __init__(
        self,
        registry: RegistryClient,
        schema: str | Schema | None = None,
        *,
        is_key: bool = False,
        on_error: OnError = "raise",
        **options: Any,
    ) -> None:
        super().__init__(registry, is_key=is_key, on_error=on_error)
        given = Schema(schema) if isinstance(schema, str) else schema
        self._given = None if given is None else load_avro(registry, given)
        self._readers: dict[str, tuple[FastavroSchema, Any]] = {}
        self._programs: dict[tuple[int, int], tuple[Program, ColumnNode] | None] = {}
        if given is None:
            options.setdefault("use_latest_version", True)
        self._writer = AvroSerializer(registry, given, is_key=is_key, **options)
        self._writers: dict[int, FastavroSchema] = {}

    def _make(self, schema: Schema) -> FastavroSchema:
        if schema.type is not SchemaType.AVRO:
            raise ValueError(
                f"the row was written with a {schema.type.value} schema: use the columns class for that type"
            )
        return load_avro(self._registry, schema)

    def _decode(self, framed: ByteColumn, ids: Any, topic: str, errors: RowErrors) -> Any:
        groups = rows_of_ids(ids)
        found = self._reader(topic, groups[-1][0] if groups else None)
        if found is None:
            return pa.nulls(len(framed))
        reader, kind = found
        parts = []
        for schema_id, rows in groups:
            writer = self._try_for_id(schema_id, topic, rows, errors)
            if writer is not None:
                parts.append((rows, self._read(schema_id, writer, reader, kind, framed, rows, errors)))
        return assemble(parts, len(framed), kind)

    def _reader(self, topic: str, newest: int | None) -> tuple[FastavroSchema, Any] | None:
        """The reader's schema and its Arrow type; None if they cannot be determined, because all rows are null."""
        found = self._readers.get(topic)
        if found is None:
            reader = self._given or self._latest(topic, newest)
            if reader is None:
                return None
            found = self._readers[topic] = reader, arrow_type(reader, reader.parsed)
        return found

    def _latest(self, topic: str, newest: int | None) -> FastavroSchema | None:
        try:
            latest = self._registry.latest(topic_name(topic, self._is_key, None)).schema
            if latest.type is SchemaType.AVRO:
                return load_avro(self._registry, latest)
        except RegistryError as error:
            if error.code not in (Code.SUBJECT_NOT_FOUND, Code.VERSION_NOT_FOUND):
                raise
        if newest is None:
            return None
        # subjects named by another strategy: use the newest schema of the batch
        made: FastavroSchema = self._for_id(newest, topic)
        return made

    def _read(
        self,
        schema_id: int,
        writer: FastavroSchema,
        reader: FastavroSchema,
        kind: Any,
        framed: ByteColumn,
        rows: Any,
        errors: RowErrors,
    ) -> Any:
        program = self._program(schema_id, writer, reader)
        if program is not None:
            try:
                column, status = run_program(*program, framed, rows)
            except pa.ArrowInvalid:
                pass  # a string is not UTF-8 or a decimal is too long; fastavro finds the row
            else:
                for index in np.flatnonzero(status != GOOD).tolist():
                    errors.add(int(rows[index]), PROBLEMS[int(status[index])])
                return column
        same = writer.parsed == reader.parsed
        target = None if same else reader.parsed

        def read(payload: bytes) -> Any:
            return fastavro.schemaless_reader(io.BytesIO(payload), writer.parsed, target)

        return to_array(read_each(framed, rows, errors, read), kind, rows, errors)

    def _program(
        self, schema_id: int, writer: FastavroSchema, reader: FastavroSchema
    ) -> tuple[Program, ColumnNode] | None:
        key = schema_id, id(reader)
        if key not in self._programs:
            if len(self._programs) >= _PROGRAMS_MAX:
                self._programs.clear()
            try:
                self._programs[key] = compile_avro(writer, reader)
            except NoProgramError:
                self._programs[key] = None
        return self._programs[key]

    def encode(self, column: pa.Array | pa.ChunkedArray, topic: str) -> pa.Array:
        """Encode and frame each row. Raises SerializationError for a row that does not fit the schema."""
        registered = self._writer.prepare(topic)
        schema = self._writers.get(registered.id)
        if schema is None:
            made = self._given or load_avro(self._registry, registered.schema)
            schema = self._writers[registered.id] = made
        start = HEADER.pack(MAGIC, registered.id)
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(whole, pa.ChunkedArray):
            whole = pa.concat_arrays(whole.chunks)
        program = self._program(registered.id, schema, schema)
        if program is not None:
            with contextlib.suppress(NoProgramError):
                return write_program(*program, whole, start)
        return _write_each(schema, whole, start, topic)


def _write_each(schema: FastavroSchema, column: Any, start: bytes, topic: str) -> Any:
    """Encode row by row with fastavro, whose errors say what does not fit."""
    try:
        kind = arrow_type(schema, schema.parsed)
    except ValueError:
        kind = column.type  # unions of several types: fastavro chooses the branches
    try:
        column = _numbers(column, kind)
    except pa.ArrowException as error:
        raise SerializationError(f"The column for {topic!r} does not fit its Avro schema: {error}") from error
    encoded: list[bytes | None] = []
    for row, value in enumerate(column.to_pylist(maps_as_pydicts="strict")):
        if value is None:
            encoded.append(None)
            continue
        out = io.BytesIO()
        out.write(start)
        try:
            fastavro.schemaless_writer(out, schema.parsed, value)
        except Exception as error:  # fastavro raises exceptions of many types, depending on the value
            raise SerializationError(f"Row {row} for {topic!r} does not fit its Avro schema: {error}") from error
        encoded.append(out.getvalue())
    return pa.array(encoded, pa.binary())


def _numbers(column: Any, kind: Any) -> Any:
    """The column with dates and times converted to the numbers that Avro writes, in the units of the schema."""
    own = column.type
    if pa.types.is_struct(own) and pa.types.is_struct(kind):
        fields = [field for field in own if kind.get_field_index(field.name) >= 0]
        if not fields:
            return column
        children = [_numbers(column.field(field.name), kind.field(field.name).type) for field in fields]
        names = [field.name for field in fields]
        return pa.StructArray.from_arrays(children, names=names, mask=column.is_null())
    return _fit(column, kind)


def _fit(column: Any, kind: Any) -> Any:
    plain = _number_type(kind)
    if pa.types.is_integer(kind) and pa.types.is_integer(column.type):
        return column.cast(kind)  # fastavro would write an int that is out of range
    if plain == kind:
        return column
    column = column.cast(kind)
    return column.cast(plain) if pa.types.is_nested(kind) else column.view(plain)


def _number_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _number_type(f.type), f.nullable) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_number_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _number_type(kind.item_type))
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind
