"""Shell: Connect's AvroConverter, for whole columns: values framed with the id of their schema in a schema registry.

    schema of the column -> Avro schema -> registered per subject -> id     columns -> numbers and bytes -> frames
    frames -> ids -> schemas from the registry                              numbers and bytes -> columns, one per schema

Unlike AvroConverter, a schema that is read gets no version from the registry: it has the one of connect.version.
Source: io.confluent.connect.avro.AvroConverter.
"""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, Final

import fastavro
import pyarrow.compute
from msgspec import Struct, structs

from barnabas.client.columns.byte_column import ByteColumn, from_arrow, np, pa
from barnabas.registry.columns.avro_kernels import GOOD, PROBLEMS, run_program
from barnabas.registry.columns.avro_program import ColumnNode, NoProgramError, Program, compile_avro
from barnabas.registry.columns.avro_types import FastavroSchema
from barnabas.registry.columns.avro_write import write_program
from barnabas.registry.columns.base import BROKEN_ID, schema_ids
from barnabas.registry.errors import Code, InvalidSchemaError, RegistryError
from barnabas.registry.formats.avro import parse_avro
from barnabas.registry.http_client import RegistryUnreachableError
from barnabas.registry.serde.base import record_name, topic_name, topic_record_name
from barnabas.registry.serde.wire_format import HEADER, MAGIC
from barnabas.registry.values import RegisteredSchema, Schema, SchemaType
from barnabas.spark.connectors.arrow_fields import arrow_type, record_field, schema_of
from barnabas.spark.connectors.connect_schemas import ConnectSchema
from barnabas.spark.connectors.converters.avro_columns import avro_column, connect_column
from barnabas.spark.connectors.converters.avro_latest import fitted_column
from barnabas.spark.connectors.converters.avro_options import AvroOptions
from barnabas.spark.connectors.converters.avro_parsing import load_numbers, schema_of_avro
from barnabas.spark.connectors.converters.avro_rows import AvroRowReader, AvroValueError, with_branches
from barnabas.spark.connectors.converters.avro_schemas import avro_of_schema
from barnabas.spark.connectors.converters.errors import ConverterDataError, ConverterRegistryError
from barnabas.spark.connectors.converters.json_values import fitting_values, spread
from barnabas.spark.connectors.converters.runs import BadRows, Run, is_json, null_run, split_runs
from barnabas.spark.connectors.json_schemas import ConnectSchemaError
from barnabas.spark.records.registries import registry_client

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_STRATEGIES: Final = {
    "TopicNameStrategy": topic_name,
    "RecordNameStrategy": record_name,
    "TopicRecordNameStrategy": topic_record_name,
}
_SCHEMAS_MAX: Final = 1_000


