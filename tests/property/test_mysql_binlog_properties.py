"""Binlogs: what is encoded is decoded; damaged bytes give the documented errors; GTID sets are sets."""

from __future__ import annotations

import contextlib
import zlib
from datetime import datetime
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.spark.connectors.mysql.binlog.codes import BinlogColumnType
from barnabas.spark.connectors.mysql.binlog.decoder import BinlogDecoder, split_file
from barnabas.spark.connectors.mysql.binlog.events import RowsEvent, TableMap
from barnabas.spark.connectors.mysql.binlog.json_binary import decode_json
from barnabas.spark.connectors.mysql.binlog.rows import RowDecoder
from barnabas.spark.connectors.mysql.binlog.statements import classify
from barnabas.spark.connectors.mysql.binlog.transactions import RowChanges, TransactionAssembler
from barnabas.spark.connectors.mysql.errors import MysqlSourceError
from barnabas.spark.connectors.mysql.positions import BinlogPosition, GtidSet
from tests.property import mysql_encoder as enc

UUIDS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "00000000-0000-0000-0000-000000000001")


def integers(kind: int, size: int, unsigned: bool) -> tuple[enc.EncodedColumn, Any, Any]:
    low, high = (0, 256**size - 1) if unsigned else (-(256**size) // 2, 256**size // 2 - 1)
    column = enc.EncodedColumn("", kind, unsigned=unsigned)
    return column, st.integers(low, high), lambda value: value.to_bytes(size, "little", signed=not unsigned)


COLUMNS: list[tuple[enc.EncodedColumn, Any, Any]] = [
    *[integers(kind, size, sign) for kind, size in ((1, 1), (2, 2), (9, 3), (3, 4), (8, 8)) for sign in (False, True)],
    (enc.TEXT, st.text(st.characters(exclude_categories=["Cs"]), max_size=30), enc.text_cell),
    (
        enc.EncodedColumn("", BinlogColumnType.BLOB, b"\x01", collation=63),
        st.binary(max_size=40),
        lambda value: bytes([len(value)]) + value,
    ),
    (
        enc.EncodedColumn("", BinlogColumnType.NEWDECIMAL, bytes([30, 11])),
        st.integers(-(10**30) + 1, 10**30 - 1).map(lambda n: Decimal(f"{n}e-11")),
        lambda value: enc.decimal_cell(int(f"{value:f}".replace(".", "")), 30, 11),
    ),
    (
        enc.EncodedColumn("", BinlogColumnType.DATETIME2, b"\x06"),
        st.datetimes(),
        lambda v: enc.datetime_cell(v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond),
    ),
    (
        enc.EncodedColumn("", BinlogColumnType.TIME2, b"\x06"),
        st.integers(-3_020_399_999_999, 3_020_399_999_999),
        enc.time_cell,
    ),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[enc.EncodedColumn], list[list[Any]], list[list[bytes | None]]]:
    """Columns, and rows as values and as cells."""
    chosen = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=10))
    columns = [
        enc.EncodedColumn(f"c{i}", column.type, column.meta, column.unsigned, column.collation)
        for i, (column, _, _) in enumerate(chosen)
    ]
    rows = draw(st.lists(st.tuples(*[st.none() | values for _, values, _ in chosen]), max_size=8))
    cells = [[None if v is None else encode(v) for v, (_, _, encode) in zip(row, chosen, strict=True)] for row in rows]
    return columns, [list(row) for row in rows], cells


@settings(max_examples=120, deadline=None)
@given(tables(), st.integers(0, 8))
def test_rows_are_decoded_as_they_were_encoded(table: Any, split: int) -> None:
    columns, rows, cells = table
    reader = BinlogDecoder("bin.000001")
    described = reader.decode(enc.table_map(columns))
    assert isinstance(described, TableMap)
    images = [enc.image(row) for row in cells]
    parts = [enc.rows(30, len(columns), part) for part in (images[:split], images[split:])]
    run = [event for event in map(reader.decode, parts) if isinstance(event, RowsEvent)]
    decoded = RowDecoder(described.table).decode(run)
    assert decoded.after.schema == RowDecoder(described.table).schema
    decoded.after.validate(full=True)
    assert [list(row.values()) for row in decoded.after.to_pylist()] == rows
    assert decoded.zero_dates == 0
    updates = enc.rows(31, len(columns), [image for image in images for _ in range(2)])
    event = reader.decode(updates)
    assert isinstance(event, RowsEvent)
    both = RowDecoder(described.table).decode([event])
    assert both.before.equals(decoded.after)
    assert both.after.equals(decoded.after)


