"""Codec: columns of JSON values, in whole batches, with Arrow's parser: no Python object is created per record.

One copy of the column's bytes replaces the five bytes of each frame header by the beginning of a JSON object:

    00 00 00 00 07 {"a": 1}  00 00 00 00 07 {"a": 2}        frames
        {"":       {"a": 1}  }  {"":        {"a": 2} }      the parser's input: objects, one after the other

So a value may be any JSON value, on any number of lines, and an empty or truncated value is not mistaken for a missing
row. Values are not validated against their JSON Schema (`JsonDeserializer` does that); values that do not fit the
column's type are errors.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow.json

from barnabas.client.columns.byte_column import ByteColumn, np, pa
from barnabas.client.errors import SerializationError
from barnabas.registry.client import RegistryClient
from barnabas.registry.columns.base import OnError, RegistryColumns, RowErrors, assemble, payloads
from barnabas.registry.serde.json import JsonSerializer
from barnabas.registry.serde.wire_format import HEADER, MAGIC
from barnabas.registry.values import Schema, SchemaType

OPENING: Final = np.frombuffer(b'}{"":', np.uint8)
assert len(OPENING) == HEADER.size
WHATEVER: Final = pa.null()


class JsonColumns(RegistryColumns):
    """Framed JSON <-> typed columns.

    `kind` is the type of the column (an Arrow schema stands for a struct). Fields that `kind` does not have are
    ignored, and missing fields are null. Without `kind`, the type of each batch is inferred from all its rows: a field
    that only some rows have is null in the others, and strings that look like times become timestamps.

    Rows are written with the id of `json_schema`, a string or a Schema, or, without it, with that of the latest version
    of the topic's subject. The other options are those of `SerializerOptions`.
    """

    def __init__(
        self,
        registry: RegistryClient,
        kind: pa.DataType | pa.Schema | None = None,
        *,
        json_schema: str | Schema | None = None,
        is_key: bool = False,
        on_error: OnError = "raise",
        **options: Any,
    ) -> None:
        super().__init__(registry, is_key=is_key, on_error=on_error)
        self._kind = pa.struct(list(kind)) if isinstance(kind, pa.Schema) else kind
        if json_schema is None:
            options.setdefault("use_latest_version", True)
        self._writer = JsonSerializer(registry, json_schema, validate=False, is_key=is_key, **options)

    def _make(self, schema: Schema) -> Schema:
        if schema.type is not SchemaType.JSON:
            raise ValueError(
                f"the row was written with a {schema.type.value} schema: use the columns class for that type"
            )
        return schema

    def _decode(self, framed: ByteColumn, ids: Any, topic: str, errors: RowErrors) -> Any:
        good = ids >= 0
        for schema_id in np.unique(ids[good]).tolist():
            rows = np.flatnonzero(ids == schema_id)
            if self._try_for_id(schema_id, topic, rows, errors) is None:
                good[rows] = False
        rows = np.flatnonzero(good)
        if not len(rows):
            return pa.nulls(len(framed), self._kind or WHATEVER)
        try:
            values = parse(framed, rows, self._kind)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            rows = self._without_bad_rows(framed, rows, errors)
            try:
                values = parse(framed, rows, self._kind) if len(rows) else pa.nulls(0, self._kind or WHATEVER)
            except pa.ArrowInvalid as error:
                raise SerializationError(
                    f"The rows of a batch of {topic!r} do not fit one type: {error}. "
                    "Give the type: JsonColumns(registry, kind)"
                ) from error
        return assemble([(rows, values)], len(framed), values.type)

    def _without_bad_rows(self, framed: ByteColumn, rows: Any, errors: RowErrors) -> Any:
        """The rows that can be parsed on their own. Bisects the rows, so that few bad rows cost few parses."""
        good: list[Any] = []
        todo = [rows]
        while todo:
            part = todo.pop()
            try:
                parse(framed, part, self._kind)
                good.append(part)
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                if len(part) == 1:
                    errors.add(int(part[0]), str(error).removesuffix(" in row 0"))
                else:
                    middle = len(part) // 2
                    todo += [part[middle:], part[:middle]]
        return np.concatenate(good) if good else rows[:0]

    def encode(self, column: pa.Array | pa.ChunkedArray, topic: str) -> pa.Array:
        """Encode each row as one document. Values are not validated against the schema."""
        schema_id = self._writer.prepare(topic).id
        start = HEADER.pack(MAGIC, schema_id)
        encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_as_text).encode
        return pa.array(
            [None if value is None else start + encode(value).encode() for value in column.to_pylist()], pa.binary()
        )


def parse(framed: ByteColumn, rows: Any, kind: Any) -> Any:
    """Parse the values of some rows. Raises ArrowInvalid if one of them is not JSON or does not have the type."""
    text = _objects(framed, rows)
    schema = None if kind is None else pa.schema([("", kind)])
    table = pyarrow.json.read_json(
        pa.BufferReader(pa.py_buffer(text)),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=True,
            unexpected_field_behavior="infer" if kind is None else "ignore",
        ),
    )
    if table.num_rows != len(rows) or table.num_columns != 1:
        raise pa.ArrowInvalid("JSON parse error: the text is not exactly one value")
    values = table.column(0).combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    values.validate(full=True)  # the parser does not check that strings are UTF-8
    return values


def _objects(framed: ByteColumn, rows: Any) -> Any:
    """`{"": value}` for each row, one after the other."""
    at, length = framed.at[rows], framed.length[rows]
    if len(rows) > 1 and not bool((at[1:] == at[:-1] + length[:-1]).all()):
        joined = b"".join([bytes(HEADER.size) + payload for payload in payloads(framed, rows)])
        data = np.frombuffer(joined, np.uint8)
        at = np.concatenate(([0], np.cumsum(length[:-1], dtype=np.int64)))
        begin, end = 0, len(data)
    else:  # the rows are adjacent in memory, as fetched
        data, begin, end = framed.data, int(at[0]), int(at[-1]) + int(length[-1])
    text = np.empty(end - begin + 1, np.uint8)
    text[:-1] = data[begin:end]
    text[-1] = ord("}")
    starts = at - begin
    for offset, byte in enumerate(OPENING.tolist()):
        text[starts + offset] = byte
    text[0] = ord(" ")  # before the first row there is no object to close
    return text


def _as_text(value: object) -> str:
    """Times and decimals have no JSON type and are written as strings."""
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if isoformat is not None else str(value)