class AvroConverter:
    """Keys or values as Avro. `name` is `key` or `value`."""

    def __init__(self, name: str, options: AvroOptions) -> None:
        self._name = name
        self._options = options
        self._writers: dict[bytes, _Writer] = {}
        self._readers: dict[int, _Reader | str] = {}
        self._ids: dict[tuple[str, str], RegisteredSchema] = {}

    def row_bytes(self, field: Any) -> int:
        return 0

    # -- writing -----------------------------------------------------------------------------------------------------

    def encode_column(self, column: Any, field: Any, topics: Any) -> Any:
        if column.null_count == len(column):
            return pa.nulls(len(column), pa.binary())
        if is_json(field):
            raise ConverterDataError(
                f"AvroConverter writes values with a schema, and the {self._name} is JSON without one: use"
                " JsonConverter, or read the records with a converter that has schemas"
            )
        writer = self._writer(field)
        present = column.is_valid().to_numpy(zero_copy_only=False)
        topics = topics.cast(pa.string())
        rows_of: dict[int, list[Any]] = {}
        schemas: dict[int, RegisteredSchema] = {}
        for topic in _pc.unique(topics.filter(pa.array(present))).to_pylist():
            registered = self._registered(topic, writer)
            schemas[registered.id] = registered
            rows_of.setdefault(registered.id, []).append(topic)
        if len(rows_of) == 1:
            return self._encode(column, writer, next(iter(schemas.values())))
        made, order = [], []
        for number, names in rows_of.items():
            here = _pc.is_in(topics, value_set=pa.array(names, pa.string())).to_numpy(zero_copy_only=False) & present
            rows = np.flatnonzero(here)
            made.append(self._encode(column.take(pa.array(rows)), writer, schemas[number]))
            order.append(rows)
        index = np.full(len(column), -1, np.int64)
        index[np.concatenate(order)] = np.arange(sum(map(len, order)))
        return pa.concat_arrays(made).take(pa.array(index, mask=index < 0))

    def _writer(self, field: Any) -> _Writer:
        key = pa.schema([field]).serialize().to_pybytes()
        writer = self._writers.get(key)
        if writer is None:
            if len(self._writers) >= _SCHEMAS_MAX:
                self._writers.clear()
            try:
                schema = schema_of(field)
                parsed = parse_avro(json.dumps(avro_of_schema(schema, self._options.form)))
                text = parsed.canonical
            except (ConnectSchemaError, InvalidSchemaError) as error:
                raise ConverterDataError(
                    f"the schema of the {self._name}s cannot be written as Avro: {error} (names in Avro have letters,"
                    " digits and _; schema.name.adjustment.mode=avro or scrub.invalid.names=true replaces others)"
                ) from error
            writer = self._writers[key] = _Writer(schema, text, load_numbers(text), parsed.name)
        return writer

    def _registered(self, topic: str, writer: _Writer) -> RegisteredSchema:
        known = self._ids.get((topic, writer.text))
        if known is None:
            known = self._ids[topic, writer.text] = self._find(topic, writer)
        return known

    def _find(self, topic: str, writer: _Writer) -> RegisteredSchema:
        access = self._options.registry
        try:
            subject = _STRATEGIES[self._options.strategy](topic, self._name == "key", writer.name)
        except ValueError as error:
            raise ConverterDataError(f"the {self._name}s of {topic} are no records: {error}") from error
        try:
            client = registry_client(access)
            if access.use_latest:
                return client.latest(subject)
            act = client.register if access.auto_register else client.look_up
            return act(subject, Schema(writer.text), normalize=access.normalize)
        except RegistryError as error:
            raise ConverterRegistryError(
                f"the schema of the {self._name}s of {topic} is not in the registry: {error}. Subject {subject}; set"
                " auto.register.schemas=true, register a compatible schema, or change the subject's compatibility"
            ) from error
        except RegistryUnreachableError as error:
            raise ConverterRegistryError(f"the schema of {subject} cannot be registered: {error}") from error

    def _encode(self, column: Any, writer: _Writer, registered: RegisteredSchema) -> Any:
        tombstones = structs.replace(writer.schema, optional=True, default=None)
        numbers = avro_column(column, tombstones, self._options.form)
        start = HEADER.pack(MAGIC, registered.id)
        avro, schema = writer.avro, writer.schema
        if self._options.registry.use_latest:
            avro = self._load(registered.schema)
            schema = schema_of_avro(avro, self._options.form)
            numbers = fitted_column(numbers, avro, registered, strict=self._options.strict)
        with contextlib.suppress(NoProgramError):
            return write_program(*compile_avro(avro, avro), numbers, start)
        encoded: list[bytes | None] = []
        for row, value in enumerate(numbers.to_pylist(maps_as_pydicts="lossy")):
            if value is None:
                encoded.append(None)
                continue
            out = io.BytesIO()
            out.write(start)
            try:
                fastavro.schemaless_writer(out, avro.parsed, with_branches(value, avro, avro.parsed, schema))
            except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
                raise ConverterDataError(
                    f"the {self._name} of row {row} does not fit its Avro schema (id {registered.id}): {error}"
                ) from error
            encoded.append(out.getvalue())
        return pa.array(encoded, pa.binary())

    # -- reading -----------------------------------------------------------------------------------------------------

    def decode_column(self, column: Any, bad: BadRows) -> list[Run]:
        framed = from_arrow(column)
        ids = schema_ids(framed)
        for row in np.flatnonzero(ids == BROKEN_ID).tolist():
            bad.add(row, "it does not begin with 0 and the id of a schema: set the converter that wrote the records")
        readers: dict[int, _Reader] = {}
        for number in np.unique(ids[ids >= 0]).tolist():
            reader = self._reader(number)
            if isinstance(reader, str):
                for row in np.flatnonzero(ids == number).tolist():
                    bad.add(row, reader)
            else:
                readers[number] = reader
        runs = []
        for number, rows in split_runs(ids, bad.good(np.arange(len(framed)))):
            if number < 0:
                runs.append(null_run(rows, self._name))
                continue
            good, values = readers[number].read(framed, rows, bad)
            if len(good):
                runs.append(Run(good, record_field(self._name, readers[number].schema), values))
        return runs

    def _reader(self, number: int) -> _Reader | str:
        """The reader of a schema, or why there is none."""
        known = self._readers.get(number)
        if known is None:
            if len(self._readers) >= _SCHEMAS_MAX:
                self._readers.clear()
            known = self._readers[number] = self._new_reader(number)
        return known

    def _new_reader(self, number: int) -> _Reader | str:
        try:
            found = registry_client(self._options.registry).schema(number)
        except RegistryError as error:
            if error.code != Code.SCHEMA_NOT_FOUND:
                raise ConverterRegistryError(f"the schema {number} cannot be read: {error}") from error
            return f"the registry has no schema with the id {number}"
        except RegistryUnreachableError as error:
            raise ConverterRegistryError(f"the schema {number} cannot be read: {error}") from error
        if found.type is not SchemaType.AVRO:
            return f"it was written with the {found.type.value} schema {number}, and the converter is AvroConverter"
        try:
            avro = self._load(found)
            return _Reader(avro, schema_of_avro(avro, self._options.form))
        except ConnectSchemaError as error:
            return f"its schema {number} has no form in Connect: {error}"

    def _load(self, schema: Schema) -> FastavroSchema:
        try:
            others = registry_client(self._options.registry).dependencies(schema)
        except (RegistryError, RegistryUnreachableError) as error:
            raise ConverterRegistryError(f"a schema to which a schema refers cannot be read: {error}") from error
        return load_numbers(schema.text, *(other.text for other in others.values()))