def transaction_file() -> bytes:
    """A binlog with one event of most kinds."""
    columns = [enc.INT, enc.TEXT, enc.EncodedColumn("j", 245, b"\x02"), enc.EncodedColumn("d", 246, b"\x0a\x02")]
    cells = [enc.int_cell(1), enc.text_cell("é"), b"\x03\x00\x05\x07\x00", enc.decimal_cell(-5, 10, 2)]
    columns += [enc.EncodedColumn("t", kind, b"\x06") for kind in (17, 18, 19)]
    cells += [bytes(7), enc.datetime_cell(2024, 2, 29), enc.time_cell(-1)]
    columns += [
        enc.EncodedColumn("m", 254, kind + b"\x01", members=("a", "b"), collation=8) for kind in (b"\xf7", b"\xf8")
    ]
    columns += [enc.EncodedColumn("b", 16, b"\x04\x01"), enc.EncodedColumn("l", 252, b"\x01", collation=63)]
    cells += [b"\x02", b"\x03", b"\x0a\xbc", b"\x02ab"]
    return b"\xfebin" + b"".join(
        [
            enc.format_description(),
            enc.event(35, bytes(8)),
            enc.gtid(1),
            enc.query("ALTER TABLE t ADD c INT"),
            enc.gtid(2),
            enc.query("BEGIN"),
            enc.table_map(columns),
            enc.rows(30, len(cells), [enc.image(cells)] * 3, flags=0),
            enc.rows(31, len(cells), [enc.image(cells)] * 2, flags=0),
            enc.rows(32, len(cells), [enc.image(cells)]),
            enc.xid(),
            enc.event(4, b"\x04" + bytes(7) + b"bin.000002"),
        ]
    )


def read_all(data: bytes) -> int:
    """Decode a file to the last cell. Returns the number of its transactions."""
    reader, assembler = BinlogDecoder("bin.000001"), TransactionAssembler(BinlogPosition("bin.000001", 4))
    found = 0
    for raw in split_file(data):
        transaction = assembler.handle(reader.decode(raw))
        if transaction is not None:
            found += 1
            for change in transaction.changes:
                if isinstance(change, RowChanges):
                    RowDecoder(change.table).decode(change.events)
    return found


def test_the_file_of_the_next_tests_is_sound() -> None:
    assert read_all(transaction_file()) == 2


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_binlogs_give_the_documented_errors(data: st.DataObject) -> None:
    """Bytes are changed inside an event, whose checksum is then computed again, or the file is cut off."""
    whole = transaction_file()
    events = list(split_file(whole))
    chosen = data.draw(st.integers(0, len(events) - 1))
    raw = bytearray(events[chosen])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(20, len(raw))) :]
        raw[9:13] = len(raw).to_bytes(4, "little")
    if data.draw(st.booleans()) and len(raw) > 23:
        raw[-4:] = zlib.crc32(raw[:-4]).to_bytes(4, "little")
    events[chosen] = bytes(raw)
    damaged = whole[:4] + b"".join(events)
    try:
        read_all(damaged[: data.draw(st.integers(len(damaged) - 20, len(damaged)))])
    except MysqlSourceError as error:
        assert str(error)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_of_json_give_anything_but_a_value_error(raw: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode_json(raw)


@given(st.text("ab`'\"/*! -#.,()\\\n" + "RENAMETO ", max_size=60))
def test_every_text_of_a_statement_has_a_kind(text: str) -> None:
    for first in ("", "ALTER TABLE ", "RENAME TABLE ", "DROP TABLE ", "ROLLBACK ", "DELETE FROM "):
        classify(first + text, "d")


gtids = st.sets(st.tuples(st.sampled_from(UUIDS), st.integers(1, 30)), max_size=40)


def gtid_set(members: set[tuple[str, int]]) -> GtidSet:
    return GtidSet.of({uuid: [(n, n) for u, n in members if u == uuid] for uuid in UUIDS})


@given(gtids, gtids)
def test_gtid_sets_are_sets(a: set[tuple[str, int]], b: set[tuple[str, int]]) -> None:
    left, right = gtid_set(a), gtid_set(b)
    assert left.union(right) == gtid_set(a | b)
    assert left.subtract(right) == gtid_set(a - b)
    assert left.contains(right) == (b <= a)
    assert GtidSet.parse(str(left)) == left
    assert all(left.has(*member) == (member in a) for member in a | b)
    built = GtidSet()
    for member in a:
        built = built.with_gtid(*member)
    assert built == left


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_every_date_of_the_calendar_is_decoded(moment: datetime) -> None:
    day = datetime(moment.year, moment.month, moment.day)
    reader = BinlogDecoder("bin.000001")
    table = reader.decode(enc.table_map([enc.EncodedColumn("d", BinlogColumnType.DATE)]))
    cell = (day.year << 9 | day.month << 5 | day.day).to_bytes(3, "little")
    event = reader.decode(enc.rows(30, 1, [enc.image([cell])]))
    assert isinstance(table, TableMap)
    assert isinstance(event, RowsEvent)
    assert RowDecoder(table.table).decode([event]).after.to_pylist() == [{"d": day.date()}]
