"""Codec: rows of a SELECT in the text protocol to Arrow columns of the types that the binlog's rows have.

    packet  3 bytes size, 1 byte sequence number, payload; a payload of 2^24 - 1 bytes goes on in the next packet
    row     for each column, a packed length and text; 0xfb is null
    end     a payload of fewer than 9 bytes that begins with 0xfe (EOF), or one that begins with 0xff (an error)

The session must have time_zone = '+00:00' and character_set_results = utf8mb4, and the columns are selected by the
expressions of `columns.py`. Source: MySQL's "Client/Server Protocol", text result sets.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow.compute
from msgspec import Struct

from barnabas.protocol.records.columnar._jit import BYTES, OUT_I32, OUT_I64, kernel, np, pa, scalar
from barnabas.spark.connectors.mysql.binlog import times
from barnabas.spark.connectors.mysql.binlog.codes import BinlogColumnType
from barnabas.spark.connectors.mysql.binlog.cursor import EventCursor
from barnabas.spark.connectors.mysql.binlog.events import BinlogColumn, BinlogTable
from barnabas.spark.connectors.mysql.binlog.values import Cells, binary_array, column_decoder
from barnabas.spark.connectors.mysql.errors import SnapshotError

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time
_T = BinlogColumnType

HEADER_BYTES: Final = 4
LONGEST_PAYLOAD: Final = (1 << 24) - 1
MORE, END, ERROR, LONG, MALFORMED = range(5)
"""Why a scan stops: the next packet is not there as a whole, it is the end, an error, a row of more than one packet, or
it is not a row."""


@kernel((BYTES, scalar, scalar, scalar, OUT_I64, OUT_I32, OUT_I64))
def scan_rows(data: Any, begin: Any, columns: Any, rows_max: Any, at: Any, length: Any, state: Any) -> Any:
    """Find the cells of whole rows in packets from `data[begin]` on, at most `rows_max` rows.

    Cell c of row r is `data[at[c * rows_max + r] :]` with `length[c * rows_max + r]` bytes, or -1 for null. Returns the
    number of rows; `state` gets the position behind them, and why the scan stopped.
    """
    position = begin
    rows = 0
    reason = 0
    total = len(data)
    while rows < rows_max:
        if total - position < 4:
            break
        size = np.int64(data[position]) | np.int64(data[position + 1]) << 8 | np.int64(data[position + 2]) << 16
        if size == 0xFFFFFF:
            reason = 3
            break
        if size > total - position - 4:
            break
        place = position + 4
        end = place + size
        if size == 0:
            reason = 4
            break
        if data[place] == 0xFE and size < 9:
            reason = 1
            break
        if data[place] == 0xFF:
            reason = 2
            break
        for column in range(columns):
            if place >= end:
                reason = 4
                break
            first = data[place]
            place += 1
            slot = column * rows_max + rows
            if first == 0xFB:
                at[slot] = 0
                length[slot] = -1
                continue
            width = 0
            if first == 0xFC:
                width = 2
            elif first == 0xFD:
                width = 3
            elif first == 0xFE:
                width = 8
            cell = np.int64(first)
            if width > 0:
                if place + width > end:
                    reason = 4
                    break
                cell = np.int64(0)
                for k in range(width):
                    cell |= np.int64(data[place + k]) << (8 * k)
                place += width
            if cell < 0 or cell > end - place:
                reason = 4
                break
            at[slot] = place
            length[slot] = cell
            place += cell
        if reason == 0 and place != end:
            reason = 4
        if reason != 0:
            break
        position = end
        rows += 1
    state[0] = position
    state[1] = reason
    return rows


class ScannedRows(Struct, frozen=True):
    """Rows that were found in packets: their cells by column, the position behind them, and why the scan stopped."""

    cells: tuple[Cells, ...]
    count: int
    end: int
    reason: int


def scan(data: bytes | bytearray, begin: int, columns: int, rows_max: int) -> ScannedRows:
    """Find whole rows in packets from a position on."""
    raw = np.frombuffer(data, np.uint8)
    raw.flags.writeable = False
    at = np.empty(columns * rows_max, np.int64)
    length = np.empty(columns * rows_max, np.int32)
    state = np.zeros(2, np.int64)
    count = int(scan_rows(raw, begin, columns, rows_max, at, length, state))
    slots = [slice(column * rows_max, column * rows_max + count) for column in range(columns)]
    cells = tuple(Cells(raw, at[slot], length[slot]) for slot in slots)
    return ScannedRows(cells, count, int(state[0]), int(state[1]))


def take_long_row(buffer: bytearray) -> bytes | None:
    """Remove a row of several packets from the start of a buffer, and return its payload; None if it is not whole."""
    parts: list[bytes] = []
    at = 0
    while True:
        size = int.from_bytes(buffer[at : at + 3], "little")
        if len(buffer) < at + HEADER_BYTES + size:
            return None
        parts.append(bytes(buffer[at + HEADER_BYTES : at + HEADER_BYTES + size]))
        at += HEADER_BYTES + size
        if size < LONGEST_PAYLOAD:
            del buffer[:at]
            return b"".join(parts)


def scan_long_row(payload: bytes, columns: int) -> ScannedRows:
    """The cells of the payload of one row. Raises BinlogError if the payload is not a row."""
    raw = np.frombuffer(payload, np.uint8)
    cells = []
    cursor = EventCursor(payload, "a row of the snapshot")
    for _ in range(columns):
        if cursor.left and payload[cursor.at] == 0xFB:
            cursor.skip(1)
            cells.append(Cells(raw, np.zeros(1, np.int64), np.full(1, -1, np.int32)))
        else:
            size = cursor.packed_int()
            cells.append(Cells(raw, np.array([cursor.skip(size)], np.int64), np.array([size], np.int32)))
    cursor.expect_end()
    return ScannedRows(tuple(cells), 1, len(payload), MORE)


def decode_columns(table: BinlogTable, cells: tuple[Cells, ...]) -> tuple[list[Any], int]:
    """The Arrow columns of rows, and the number of cells that are null because they hold no date.

    Raises SnapshotError if a cell has a text that its column cannot have.
    """
    arrays = []
    zero_dates = 0
    for column, found in zip(table.columns, cells, strict=True):
        try:
            array, zeros = _decode(column, found, column_decoder(table, column).type)
        except (ValueError, pa.ArrowInvalid) as error:
            raise SnapshotError(
                f"column {column.name} of {table.database}.{table.name} has a value that cannot be read: {error}. "
                "Correct the row in the database, or exclude the column with column.exclude.list"
            ) from error
        arrays.append(array)
        zero_dates += zeros
    return arrays, zero_dates


def _decode(column: BinlogColumn, cells: Cells, kind: Any) -> tuple[Any, int]:
    valid = cells.valid()
    match column.type:
        case _T.DATE | _T.NEWDATE:
            digits = _digits(cells, valid, 10)
            return times.civil_dates(*_civil(digits), valid)
        case _T.DATETIME2 | _T.TIMESTAMP2:
            width = 19 + (1 + column.meta if column.meta else 0)
            digits = _digits(cells, valid, width)
            clock = [_number(digits, place, 2) for place in (11, 14, 17)]
            fraction = _number(digits, 20, column.meta) * 10 ** (6 - column.meta) if column.meta else clock[0] * 0
            return times.civil_datetimes(_civil(digits), clock, fraction, valid, kind)
        case _T.TIME2:
            return pa.array([None if raw is None else _microseconds(raw) for raw in cells.slices()], kind), 0
        case _T.BIT if column.meta == 1:
            flags = cells.fixed(1).ravel() != 0
            return pa.array(flags, kind, mask=None if valid.all() else ~valid), 0
        case _T.FLOAT:
            return _texts(cells).cast(pa.float64()).cast(pa.float32(), safe=False), 0
    raw = binary_array(cells)
    if pa.types.is_binary(kind):
        return raw, 0
    return raw.cast(pa.string()) if pa.types.is_string(kind) else raw.cast(pa.string()).cast(kind), 0


def _texts(cells: Cells) -> Any:
    return binary_array(cells).cast(pa.string())


def _digits(cells: Cells, valid: Any, width: int) -> Any:
    """The characters of cells of one width, as a matrix of their distances from the character 0."""
    if (cells.length[valid] != width).any():
        raise ValueError(f"a date or time has another length than {width} characters")
    return cells.fixed(width).astype(np.int64) - 48


def _number(digits: Any, place: int, count: int) -> Any:
    total = digits[:, place] * 0
    for k in range(place, place + count):
        total = total * 10 + digits[:, k]
    return total


def _civil(digits: Any) -> tuple[Any, Any, Any]:
    return _number(digits, 0, 4), _number(digits, 5, 2), _number(digits, 8, 2)


def _microseconds(raw: bytes) -> int:
    """A TIME such as -838:59:59.000000."""
    negative = raw[:1] == b"-"
    hours, minutes, rest = raw[negative:].split(b":")
    seconds, _, fraction = rest.partition(b".")
    total = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    micros = total * 1_000_000 + int(fraction.ljust(6, b"0"))
    return -micros if negative else micros
