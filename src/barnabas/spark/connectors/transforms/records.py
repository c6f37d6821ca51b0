"""Value: the columns of a batch of records, and how a transform reads and builds them.

A batch has the columns key, value, headers (list of structs of key and value), topic, partition, timestamp, and
offset if the records were read from a topic; columns of other names pass through. A key or value is one of

- a struct column: a record with a schema (Connect's Struct);
- a column of another type, such as binary, string or int64: a plain value with a schema;
- a JSON column, a string or binary column whose field has the metadata `barnabas.format=json`: values without a
  schema (Connect's JsonConverter with `schemas.enable=false`). A null cell and the text `null` are both null;
- a map column with string keys: also values without a schema. Transforms turn a map column into a JSON column, because
  a map of Arrow has one type for all its values.

Schemas. A field of Arrow, at every level, is a schema of Connect: `nullable` is its `optional`, and its metadata may
have `connect.name`, `connect.version` and `connect.parameters` (a JSON object of texts). The fields `key` and `value`
of the batch are the schemas of keys and values; their cells may be null (a tombstone) even if they are not nullable.
Connect's four logical types (Decimal, Date, Time, Timestamp) have two forms: a column of Arrow's own type without a
name, or the stored form, which is binary, int32, int32 or int64 with the name, as Connect's converters write them.
Transforms read both, and write the stored form.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute

from barnabas.spark.connectors.transforms.errors import TransformDataError, TransformPlanError

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

Part = Literal["key", "value"]
"""The column that a transform works on: `Name$Key` or `Name$Value`."""

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_JSON_KEY: Final = b"barnabas.format"
SCHEMA_NAME: Final = b"connect.name"
SCHEMA_VERSION: Final = b"connect.version"
SCHEMA_PARAMETERS: Final = b"connect.parameters"


class Logical(StrEnum):
    """Connect's logical types, by the names of their schemas."""

    DECIMAL = "org.apache.kafka.connect.data.Decimal"
    DATE = "org.apache.kafka.connect.data.Date"
    TIME = "org.apache.kafka.connect.data.Time"
    TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"


_STORED: Final = {
    Logical.DECIMAL: pa.types.is_binary,
    Logical.DATE: pa.types.is_int32,
    Logical.TIME: pa.types.is_int32,
    Logical.TIMESTAMP: pa.types.is_int64,
}


def logical_type(field: Any) -> Logical | None:
    """The logical type of a field in either form, or None."""
    type_ = field.type
    if pa.types.is_timestamp(type_):
        return Logical.TIMESTAMP
    if pa.types.is_date(type_):
        return Logical.DATE
    if pa.types.is_time(type_):
        return Logical.TIME
    if pa.types.is_decimal(type_):
        return Logical.DECIMAL
    name = (field.metadata or {}).get(SCHEMA_NAME, b"").decode()
    return next((kind for kind, stored in _STORED.items() if kind == name and stored(type_)), None)


def logical_column(array: Any, field: Any) -> Any:
    """The column in Arrow's own type, if the field has a logical type in the stored form; else the column itself."""
    kind = logical_type(field)
    if kind is None or not _STORED[kind](field.type):
        return array
    match kind:
        case Logical.DATE:
            return array.cast(pa.date32())
        case Logical.TIME:
            return array.cast(pa.time32("ms"))
        case Logical.TIMESTAMP:
            return array.cast(pa.timestamp("ms"))
        case Logical.DECIMAL:
            return _decimals(array, field)


def _decimals(array: Any, field: Any) -> Any:
    from decimal import Context, Decimal

    try:
        scale = int(msgspec.json.decode((field.metadata or {})[SCHEMA_PARAMETERS])["scale"])
    except (KeyError, ValueError, TypeError, msgspec.DecodeError):
        raise TransformPlanError(f"the decimal {field.name} has no scale in its {SCHEMA_PARAMETERS.decode()}") from None
    wide = Context(prec=76)
    cells = [
        None if cell is None else wide.scaleb(Decimal(int.from_bytes(cell, "big", signed=True)), -scale)
        for cell in array.to_pylist()
    ]
    try:
        return pa.array(cells, pa.decimal256(76, scale))
    except (pa.ArrowInvalid, ValueError):
        raise TransformDataError(f"a decimal of {field.name} has more than 76 digits") from None


