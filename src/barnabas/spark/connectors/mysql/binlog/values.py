"""Codec: the cells of one column to one Arrow array.

| Column | Arrow | Cell |
|---|---|---|
| TINYINT to INT, UNSIGNED | int8, int16, int32; the next wider one if unsigned | 1 to 4 bytes, little-endian |
| BIGINT; UNSIGNED | int64; decimal128(20, 0) | 8 bytes |
| FLOAT, DOUBLE | float, double | IEEE 754 |
| DECIMAL(p, s) | decimal128(p, s); string if p > 38 | `decimals.py` |
| BIT(1); BIT(n) | bool; binary, as the server writes it, big-endian | (n + 7) // 8 bytes |
| YEAR | int16, 0 for the year 0000 | years since 1900, or 0 |
| DATE | date32 | `times.py` |
| DATETIME; TIMESTAMP; TIME | timestamp[us]; timestamp[us, UTC]; int64 microseconds | `times.py` |
| ENUM; SET | string; string with commas | index from 1, or bits |
| CHAR, VARCHAR, TEXT | string | in the column's character set |
| BINARY(n) | binary, padded with zeros | the server cuts zeros off at the end |
| VARBINARY, BLOB, VECTOR | binary | |
| JSON (MySQL) | string | `json_binary.py` |
| GEOMETRY | binary: 4 bytes SRID, then WKB | |

JSON of MariaDB is a LONGTEXT. UUID and INET6 of MariaDB are BINARY(16) in the binlog; a UUID is in the order in which
the server sorts it. Spark has no unsigned types, so unsigned ones are widened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow.compute
from msgspec import Struct

from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.protocol.records.columnar.from_numpy import validity_buffer
from barnabas.spark.connectors.mysql.binlog import decimals, times
from barnabas.spark.connectors.mysql.binlog.charsets import (
    BINARY_COLLATION,
    contains_ascii,
    decode_text,
    python_encoding,
)
from barnabas.spark.connectors.mysql.binlog.codes import REFUSED_COLUMN_TYPES, BinlogColumnType
from barnabas.spark.connectors.mysql.binlog.events import BinlogColumn, BinlogTable
from barnabas.spark.connectors.mysql.binlog.json_binary import decode_json
from barnabas.spark.connectors.mysql.binlog.row_kernels import copy_cells, gather_fixed
from barnabas.spark.connectors.mysql.errors import UnsupportedBinlogError

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

Decoded = tuple[Any, int]
"""An Arrow array, and the number of its cells that are null because they hold no date."""


class Cells(Struct):
    """The cells of a column: cell i is `data[at[i] : at[i] + length[i]]`, or null if `length[i]` is -1."""

    data: Any
    at: Any
    length: Any

    def __len__(self) -> int:
        return len(self.at)

    def fixed(self, width: int) -> Any:
        """The cells as a matrix of bytes, one row for each cell, with zeros for nulls."""
        out = np.empty(len(self.at) * width, np.uint8)
        gather_fixed(self.data, self.at, self.length, width, out)
        return out.reshape(len(self.at), width)

    def valid(self) -> Any:
        """Which cells are not null."""
        return self.length >= 0

    def slices(self) -> list[bytes | None]:
        """The cells as bytes objects."""
        raw = self.data.tobytes()
        pairs = zip(self.at.tolist(), self.length.tolist(), strict=True)
        return [None if size < 0 else raw[at : at + size] for at, size in pairs]


class CellDecoder(Struct, frozen=True):
    """How the cells of a column are decoded. `decode` raises ValueError for a value that the column cannot have."""

    type: Any
    decode: Callable[[Cells], Decoded]


_INT_WIDTHS: Final = {
    BinlogColumnType.TINY: 1,
    BinlogColumnType.SHORT: 2,
    BinlogColumnType.INT24: 3,
    BinlogColumnType.LONG: 4,
    BinlogColumnType.LONGLONG: 8,
}


_OLD_WIDTHS: Final = {BinlogColumnType.TIMESTAMP: 4, BinlogColumnType.TIME: 3, BinlogColumnType.DATETIME: 8}
_LENGTH_OF_LARGEST: Final = frozenset(
    (
        BinlogColumnType.VARCHAR,
        BinlogColumnType.VARCHAR_COMPRESSED,
        BinlogColumnType.VAR_STRING,
        BinlogColumnType.STRING,
    )
)
_LEAVE_OUT: Final = "Or leave the column out with column.exclude.list"


def cell_width(table: BinlogTable, column: BinlogColumn) -> int:
    """The width of a column's cells in bytes, or minus the number of bytes of the length before each cell.

    It is known for columns that `column_decoder` refuses, too. Raises UnsupportedBinlogError for DECIMAL of MySQL 4,
    whose width the binlog does not have.
    """
    kind, meta = column.type, column.meta
    if kind in _INT_WIDTHS:
        return _INT_WIDTHS[BinlogColumnType(kind)]
    if kind in _OLD_WIDTHS:
        return _OLD_WIDTHS[BinlogColumnType(kind)]
    if kind in _LENGTH_OF_LARGEST:
        return -1 if meta < 256 else -2
    match kind:
        case BinlogColumnType.FLOAT:
            return 4
        case BinlogColumnType.DOUBLE:
            return 8
        case BinlogColumnType.NEWDECIMAL:
            return decimals.binary_size(meta >> 8, meta & 0xFF)
        case BinlogColumnType.YEAR:
            return 1
        case BinlogColumnType.DATE | BinlogColumnType.NEWDATE:
            return 3
        case BinlogColumnType.TIME2:
            return 3 + times.fraction_bytes(meta)
        case BinlogColumnType.DATETIME2:
            return 5 + times.fraction_bytes(meta)
        case BinlogColumnType.TIMESTAMP2:
            return 4 + times.fraction_bytes(meta)
        case BinlogColumnType.BIT:
            return (meta + 7) // 8
        case BinlogColumnType.ENUM | BinlogColumnType.SET:
            return meta
        case BinlogColumnType.DECIMAL:
            raise _old_format(table, column, "")
        case _:
            return -meta


def _old_format(table: BinlogTable, column: BinlogColumn, more: str) -> UnsupportedBinlogError:
    return UnsupportedBinlogError(
        f"column {table.database}.{table.name}.{column.name} is a "
        f"{REFUSED_COLUMN_TYPES[BinlogColumnType(column.type)]}. Run ALTER TABLE `{table.database}`.`{table.name}` "
        f"FORCE, which converts it (MariaDB: with mysql56_temporal_format=ON), and start from a new snapshot{more}"
    )


def column_decoder(table: BinlogTable, column: BinlogColumn) -> CellDecoder:
    """The decoder of a column. Raises UnsupportedBinlogError for one that this package does not read."""
    kind, meta = column.type, column.meta
    name = f"{table.database}.{table.name}.{column.name}"
    if column.unreadable:
        raise UnsupportedBinlogError(column.unreadable)
    if kind in REFUSED_COLUMN_TYPES:
        raise _old_format(table, column, "" if kind == BinlogColumnType.DECIMAL else f". {_LEAVE_OUT}")
    if kind in (BinlogColumnType.BLOB_COMPRESSED, BinlogColumnType.VARCHAR_COMPRESSED):
        raise UnsupportedBinlogError(
            f"column {name} has the attribute COMPRESSED. Run ALTER TABLE `{table.database}`.`{table.name}` MODIFY "
            f"`{column.name}` ... without COMPRESSED, and start from a new snapshot. {_LEAVE_OUT}"
        )
    if kind in _INT_WIDTHS:
        return _integer(_INT_WIDTHS[BinlogColumnType(kind)], column.unsigned)
    match kind:
        case BinlogColumnType.FLOAT:
            return CellDecoder(pa.float32(), _floats(4, "<f4", pa.float32()))
        case BinlogColumnType.DOUBLE:
            return CellDecoder(pa.float64(), _floats(8, "<f8", pa.float64()))
        case BinlogColumnType.NEWDECIMAL:
            precision, scale = meta >> 8, meta & 0xFF
            width = cell_width(table, column)
            return CellDecoder(
                decimals.arrow_type(precision, scale),
                lambda cells: (decimals.decode(cells.fixed(width), cells.valid(), precision, scale), 0),
            )
        case BinlogColumnType.YEAR:
            return CellDecoder(pa.int16(), _years)
        case BinlogColumnType.DATE | BinlogColumnType.NEWDATE:
            return CellDecoder(pa.date32(), lambda cells: times.dates(cells.fixed(3), cells.valid()))
        case BinlogColumnType.TIME2:
            size = cell_width(table, column)
            return CellDecoder(pa.int64(), lambda cells: (times.durations(cells.fixed(size), cells.valid(), meta), 0))
        case BinlogColumnType.DATETIME2:
            size = cell_width(table, column)
            return CellDecoder(
                pa.timestamp("us"), lambda cells: times.datetimes(cells.fixed(size), cells.valid(), meta)
            )
        case BinlogColumnType.TIMESTAMP2:
            size = cell_width(table, column)
            return CellDecoder(
                pa.timestamp("us", "UTC"), lambda cells: times.timestamps(cells.fixed(size), cells.valid(), meta)
            )
        case BinlogColumnType.BIT:
            return _bits(meta)
        case BinlogColumnType.ENUM | BinlogColumnType.SET:
            return _members(name, column)
        case BinlogColumnType.JSON:
            return CellDecoder(pa.string(), _json)
        case _:
            return _bytes_or_text(name, column)


def _array(kind: Any, cells_valid: Any, values: Any) -> Any:
    """An Arrow array over numpy values, without a copy where that is possible."""
    return pa.array(values, kind, mask=None if cells_valid.all() else ~cells_valid)


_SIGNED: Final = {1: pa.int8(), 2: pa.int16(), 3: pa.int32(), 4: pa.int32(), 8: pa.int64()}
_UNSIGNED: Final = {1: pa.int16(), 2: pa.int32(), 3: pa.int32(), 4: pa.int64(), 8: pa.decimal128(20, 0)}


def _integer(width: int, unsigned: bool) -> CellDecoder:
    kind = (_UNSIGNED if unsigned else _SIGNED)[width]

    def decode(cells: Cells) -> Decoded:
        raw = cells.fixed(width)
        if width == 3:
            wide = np.zeros((len(raw), 4), np.uint8)
            wide[:, 1:] = raw
            values = wide.view("<u4" if unsigned else "<i4").ravel() >> 8
        else:
            values = raw.view(f"<{'u' if unsigned else 'i'}{width}").ravel()
        if width == 8 and unsigned:
            return decimals.from_limbs(values, np.zeros(len(raw), np.int64), cells.valid(), kind), 0
        return _array(kind, cells.valid(), values.astype(kind.to_pandas_dtype(), copy=False)), 0

    return CellDecoder(kind, decode)


def _floats(width: int, layout: str, kind: Any) -> Callable[[Cells], Decoded]:
    return lambda cells: (_array(kind, cells.valid(), cells.fixed(width).view(layout).ravel()), 0)


def _years(cells: Cells) -> Decoded:
    values = cells.fixed(1).ravel().astype(np.int16)
    return _array(pa.int16(), cells.valid(), np.where(values == 0, 0, values + 1900).astype(np.int16)), 0


def _bits(bits: int) -> CellDecoder:
    if bits == 1:
        return CellDecoder(
            pa.bool_(), lambda cells: (_array(pa.bool_(), cells.valid(), cells.fixed(1).ravel() != 0), 0)
        )
    return CellDecoder(pa.binary(), lambda cells: (binary_array(cells), 0))


def _members(name: str, column: BinlogColumn) -> CellDecoder:
    members = column.values
    if members is None:
        python_encoding(column.collation, f"column {name}")  # raises if that is why they are unknown
        raise UnsupportedBinlogError(
            f"the binlog does not name the members of column {name}. Run SET GLOBAL binlog_row_metadata = 'FULL', and "
            "start from a new snapshot"
        )
    width = column.meta
    of_code = _enum_member if column.type == BinlogColumnType.ENUM else _set_members

    def decode(cells: Cells) -> Decoded:
        wide = np.zeros((len(cells), 8), np.uint8)
        wide[:, :width] = cells.fixed(width)
        codes, places = np.unique(wide.view("<u8").ravel(), return_inverse=True)
        present = set(np.unique(places[cells.valid()]).tolist())
        texts = pa.array(
            [of_code(members, int(code)) if i in present else "" for i, code in enumerate(codes)], pa.string()
        )
        return texts.take(_array(pa.int64(), cells.valid(), places.astype(np.int64))), 0

    return CellDecoder(pa.string(), decode)


def _enum_member(members: tuple[str, ...], code: int) -> str:
    """The member with an index from 1; 0 is the empty string, which a server stores for an invalid value."""
    if code > len(members):
        raise ValueError(f"the ENUM has {len(members)} members, the row has number {code}")
    return members[code - 1] if code else ""


def _set_members(members: tuple[str, ...], code: int) -> str:
    if code >> len(members):
        raise ValueError(f"the SET has {len(members)} members, the row has the bits {code:b}")
    return ",".join(member for i, member in enumerate(members) if code >> i & 1)


def _json(cells: Cells) -> Decoded:
    return pa.array([None if raw is None else decode_json(raw) for raw in cells.slices()], pa.string()), 0


def _bytes_or_text(name: str, column: BinlogColumn) -> CellDecoder:
    kind, meta = column.type, column.meta
    if kind in (BinlogColumnType.GEOMETRY, BinlogColumnType.VECTOR) or column.collation == BINARY_COLLATION:
        padded = meta if kind == BinlogColumnType.STRING else None
        return CellDecoder(pa.binary(), lambda cells: (binary_array(cells, padded), 0))
    if column.collation == 0:
        raise UnsupportedBinlogError(
            f"the binlog does not name the character set of column {name}. Run SET GLOBAL binlog_row_metadata = "
            "'FULL', and start from a new snapshot"
        )
    encoding = python_encoding(column.collation, f"column {name}")
    if encoding in ("utf-8", "ascii"):
        return CellDecoder(pa.string(), lambda cells: (binary_array(cells).cast(pa.string()), 0))

    if contains_ascii(encoding):
        return CellDecoder(pa.string(), lambda cells: (_mostly_ascii(cells, encoding), 0))

    def transcode(cells: Cells) -> Decoded:
        texts = [None if raw is None else decode_text(raw, encoding) for raw in cells.slices()]
        return pa.array(texts, pa.string()), 0

    return CellDecoder(pa.string(), transcode)


def _mostly_ascii(cells: Cells, encoding: str) -> Any:
    """Texts in a character set that contains ASCII: only those with other characters are decoded one by one."""
    raw = binary_array(cells)
    texts = raw.cast(pa.string(), safe=False)
    others = _pc.fill_null(_pc.invert(_pc.string_is_ascii(texts)), False)
    decoded = [decode_text(value, encoding) for value in raw.filter(others).to_pylist()]
    return _pc.replace_with_mask(texts, others, pa.array(decoded, pa.string())) if decoded else texts


def binary_array(cells: Cells, padded: int | None = None) -> Any:
    """The cells as a binary array; with `padded`, each has at least that many bytes. Raises ValueError over 2 GiB."""
    sizes = np.maximum(cells.length, 0)
    if padded is not None:
        sizes = np.where(cells.length >= 0, np.maximum(sizes, padded), 0)
    offsets = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] > (1 << 31) - 1:
        raise ValueError(
            f"the cells of the run have {offsets[-1]} bytes together, more than 2 GiB: decode a shorter run"
        )
    offsets = offsets.astype(np.int32)
    out = np.empty(int(offsets[-1]), np.uint8)
    copy_cells(cells.data, cells.at, cells.length, out, offsets)
    return pa.Array.from_buffers(
        pa.binary(), len(cells), [validity_buffer(cells.valid()), pa.py_buffer(offsets), pa.py_buffer(out)]
    )
