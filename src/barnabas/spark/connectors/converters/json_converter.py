"""Codec: Connect's JsonConverter, for whole columns.

    schemas.enable=true    {"schema":{..},"payload":..}, and {"schema":null,"payload":..} for values without a schema
    schemas.enable=false   the value alone; what is read has no schema: it is a JSON column, with the same bytes
    schema.content         with schemas.enable=true, what is read is the value alone, and has this schema (KIP-1054)

Records of one writer have the same bytes up to their payload, so a run of equal schemas is found by comparing bytes,
whatever spaces they have. Rows with the payload before the schema are read one by one.
Source: org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow.compute

from barnabas.client.columns.byte_column import ByteColumn, from_arrow, np, pa
from barnabas.spark.connectors.arrow_fields import record_field, schema_of
from barnabas.spark.connectors.connect_schemas import ConnectSchema
from barnabas.spark.connectors.converters.byte_texts import slices
from barnabas.spark.connectors.converters.errors import ConverterDataError, ConverterLimitError
from barnabas.spark.connectors.converters.json_texts import JsonForm, json_pieces
from barnabas.spark.connectors.converters.json_values import json_column
from barnabas.spark.connectors.converters.runs import BadRows, Run, is_json, json_field, null_run, split_runs
from barnabas.spark.connectors.json_schemas import ConnectSchemaError, compact_json, json_schema, parse_schema

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

COLUMN_BYTES_MAX: Final = (1 << 31) - 1
SCHEMAS_MAX: Final = 1_000
_TEXT: Final = pa.large_string()
_SCHEMA: Final = b'{"schema":'
_PAYLOAD: Final = b',"payload":'


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: msgspec.Raw


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_ANY: Final = msgspec.json.Decoder(msgspec.Raw)


class JsonConverter:
    """Keys or values as JSON. `name` is `key` or `value`. `content` is the schema of all that is read, if `schemas`."""

    def __init__(
        self, name: str, *, schemas: bool = True, form: JsonForm | None = None, content: ConnectSchema | None = None
    ) -> None:
        self._name = name
        self._schemas = schemas
        self._content = content
        self._form = JsonForm() if form is None else form
        self._known: dict[bytes, ConnectSchema | None] = {}

    def row_bytes(self, field: Any) -> int:
        return len(self._head(field)) + 1 if self._schemas else 0

    def _head(self, field: Any) -> str:
        schema = "null" if is_json(field) else compact_json(json_schema(_schema_of(field)))
        return f"{_SCHEMA.decode()}{schema}{_PAYLOAD.decode()}"

    def encode_column(self, column: Any, field: Any, topics: Any) -> Any:
        if is_json(field):
            return self._encode_texts(column, field)
        schema = _schema_of(field).as_optional()
        if column.null_count == len(column):
            return pa.nulls(len(column), pa.binary())
        if column.null_count:  # the rows that are left are made without the nulls, and put in their places
            rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            made = self._encode_values(column.take(pa.array(rows)), field, schema)
            index = np.full(len(column), -1, np.int64)
            index[rows] = np.arange(len(rows))
            return made.take(pa.array(index, mask=index < 0))
        return self._encode_values(column, field, schema)

    def _encode_values(self, column: Any, field: Any, schema: ConnectSchema) -> Any:
        pieces = json_pieces(column, schema, self._form)
        if self._schemas:
            pieces = [self._head(field), *pieces, "}"]
        return _binary(_merged(pieces), len(column))

    def _encode_texts(self, column: Any, field: Any) -> Any:
        texts = column.cast(pa.large_binary()).cast(_TEXT)
        missing = _pc.or_kleene(texts.is_null(), _pc.equal(texts, "null"))
        texts = _pc.if_else(_pc.fill_null(missing, True), pa.scalar(None, _TEXT), texts)
        if not self._schemas:
            return _binary([texts], len(column))
        made = _binary([self._head(field), texts, "}"], len(column))
        return _pc.if_else(texts.is_valid(), made, pa.scalar(None, pa.binary())) if texts.null_count else made

    def decode_column(self, column: Any, bad: BadRows) -> list[Run]:
        texts = from_arrow(column)
        if not self._schemas:
            return self._decode_plain(column, texts, bad)
        if self._content is not None:
            return self._decode_by_content(self._content, texts, bad)
        heads, payloads = self._find_payloads(column, texts, bad)
        runs = []
        numbers = list(self._known.values())
        for number, rows in split_runs(heads, bad.good(np.arange(len(texts)))):
            if number < 0:
                runs.append(null_run(rows, self._name))
                continue
            schema = numbers[number]
            part = payloads.take(rows)
            if schema is None:
                good = _one_value_each(part, rows, bad, "the payload")
                if len(good):
                    kept = part if len(good) == len(rows) else payloads.take(good)
                    runs.append(Run(good, json_field(self._name), slices(kept, pa.large_string()).cast(pa.string())))
                continue
            runs += self._decode_values(schema, part, rows, bad)
        return runs

    def _decode_by_content(self, schema: ConnectSchema, texts: ByteColumn, bad: BadRows) -> list[Run]:
        """Values of one schema, with their nulls, are one run: changes of a key stay in their order."""
        numbers = np.where(texts.length < 0, -1, 0)
        runs: list[Run] = []
        for number, rows in split_runs(numbers, np.arange(len(texts))):
            is_null = number < 0
            runs += (
                [null_run(rows, self._name)] if is_null else self._decode_values(schema, texts.take(rows), rows, bad)
            )
        return runs

    def _decode_values(self, schema: ConnectSchema, part: ByteColumn, rows: Any, bad: BadRows) -> list[Run]:
        """The run of rows whose values have this schema; none if all of them are bad."""
        try:
            field = record_field(self._name, schema)
        except ConnectSchemaError as error:
            for row in rows.tolist():
                bad.add(row, error)
            return []
        defaults = self._form.replace_null_with_default
        good, values = json_column(part, rows, schema.as_optional(), bad, defaults=defaults)
        return [Run(good, field, values)] if len(good) else []

    def _decode_plain(self, column: Any, texts: ByteColumn, bad: BadRows) -> list[Run]:
        rows = _one_value_each(texts, np.arange(len(texts)), bad, "it")
        values = column if len(rows) == len(texts) else column.take(pa.array(rows))
        return [Run(rows, json_field(self._name), values.cast(pa.string()))] if len(rows) else []

    def _find_payloads(self, column: Any, texts: ByteColumn, bad: BadRows) -> tuple[Any, ByteColumn]:
        """(the number of each row's schema in `_known`, or -1; where its payload is)."""
        if len(self._known) > SCHEMAS_MAX:
            self._known.clear()
        schemas = np.full(len(texts), -1, np.int64)
        at, length = texts.at.copy(), texts.length.copy()
        todo = np.flatnonzero(texts.length >= 0)
        while len(todo):
            row = int(todo[0])
            found = self._open(texts, row, bad)
            todo = todo[1:]
            if found is None:
                continue
            schemas[row], start, length[row] = found.schema, found.start, found.size
            at[row] += start
            if found.head and len(todo):
                rest = column if len(todo) == len(texts) else column.take(pa.array(todo))
                alike = _pc.starts_with(rest, pattern=found.head).to_numpy(zero_copy_only=False)
                alike = alike & _pc.ends_with(rest, pattern=found.tail).to_numpy(zero_copy_only=False)
                alike = alike & (texts.length[todo] > len(found.head) + len(found.tail))
                rows = todo[alike]
                schemas[rows] = found.schema
                at[rows] += start
                length[rows] -= start + len(found.tail)
                todo = todo[~alike]
        return schemas, ByteColumn(texts.data, at, length)

    def _open(self, texts: ByteColumn, row: int, bad: BadRows) -> _Opened | None:
        """What is in a row, or None if it is bad."""
        at, size = int(texts.at[row]), int(texts.length[row])
        text = bytes(memoryview(texts.data)[at : at + size])
        try:
            envelope = _ENVELOPE.decode(text)
            head, payload = bytes(envelope.schema), bytes(envelope.payload)
            if head not in self._known:
                self._known[head] = parse_schema(head)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            bad.add(
                row,
                f'JsonConverter with schemas.enable=true needs an object of "schema" and "payload" only ({error}); for '
                "plain JSON, set schemas.enable=false",
            )
            return None
        except ConnectSchemaError as error:
            bad.add(row, error)
            return None
        number = list(self._known).index(head)
        start = _address(envelope.payload) - _address(text)  # a Raw is a view of the text
        tail = text[start + len(payload) :]
        is_last = tail.strip() == b"}"  # the payload is behind the schema
        return _Opened(number, start, len(payload), text[:start] if is_last else b"", tail)


class _Opened(msgspec.Struct):
    """A row: the number of its schema, and where its payload is; if that is last, also the bytes before and behind it.
    Other rows with the same ones have the same schema, and what is between them is their payload.
    """

    schema: int
    start: int
    size: int
    head: bytes
    tail: bytes


def _one_value_each(texts: ByteColumn, rows: Any, bad: BadRows, what: str) -> Any:
    """The rows whose text is null or one JSON value; the others are bad. `what` begins the error's text."""
    data = memoryview(texts.data)
    good = []
    for row, at, size in zip(rows.tolist(), texts.at.tolist(), texts.length.tolist(), strict=True):
        if size >= 0:
            try:
                _ANY.decode(data[at : at + size])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                bad.add(row, f"{what} is not JSON ({error}); set the converter to the format that the records have")
                continue
        good.append(row)
    return np.array(good, np.int64)


def _address(view: Any) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def _schema_of(field: Any) -> ConnectSchema:
    try:
        return schema_of(field)
    except ConnectSchemaError as error:
        raise ConverterDataError(str(error)) from error


def _merged(pieces: list[Any]) -> list[Any]:
    """The pieces with texts that follow one another as one."""
    merged: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def _binary(pieces: list[Any], rows: int) -> Any:
    """The pieces of all rows joined, as Arrow binary."""
    size = 0
    for piece in pieces:
        if isinstance(piece, str):
            size += len(piece.encode()) * rows
        else:
            size += _pc.sum(_pc.binary_length(piece)).as_py() or 0
    if size > COLUMN_BYTES_MAX:
        raise ConverterLimitError(
            f"the keys or values of one batch have {size} bytes in JSON, the limit is {COLUMN_BYTES_MAX}: convert"
            " fewer records at a time, or disable schemas (schemas.enable=false)"
        )
    if len(pieces) == 1 and not isinstance(pieces[0], str):
        joined = pieces[0]
    elif len(pieces) == 1:
        joined = pa.repeat(pa.scalar(pieces[0], _TEXT), rows)
    else:
        arrays = [pa.scalar(piece, _TEXT) if isinstance(piece, str) else piece for piece in pieces]
        joined = _pc.binary_join_element_wise(*arrays, pa.scalar("", _TEXT), null_handling="replace")
    return joined.cast(pa.large_binary()).cast(pa.binary())