def stored_field(name: str, kind: Logical, nullable: bool) -> Any:
    """A field of Date, Time or Timestamp in the stored form, as Connect's schemas of version 1."""
    type_ = pa.int64() if kind is Logical.TIMESTAMP else pa.int32()
    return pa.field(name, type_, nullable, {SCHEMA_NAME: kind.value.encode(), SCHEMA_VERSION: b"1"})


def json_field(name: str, type_: Any = None) -> Any:
    """A field of a JSON column. Its type is string unless another type is given."""
    return pa.field(name, type_ or pa.string(), metadata={_JSON_KEY: b"json"})


def is_json(field: Any) -> bool:
    return bool((field.metadata or {}).get(_JSON_KEY) == b"json")


def is_schemaless(field: Any) -> bool:
    return is_json(field) or bool(pa.types.is_map(field.type) or pa.types.is_null(field.type))


def schemaless_field(field: Any) -> Any:
    """The field of the JSON column that a transform makes from a column without a schema."""
    return field if is_json(field) else json_field(field.name)


def null_rows(batch: Any, part: Part) -> Any:
    """A boolean column: the rows whose key or value is null; in a JSON column also those with the text `null`."""
    field, column = part_field(batch.schema, part), batch.column(part)
    if is_json(field) and len(column):
        texts = _pc.binary_length(column).fill_null(0)
        if _pc.any(_pc.equal(texts, 4)).as_py():
            word = pa.scalar(b"null").cast(column.type) if not pa.types.is_string(column.type) else pa.scalar("null")
            return _pc.or_(column.is_null(), _pc.equal(column, word).fill_null(False))
    return column.is_null()


def child(field: Any, name: str) -> Any | None:
    """The field of this name in a struct, or None."""
    index = field.type.get_field_index(name)
    return None if index < 0 else field.type.field(index)


def require_struct(field: Any, purpose: str) -> None:
    """Raise TransformPlanError unless the column is a struct column."""
    if not pa.types.is_struct(field.type):
        raise TransformPlanError(
            f"{purpose} needs a struct or a JSON object in the {field.name}, found {field.type}; set a converter that "
            f"gives fields, or wrap the {field.name} with HoistField first"
        )


def struct_of(field: Any, fields: Sequence[Any], purpose: str, *, optional: bool | None = None) -> Any:
    """The same struct field with other children. Raises TransformPlanError for two children of one name."""
    seen: set[str] = set()
    for each in fields:
        if each.name in seen:
            raise TransformPlanError(
                f"{purpose} gives the {field.name} two fields named {each.name!r}; rename one first"
            )
        seen.add(each.name)
    result = field.with_type(pa.struct(list(fields)))
    return result if optional is None else result.with_nullable(optional)


def children(array: Any) -> list[Any]:
    """The columns of a struct column. A child is null where its struct is."""
    return list(array.flatten())


