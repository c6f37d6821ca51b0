"""Codec: the body of a TABLE_MAP event, with the optional metadata of binlog_row_metadata=FULL.

    6 bytes table id, 2 bytes flags
    1 byte length, database, NUL; 1 byte length, table, NUL
    packed number of columns n, n bytes types
    packed size, the types' metadata (0, 1 or 2 bytes for each column)
    (n + 7) // 8 bytes: which columns may be null, lowest bit first
    fields of optional metadata: 1 byte MetadataField, packed size, value

The bits in SIGNEDNESS and COLUMN_VISIBILITY are in the opposite order: the first column has the highest bit of the
first byte. MariaDB gives GEOMETRY a character set and MySQL does not. Source: MySQL's rows_event.h and
field_common_properties.h, MariaDB's log_event_client.cc, and the binlogs of MariaDB 10.11.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.spark.connectors.mysql.binlog.charsets import BINARY_COLLATION, decode_text, python_encoding
from barnabas.spark.connectors.mysql.binlog.codes import CHARACTER, NUMERIC, BinlogColumnType, MetadataField
from barnabas.spark.connectors.mysql.binlog.cursor import EventCursor
from barnabas.spark.connectors.mysql.binlog.events import BinlogColumn, BinlogTable
from barnabas.spark.connectors.mysql.errors import UnsupportedBinlogError

_FRACTIONS = frozenset((BinlogColumnType.TIME2, BinlogColumnType.DATETIME2, BinlogColumnType.TIMESTAMP2))
_LENGTHS = frozenset(
    (
        BinlogColumnType.BLOB,
        BinlogColumnType.BLOB_COMPRESSED,
        BinlogColumnType.TINY_BLOB,
        BinlogColumnType.MEDIUM_BLOB,
        BinlogColumnType.LONG_BLOB,
        BinlogColumnType.VECTOR,
        BinlogColumnType.JSON,
        BinlogColumnType.GEOMETRY,
    )
)
_ONE_BYTE = _FRACTIONS | _LENGTHS | {BinlogColumnType.FLOAT, BinlogColumnType.DOUBLE}
_COMPRESSED = frozenset((BinlogColumnType.BLOB_COMPRESSED, BinlogColumnType.VARCHAR_COMPRESSED))
_COLUMNS_MAX = 4096  # MySQL's MAX_FIELDS


def decode_table(cursor: EventCursor, mariadb: bool) -> BinlogTable:
    """The table of an event, whose id and flags `cursor` has passed.

    A table with a column or with metadata of an unknown type is `unreadable`, since it may be one that is not captured.
    Raises BinlogError for damaged bytes.
    """
    database = _name(cursor)
    name = _name(cursor)
    try:
        return _table(cursor, database, name, mariadb)
    except UnsupportedBinlogError as error:
        return BinlogTable(database, name, (), (), described=False, unreadable=str(error))


def _table(cursor: EventCursor, database: str, name: str, mariadb: bool) -> BinlogTable:
    count = cursor.packed_int()
    if count > _COLUMNS_MAX:
        raise cursor.error(f"the table {database}.{name} has {count} columns; a server allows {_COLUMNS_MAX}")
    types = cursor.take(count)
    metas = cursor.within(cursor.packed_int())
    kinds = [_kind(code, metas, f"{database}.{name}") for code in types]
    metas.expect_end()
    nullable = cursor.take((count + 7) // 8)
    fields = _fields(cursor)
    names = _names(fields.get(MetadataField.COLUMN_NAME), count)
    unsigned = _signedness(fields, kinds)
    collations = _collations(fields, kinds, mariadb)
    values = _members(fields, kinds, collations)
    visible = _bits(fields.get(MetadataField.COLUMN_VISIBILITY), count)
    columns = tuple(
        BinlogColumn(
            names[i],
            kind,
            meta,
            bool(nullable[i >> 3] >> (i & 7) & 1),
            unsigned.get(i, False),
            collations.get(i, 0),
            values.get(i),
            visible[i] if visible else True,
        )
        for i, (kind, meta) in enumerate(kinds)
    )
    described = MetadataField.COLUMN_NAME in fields or count == 0
    return BinlogTable(database, name, columns, _primary_key(fields, count), described)


def _name(cursor: EventCursor) -> str:
    raw = cursor.take(cursor.uint(1))
    if cursor.uint(1) != 0:
        raise cursor.error("a name does not end with NUL")
    return cursor.text(raw)


def _names(field: EventCursor | None, count: int) -> list[str]:
    if field is None:
        return [""] * count
    names = [field.text(field.packed_bytes()) for _ in range(count)]
    field.expect_end()
    return names


def _kind(code: int, metas: EventCursor, table: str) -> tuple[int, int]:
    """The type of a column, and its metadata, as `BinlogColumn.meta` describes it."""
    if code in _ONE_BYTE:
        meta = metas.uint(1)
        if code in _FRACTIONS and meta > 6:
            raise metas.error(f"a time has {meta} digits behind the second")
        if code in _LENGTHS and not 1 <= meta <= 4:
            raise metas.error(f"a BLOB has lengths of {meta} bytes")
        return code, meta
    if code in (BinlogColumnType.VARCHAR, BinlogColumnType.VARCHAR_COMPRESSED):
        return code, metas.uint(2)
    if code == BinlogColumnType.NEWDECIMAL:
        precision, scale = metas.take(2)
        if not (0 < precision <= 65 and scale <= min(precision, 38)):
            raise metas.error(f"DECIMAL({precision},{scale}) is not possible")
        return code, precision << 8 | scale
    if code == BinlogColumnType.BIT:
        bits, full_bytes = metas.take(2)
        if bits > 7 or not 0 < full_bytes * 8 + bits <= 64:
            raise metas.error(f"a BIT column of {full_bytes} bytes and {bits} bits is not possible")
        return code, full_bytes * 8 + bits
    if code in (BinlogColumnType.STRING, BinlogColumnType.VAR_STRING, BinlogColumnType.ENUM, BinlogColumnType.SET):
        real, length = metas.take(2)
        if real & 0x30 != 0x30:  # two bits of the length are stored, inverted, in the byte of the type
            length |= (real & 0x30 ^ 0x30) << 4
            real |= 0x30
        if real not in (
            BinlogColumnType.STRING,
            BinlogColumnType.VAR_STRING,
            BinlogColumnType.ENUM,
            BinlogColumnType.SET,
        ):
            raise metas.error(f"a string column has the type {real}")
        if (real == BinlogColumnType.ENUM and length not in (1, 2)) or (
            real == BinlogColumnType.SET and not 1 <= length <= 8
        ):
            raise metas.error(f"an ENUM or SET of {length} bytes is not possible")
        return real, length
    if code not in BinlogColumnType._value2member_map_ or code in (BinlogColumnType.TYPED_ARRAY, BinlogColumnType.NULL):
        raise UnsupportedBinlogError(
            f"{metas.where}: the table {table} has a column of the unknown type {code}. Leave the table out with "
            "table.exclude.list, or use a version of Barnabas that knows the type"
        )
    return code, 0


def _fields(cursor: EventCursor) -> dict[MetadataField, EventCursor]:
    """The fields of optional metadata. A field that is unknown is an error: it may change the meaning of the rows."""
    fields: dict[MetadataField, EventCursor] = {}
    while cursor.left:
        code = cursor.uint(1)
        value = cursor.within(cursor.packed_int())
        try:
            fields[MetadataField(code)] = value
        except ValueError:
            raise UnsupportedBinlogError(
                f"{cursor.where}: the TABLE_MAP event has metadata of the unknown type {code}. The server is newer "
                "than this version of Barnabas: upgrade Barnabas, or leave the table out with table.exclude.list"
            ) from None
    return fields


def _bits(field: EventCursor | None, count: int) -> list[bool]:
    """`count` bits, the highest bit of each byte first; empty if the field is absent."""
    if field is None:
        return []
    raw = field.take((count + 7) // 8)
    field.expect_end()
    return [bool(raw[i >> 3] >> (7 - (i & 7)) & 1) for i in range(count)]


def _signedness(fields: dict[MetadataField, EventCursor], kinds: Sequence[tuple[int, int]]) -> dict[int, bool]:
    numeric = [i for i, (kind, _) in enumerate(kinds) if kind in NUMERIC]
    return dict(zip(numeric, _bits(fields.get(MetadataField.SIGNEDNESS), len(numeric)), strict=False))


def _packed_ints(field: EventCursor) -> list[int]:
    values = []
    while field.left:
        values.append(field.packed_int())
    return values


def _charset_of(columns: list[int], default: EventCursor | None, each: EventCursor | None) -> dict[int, int]:
    """The collation of each of `columns`: a default with exceptions, or one for each column."""
    if each is not None:
        found = _packed_ints(each)
        if len(found) != len(columns):
            raise each.error(f"{len(found)} collations are given for {len(columns)} columns")
        return dict(zip(columns, found, strict=True))
    if default is None:
        return {}
    first, *exceptions = _packed_ints(default) or [0]
    result = dict.fromkeys(columns, first)
    if len(exceptions) % 2:
        raise default.error("a column's collation is missing")
    for i, collation in zip(exceptions[::2], exceptions[1::2], strict=True):
        if i >= len(columns):
            raise default.error(f"the collation of column {i} of {len(columns)} is given")
        result[columns[i]] = collation
    return result


def _collations(
    fields: dict[MetadataField, EventCursor], kinds: Sequence[tuple[int, int]], mariadb: bool
) -> dict[int, int]:
    more = _COMPRESSED | {BinlogColumnType.GEOMETRY} if mariadb else {BinlogColumnType.VECTOR}
    characters = [i for i, (kind, _) in enumerate(kinds) if kind in CHARACTER or kind in more]
    members = [i for i, (kind, _) in enumerate(kinds) if kind in (BinlogColumnType.ENUM, BinlogColumnType.SET)]
    return {
        **_charset_of(characters, fields.get(MetadataField.DEFAULT_CHARSET), fields.get(MetadataField.COLUMN_CHARSET)),
        **_charset_of(
            members,
            fields.get(MetadataField.ENUM_AND_SET_DEFAULT_CHARSET),
            fields.get(MetadataField.ENUM_AND_SET_COLUMN_CHARSET),
        ),
    }


def _members(
    fields: dict[MetadataField, EventCursor], kinds: Sequence[tuple[int, int]], collations: dict[int, int]
) -> dict[int, tuple[str, ...]]:
    """The members of each ENUM and SET column, except for those in a character set that cannot be decoded."""
    result: dict[int, tuple[str, ...]] = {}
    for name, wanted in (
        (MetadataField.ENUM_STR_VALUE, BinlogColumnType.ENUM),
        (MetadataField.SET_STR_VALUE, BinlogColumnType.SET),
    ):
        field = fields.get(name)
        if field is None:
            continue
        for i, (kind, _) in enumerate(kinds):
            if kind == wanted:
                count = field.packed_int()
                if count > field.left:
                    raise field.error(f"{count} members of an ENUM or SET do not fit")
                members = [field.packed_bytes() for _ in range(count)]
                encoding = _encoding(collations.get(i, 0), field.where)
                if encoding is not None:
                    result[i] = tuple(_member(field, raw, encoding) for raw in members)
        field.expect_end()
    return result


def _encoding(collation: int, where: str) -> str | None:
    try:
        return "latin-1" if collation == BINARY_COLLATION else python_encoding(collation, where)
    except UnsupportedBinlogError:
        return None


def _member(field: EventCursor, raw: bytes, encoding: str) -> str:
    try:
        return decode_text(raw, encoding)
    except UnicodeDecodeError as error:
        raise field.error(f"a member of an ENUM or SET is not valid {encoding}") from error


def _primary_key(fields: dict[MetadataField, EventCursor], count: int) -> tuple[int, ...]:
    step = 1
    field = fields.get(MetadataField.SIMPLE_PRIMARY_KEY)
    if field is None:
        field = fields.get(MetadataField.PRIMARY_KEY_WITH_PREFIX)
        step = 2  # the column, then the length of its prefix, 0 if all of it
    if field is None:
        return ()
    found = _packed_ints(field)[::step]
    if any(i >= count for i in found):
        raise field.error(f"a column of the primary key is not among the {count} columns")
    return tuple(found)