class _Writer(Struct):
    """How values with one schema are written: the text of the Avro schema, and its name if it is a record."""

    schema: ConnectSchema
    text: str
    avro: FastavroSchema
    name: str | None


class _Reader:
    """Reads values of one Avro schema."""

    def __init__(self, avro: FastavroSchema, schema: ConnectSchema) -> None:
        self.schema = schema
        self._kind = arrow_type(schema)
        self._rows = AvroRowReader(avro, schema)
        self._program: tuple[Program, ColumnNode] | None = None
        with contextlib.suppress(NoProgramError, ValueError):  # unions of several types are read one by one
            self._program = compile_avro(avro, avro)

    def read(self, framed: ByteColumn, rows: Any, bad: BadRows) -> tuple[Any, Any]:
        """(the rows that are good, their values); a row that is null is null."""
        present = np.flatnonzero(framed.length[rows] >= 0)
        if self._program is not None:
            try:
                column, status = run_program(*self._program, framed, rows[present])
                if (status == GOOD).all():
                    values = connect_column(column, self.schema)
                    return rows, spread(values, present, len(rows), self._kind)
                for at in np.flatnonzero(status != GOOD).tolist():
                    bad.add(int(rows[present[at]]), PROBLEMS[int(status[at])])
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
                pass  # some row has a text that is not UTF-8, or too long a decimal: read one by one
        return self._one_by_one(framed, bad.good(rows), bad)

    def _one_by_one(self, framed: ByteColumn, rows: Any, bad: BadRows) -> tuple[Any, Any]:
        data = memoryview(framed.data)
        values: list[Any] = []
        good: list[int] = []
        for row in rows.tolist():
            at, size = int(framed.at[row]), int(framed.length[row])
            try:
                value = None if size < 0 else self._rows.read(bytes(data[at + HEADER.size : at + size]))
            except AvroValueError as error:
                bad.add(row, error)
                continue
            values.append(value)
            good.append(row)
        return fitting_values(values, good, self._kind, bad)