def build_struct(arrays: Sequence[Any], type_: Any, like: Any) -> Any:
    """A struct column of this type from its children, null in the rows where the column `like` is null."""
    if not arrays:
        return pa.array([None if null else {} for null in like.is_null().to_pylist()], type=type_)
    mask = like.is_null() if like.null_count else None
    fields = list(type_)
    arrays = [array if array.type == f.type else array.cast(f.type) for array, f in zip(arrays, fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def refuse_nulls(array: Any, part: str, purpose: str) -> None:
    """Raise TransformDataError if a row is null, as Connect's `Requirements.requireStruct` does."""
    if array.null_count:
        raise null_error(part, purpose)


def null_error(part: str, purpose: str) -> TransformDataError:
    return TransformDataError(
        f"{purpose} needs a struct or a JSON object, but the {part} is null; exclude such records with a "
        "predicate (RecordIsTombstone and negate=true for values)"
    )


def decode_objects(array: Any, field: Any) -> list[Any]:
    """The cells of a column without a schema as Python values."""
    if pa.types.is_null(field.type):
        return [None] * len(array)
    if pa.types.is_map(field.type):
        return [None if pairs is None else dict(pairs) for pairs in array.to_pylist()]
    decode = msgspec.json.decode
    rows = []
    for text in array.to_pylist():
        try:
            rows.append(None if text is None else decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TransformDataError(
                f"the {field.name} is not JSON ({error}); set the converter of the {field.name} to the format that the "
                "records have"
            ) from None
    return rows


def encode_objects(rows: Iterable[Any], field: Any) -> Any:
    """A JSON column from Python values. None becomes a null cell; bytes become base64, as in JsonConverter."""
    encode = msgspec.json.encode
    texts = [None if row is None else encode(row) for row in rows]
    return pa.array(texts, pa.binary()).cast(field.type)


def object_or_null(value: Any, part: str, purpose: str) -> dict[str, Any] | None:
    """The cell of a JSON column if it is an object or null. Raises TransformDataError for anything else."""
    if value is None or isinstance(value, dict):
        return value
    raise TransformDataError(
        f"{purpose} needs a JSON object, but the {part} is a {type(value).__name__}; wrap the {part} with HoistField "
        "first"
    )


def require_object(value: Any, part: str, purpose: str) -> dict[str, Any]:
    """The cell of a JSON column if it is an object. Raises TransformDataError for null and anything else."""
    found = object_or_null(value, part, purpose)
    if found is None:
        raise null_error(part, purpose)
    return found


def part_field(schema: Any, name: str) -> Any:
    """The field of a column that a transform needs. Raises TransformPlanError if the batch has no such column."""
    index = schema.get_field_index(name)
    if index < 0:
        raise TransformPlanError(f"the records have no column {name}; their columns are {', '.join(schema.names)}")
    return schema.field(index)


def replace_column(batch: Any, field: Any, array: Any) -> Any:
    """The batch with another column of the same name; a column of a new name becomes the last one."""
    index = batch.schema.get_field_index(field.name)
    arrays = list(batch.columns)
    if index < 0:
        return pa.RecordBatch.from_arrays([*arrays, array], schema=batch.schema.append(field))
    arrays[index] = array
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema.set(index, field))


def append_headers(batch: Any, names: Sequence[str], values: Sequence[Any]) -> Any:
    """The batch with more headers in each row, at the end: `values` has a column of binary for each name."""
    rows, added = batch.num_rows, len(names)
    field, column = _headers(batch)
    lengths = _pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    old = column.flatten()
    starts = np.concatenate(([0], np.cumsum(lengths)))
    offsets = np.concatenate(([0], np.cumsum(lengths + added)))
    order = np.empty(offsets[-1], np.int64)
    order[np.repeat(offsets[:-1] - starts[:-1], lengths) + np.arange(starts[-1])] = np.arange(starts[-1])
    new = np.arange(rows * added).reshape(added, rows).T  # column by column -> row by row
    order[((offsets[1:] - added)[:, None] + np.arange(added)).ravel()] = len(old) + new.ravel()
    element = field.type.value_type
    keys = pa.array(np.repeat(np.array(list(names), object), rows), pa.string()).cast(element.field(0).type)
    cells = pa.concat_arrays([value.cast(element.field(1).type) for value in values])
    items = pa.concat_arrays([old, pa.StructArray.from_arrays([keys, cells], fields=list(element))])
    return replace_column(batch, field, _lists(offsets, items.take(pa.array(order)), field.type))


def drop_headers(batch: Any, names: Sequence[str]) -> Any:
    """The batch without the headers of these names."""
    field, column = _headers(batch)
    items = column.flatten()
    keep = _pc.invert(_pc.is_in(items.field(0), value_set=pa.array(list(names), items.field(0).type)))
    parents = _pc.list_parent_indices(column).filter(keep).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(parents, minlength=batch.num_rows))))
    return replace_column(batch, field, _lists(offsets, items.filter(keep), field.type))


def _headers(batch: Any) -> tuple[Any, Any]:
    index = batch.schema.get_field_index("headers")
    if index >= 0 and not pa.types.is_null(batch.schema.field(index).type):
        return batch.schema.field(index), batch.column(index)
    return pa.field("headers", HEADERS_TYPE), pa.nulls(batch.num_rows, HEADERS_TYPE)


def _lists(offsets: Any, items: Any, type_: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items).cast(type_)


def json_column(batch: Any, field: Any, rows: Iterable[Any]) -> Any:
    """The batch with a key or value without a schema, from Python values; `field` is that of the old key or value."""
    new = schemaless_field(field)
    try:
        return replace_column(batch, new, encode_objects(rows, new))
    except (OverflowError, TypeError) as error:
        raise TransformDataError(f"the {field.name} has a value that is not JSON: {error}") from None
