"""Codec: schemas of Connect <-> fields of Arrow, so that a column of records has a type that transforms can work on.

    Connect                         Arrow
    boolean, int8 .. int64          bool, int8 .. int64
    float, double                   float, double
    string, bytes                   string, binary
    array, map, struct              list, map, struct
    Decimal (bytes)                 decimal128 up to 38 digits, decimal256 up to 76
    Date, Time, Timestamp           date32, time32[ms], timestamp[ms, UTC]

`nullable` says if a value is optional (of keys and values, `connect.optional` does). What Arrow has no place for is in
the metadata of the field: `connect.name`, `connect.version`, `connect.doc`, `connect.parameters` and `connect.default`
(the last two in JSON). So a field of Debezium's MicroTimestamp is an int64 with a name, as it is in Connect. In the
other direction, all types of Arrow that Connect has a form for are accepted: unsigned integers become the next wider
ones, and times lose what is below a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow.compute

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.connect_schemas import (
    DATE_NAME,
    DECIMAL_NAME,
    DECIMAL_PRECISION,
    DECIMAL_SCALE,
    TIME_NAME,
    TIMESTAMP_NAME,
    ConnectField,
    ConnectSchema,
    ConnectType,
)
from barnabas.spark.connectors.json_schemas import ConnectSchemaError

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

NAME: Final = b"connect.name"
VERSION: Final = b"connect.version"
DOC: Final = b"connect.doc"
PARAMETERS: Final = b"connect.parameters"
DEFAULT: Final = b"connect.default"
OPTIONAL: Final = b"connect.optional"

_DIGITS_128: Final = 38
_DIGITS_256: Final = 76
_PLAIN: Final = {
    ConnectType.BOOLEAN: pa.bool_(),
    ConnectType.INT8: pa.int8(),
    ConnectType.INT16: pa.int16(),
    ConnectType.INT32: pa.int32(),
    ConnectType.INT64: pa.int64(),
    ConnectType.FLOAT32: pa.float32(),
    ConnectType.FLOAT64: pa.float64(),
    ConnectType.STRING: pa.string(),
    ConnectType.BYTES: pa.binary(),
}
_LOGICAL: Final = {
    (ConnectType.INT32, DATE_NAME): pa.date32(),
    (ConnectType.INT32, TIME_NAME): pa.time32("ms"),
    (ConnectType.INT64, TIMESTAMP_NAME): pa.timestamp("ms", "UTC"),
}
LOGICAL_NAMES: Final = frozenset((DECIMAL_NAME, DATE_NAME, TIME_NAME, TIMESTAMP_NAME))


def arrow_field(name: str, schema: ConnectSchema) -> Any:
    """The Arrow field for values of a schema. Raises ConnectSchemaError for a decimal that no Arrow type can hold."""
    return pa.field(name, arrow_type(schema), schema.optional, _metadata(schema))


def record_field(name: str, schema: ConnectSchema) -> Any:
    """The Arrow field of the keys or values of records. The field is nullable even if the schema is required, since a
    record may have no key and a tombstone has no value; `connect.optional` in the metadata says what the schema is.
    """
    metadata = {**(_metadata(schema) or {}), OPTIONAL: b"true" if schema.optional else b"false"}
    return pa.field(name, arrow_type(schema), True, metadata)


def arrow_type(schema: ConnectSchema) -> Any:
    """The Arrow type for values of a schema, with the metadata of the fields inside of it."""
    match schema.type:
        case ConnectType.STRUCT:
            return pa.struct([arrow_field(part.name, part.schema) for part in schema.fields])
        case ConnectType.ARRAY:
            assert schema.items is not None
            return pa.list_(arrow_field("element", schema.items))
        case ConnectType.MAP:
            assert schema.keys is not None
            assert schema.items is not None
            key = arrow_field("key", schema.keys).with_nullable(False)
            return pa.map_(key, arrow_field("value", schema.items))
        case ConnectType.BYTES if schema.name == DECIMAL_NAME:
            return _decimal(schema)
        case _:
            return _LOGICAL.get((schema.type, schema.name or "")) or _PLAIN[schema.type]


def _decimal(schema: ConnectSchema) -> Any:
    try:
        scale = int(schema.parameters[DECIMAL_SCALE])
        precision = int(schema.parameters.get(DECIMAL_PRECISION, _DIGITS_128))
        precision = max(precision, scale, 1)
        return (pa.decimal128 if precision <= _DIGITS_128 else pa.decimal256)(precision, scale)
    except (KeyError, ValueError) as error:
        raise ConnectSchemaError(
            f"a decimal needs the parameter scale, and has at most {_DIGITS_256} digits: {dict(schema.parameters)}"
        ) from error


def _metadata(schema: ConnectSchema) -> dict[bytes, bytes] | None:
    found: dict[bytes, bytes] = {}
    if schema.name is not None:
        found[NAME] = schema.name.encode()
    if schema.version is not None:
        found[VERSION] = str(schema.version).encode()
    if schema.doc is not None:
        found[DOC] = schema.doc.encode()
    if schema.parameters:
        found[PARAMETERS] = msgspec.json.encode(dict(schema.parameters))
    if schema.default is not None:
        found[DEFAULT] = msgspec.json.encode(schema.default)
    return found or None


def schema_of(field: Any) -> ConnectSchema:
    """The schema of an Arrow field. Raises ConnectSchemaError for a type that Connect has no form for.

    A name in the metadata that does not fit the type is ignored: a transform may have changed the type and not the
    metadata.
    """
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    base = _base(field.type, field.name)
    name = metadata[NAME].decode() if NAME in metadata else None
    version = int(metadata[VERSION]) if VERSION in metadata else None
    parameters = dict(_parameters(metadata))
    if base.name is None and name in LOGICAL_NAMES:
        name, version, parameters = None, None, {}
    elif base.name is not None and name != base.name:
        name, version, parameters = base.name, base.version, dict(base.parameters)
    elif base.name == DECIMAL_NAME:
        scale = base.parameters[DECIMAL_SCALE]
        if DECIMAL_SCALE in parameters:
            parameters[DECIMAL_SCALE] = scale
        else:
            parameters = {DECIMAL_SCALE: scale, **parameters}
    return ConnectSchema(
        base.type,
        metadata[OPTIONAL] == b"true" if OPTIONAL in metadata else field.nullable,
        name,
        version,
        metadata[DOC].decode() if DOC in metadata else None,
        parameters,
        msgspec.json.decode(metadata[DEFAULT]) if DEFAULT in metadata else None,
        base.fields,
        base.keys,
        base.items,
    )


def _parameters(metadata: Mapping[bytes, bytes]) -> Mapping[str, str]:
    if PARAMETERS not in metadata:
        return {}
    found: Mapping[str, str] = msgspec.json.decode(metadata[PARAMETERS], type=dict[str, str])
    return found


def _base(kind: Any, name: str) -> ConnectSchema:
    """The schema of a type, without what the metadata of its field says."""
    types = pa.types
    if types.is_dictionary(kind):
        return _base(kind.value_type, name)
    if types.is_struct(kind):
        fields = tuple(ConnectField(part.name, schema_of(part)) for part in kind)
        return ConnectSchema(ConnectType.STRUCT, fields=fields)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return ConnectSchema(ConnectType.ARRAY, items=schema_of(kind.value_field))
    if types.is_map(kind):
        return ConnectSchema(ConnectType.MAP, keys=schema_of(kind.key_field), items=schema_of(kind.item_field))
    if types.is_decimal(kind):
        return ConnectSchema(
            ConnectType.BYTES, name=DECIMAL_NAME, version=1, parameters={DECIMAL_SCALE: str(kind.scale)}
        )
    if types.is_uint64(kind):
        return ConnectSchema(ConnectType.BYTES, name=DECIMAL_NAME, version=1, parameters={DECIMAL_SCALE: "0"})
    if types.is_date(kind):
        return ConnectSchema(ConnectType.INT32, name=DATE_NAME, version=1)
    if types.is_time(kind):
        return ConnectSchema(ConnectType.INT32, name=TIME_NAME, version=1)
    if types.is_timestamp(kind):
        return ConnectSchema(ConnectType.INT64, name=TIMESTAMP_NAME, version=1)
    for matches, connect in _KINDS:
        if matches(kind):
            return ConnectSchema(connect)
    raise ConnectSchemaError(f"Connect has no form for {name} of type {kind}: cast or drop the field")


_KINDS: Final = (
    (pa.types.is_boolean, ConnectType.BOOLEAN),
    (pa.types.is_int8, ConnectType.INT8),
    (pa.types.is_int16, ConnectType.INT16),
    (pa.types.is_uint8, ConnectType.INT16),
    (pa.types.is_int32, ConnectType.INT32),
    (pa.types.is_uint16, ConnectType.INT32),
    (pa.types.is_int64, ConnectType.INT64),
    (pa.types.is_uint32, ConnectType.INT64),
    (pa.types.is_float32, ConnectType.FLOAT32),
    (pa.types.is_float16, ConnectType.FLOAT32),
    (pa.types.is_float64, ConnectType.FLOAT64),
    (pa.types.is_string, ConnectType.STRING),
    (pa.types.is_large_string, ConnectType.STRING),
    (pa.types.is_null, ConnectType.STRING),
    (pa.types.is_binary, ConnectType.BYTES),
    (pa.types.is_large_binary, ConnectType.BYTES),
    (pa.types.is_fixed_size_binary, ConnectType.BYTES),
)


def in_form_of(column: Any, schema: ConnectSchema) -> Any:
    """The column in exactly the type of `arrow_type(schema)`, except inside of structs, lists and maps.

    Raises ArrowInvalid for a value that this type cannot hold.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if schema.type in (ConnectType.STRUCT, ConnectType.ARRAY, ConnectType.MAP):
        return column
    if pa.types.is_decimal(column.type):
        return column
    kind = arrow_type(schema)
    if column.type.equals(kind):
        return column
    if pa.types.is_timestamp(column.type) or pa.types.is_time(column.type):
        return _floor_milliseconds(column, kind)
    return column.cast(kind)


_PER_MILLISECOND: Final = {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}


def _floor_milliseconds(column: Any, kind: Any) -> Any:
    """Times and timestamps in milliseconds; parts of a millisecond are cut off towards the past, as in Java."""
    unit = column.type.unit
    if unit == "s":
        column = column.cast(pa.time32("ms") if pa.types.is_time(column.type) else pa.timestamp("ms", column.type.tz))
    numbers = floored(column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()), _PER_MILLISECOND[unit])
    return numbers.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


def floored(numbers: Any, divisor: int) -> Any:
    """The integers divided by `divisor`, rounded down."""
    if divisor == 1:
        return numbers
    values = _pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    mask = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
    return pa.array(np.floor_divide(values, divisor), numbers.type, mask=mask)
