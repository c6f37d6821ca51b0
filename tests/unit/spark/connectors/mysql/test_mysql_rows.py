"""Rows to Arrow: every type, as a MySQL server writes it, and binary JSON."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.property import mysql_encoder as enc

from barnabas.spark.connectors.mysql.binlog.codes import ChangeKind
from barnabas.spark.connectors.mysql.binlog.decoder import BinlogDecoder
from barnabas.spark.connectors.mysql.binlog.events import RowsEvent, TableMap
from barnabas.spark.connectors.mysql.binlog.json_binary import decode_json
from barnabas.spark.connectors.mysql.binlog.rows import DecodedRows, RowDecoder
from barnabas.spark.connectors.mysql.errors import BinlogError, UnsupportedBinlogError

Column = enc.EncodedColumn


def read(columns: list[Column], *events: bytes) -> DecodedRows:
    reader = BinlogDecoder("bin.000001")
    reader.decode(enc.format_description())
    table = reader.decode(enc.table_map(columns))
    assert isinstance(table, TableMap)
    run = [event for event in map(reader.decode, events) if isinstance(event, RowsEvent)]
    return RowDecoder(table.table).decode(run)


def cells(column: Column, *values: bytes | None) -> tuple[Any, int]:
    """The Arrow array of one column, and the number of zero dates."""
    decoded = read([column], enc.rows(30, 1, [enc.image([value]) for value in values]))
    return decoded.after.column(0), decoded.zero_dates


@pytest.mark.parametrize(
    ("column", "raw", "expected"),
    [
        (Column("c", 1), b"\xff", pa.array([-1], pa.int8())),
        (Column("c", 1, unsigned=True), b"\xff", pa.array([255], pa.int16())),
        (Column("c", 2), b"\x00\x80", pa.array([-32768], pa.int16())),
        (Column("c", 2, unsigned=True), b"\xff\xff", pa.array([65535], pa.int32())),
        (Column("c", 9), b"\x00\x00\x80", pa.array([-(1 << 23)], pa.int32())),
        (Column("c", 9, unsigned=True), b"\xff\xff\xff", pa.array([(1 << 24) - 1], pa.int32())),
        (Column("c", 3), b"\xfe\xff\xff\xff", pa.array([-2], pa.int32())),
        (Column("c", 3, unsigned=True), b"\xfe\xff\xff\xff", pa.array([(1 << 32) - 2], pa.int64())),
        (Column("c", 8), bytes([0xFF] * 8), pa.array([-1], pa.int64())),
        (Column("c", 8, unsigned=True), bytes([0xFF] * 8), pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0))),
        (Column("c", 4, b"\x04"), struct.pack("<f", 1.5), pa.array([1.5], pa.float32())),
        (Column("c", 5, b"\x08"), struct.pack("<d", -2.25), pa.array([-2.25], pa.float64())),
        (Column("c", 13), b"\x7b", pa.array([2023], pa.int16())),
        (Column("c", 13), b"\x00", pa.array([0], pa.int16())),
        (Column("c", 16, b"\x01\x00"), b"\x01", pa.array([True])),
        (Column("c", 16, b"\x04\x01"), b"\x0a\xbc", pa.array([b"\x0a\xbc"])),
        (Column("c", 254, b"\xf7\x01", collation=255, members=("a", "b")), b"\x02", pa.array(["b"])),
        (Column("c", 254, b"\xf7\x01", collation=255, members=("a", "b")), b"\x00", pa.array([""])),
        (Column("c", 254, b"\xf8\x01", collation=255, members=("x", "y", "z")), b"\x05", pa.array(["x,z"])),
        (Column("c", 254, b"\xf8\x01", collation=255, members=("x", "y", "z")), b"\x00", pa.array([""])),
        (Column("c", 254, b"\xfe\x28", collation=255), b"\x03h\xc3\xa9", pa.array(["hé"])),
        (Column("c", 254, b"\xfe\x06", collation=63), b"\x02ab", pa.array([b"ab\0\0\0\0"])),
        (Column("c", 15, b"\x0a\x00", collation=63), b"\x02\x00\xff", pa.array([b"\x00\xff"])),
        (Column("c", 15, b"\x0a\x00", collation=8), b"\x03\xe9\x80\x81", pa.array(["é€\x81"])),
        (Column("c", 15, b"\x0a\x00", collation=28), b"\x02\xc4\xe3", pa.array(["你"])),
        (Column("c", 15, b"\x2c\x01", collation=255), b"\x02\x00ab", pa.array(["ab"])),
        (Column("c", 252, b"\x03", collation=63), b"\x01\x00\x00\xff", pa.array([b"\xff"])),
        (Column("c", 252, b"\x02", collation=45), b"\x02\x00ab", pa.array(["ab"])),
        (Column("c", 255, b"\x04"), b"\x01\x00\x00\x00g", pa.array([b"g"])),
        (Column("c", 245, b"\x04"), b"\x03\x00\x00\x00\x05\x07\x00", pa.array(["7"])),
        (Column("c", 10), (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"), pa.array([date(2024, 2, 29)])),
        (Column("c", 19, b"\x00"), enc.time_cell(-3_020_399_000_000, 0), pa.array([-3_020_399_000_000])),
        (Column("c", 19, b"\x03"), enc.time_cell(-500_000, 3), pa.array([-500_000])),
        (
            Column("c", 18, b"\x06"),
            enc.datetime_cell(9999, 12, 31, 23, 59, 59, 999_999),
            pa.array([datetime(9999, 12, 31, 23, 59, 59, 999_999)], pa.timestamp("us")),
        ),
        (
            Column("c", 17, b"\x02"),
            (1).to_bytes(4, "big") + b"\x63",
            pa.array([datetime(1970, 1, 1, 0, 0, 1, 990_000, UTC)], pa.timestamp("us", "UTC")),
        ),
    ],
)
def test_a_cell_has_the_value_that_the_server_wrote(column: Column, raw: bytes, expected: Any) -> None:
    array, zeros = cells(column, raw, None)
    assert zeros == 0
    assert array.equals(pa.concat_arrays([expected, pa.nulls(1, expected.type)]))


@pytest.mark.parametrize(("precision", "scale"), [(10, 3), (18, 18), (19, 0), (38, 10), (65, 30)])
def test_decimals_keep_all_digits(precision: int, scale: int) -> None:
    largest = 10**precision - 1
    values = [largest, -largest, 0, 1, -(10 ** (precision - 1))]
    column = Column("c", 246, bytes([precision, scale]))
    array, _ = cells(column, *[enc.decimal_cell(value, precision, scale) for value in values])
    assert [Decimal(value) for value in array.to_pylist()] == [Decimal(f"{value}e-{scale}") for value in values]
    assert array.type == (pa.string() if precision > 38 else pa.decimal128(precision, scale))


def test_dates_that_no_calendar_has_are_null_and_counted() -> None:
    array, zeros = cells(
        Column("c", 18, b"\x00"),
        enc.datetime_cell(0, 0, 0, digits=0),
        enc.datetime_cell(2020, 0, 1, digits=0),
        enc.datetime_cell(2023, 2, 29, digits=0),
        enc.datetime_cell(2024, 2, 29, digits=0),
        None,
    )
    assert (array.null_count, zeros) == (4, 3)
    assert cells(Column("c", 10), bytes(3))[1] == 1
    assert cells(Column("c", 17, b"\x00"), bytes(4))[1] == 1


def test_an_update_has_its_rows_before_and_after() -> None:
    images = [enc.image([enc.int_cell(n), enc.text_cell(t)]) for n, t in ((1, "a"), (1, "b"), (2, "c"), (3, "d"))]
    decoded = read([enc.INT, enc.TEXT], enc.rows(31, 2, images[:2]), enc.rows(31, 2, images[2:]))
    assert (decoded.kind, decoded.count) == (ChangeKind.UPDATE, 2)
    assert decoded.before.to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": "c"}]
    assert decoded.after.to_pylist() == [{"id": 1, "name": "b"}, {"id": 3, "name": "d"}]


def test_an_update_with_minimal_images_has_only_their_columns() -> None:
    event = enc.rows(31, 2, [enc.image([enc.int_cell(1)]), enc.image([enc.text_cell("b")])], bitmaps=[1, 2])
    decoded = read([enc.INT, enc.TEXT], event)
    assert (decoded.before.to_pylist(), decoded.after.to_pylist()) == ([{"id": 1}], [{"name": "b"}])
    wider = enc.rows(
        31, 2, [enc.image([enc.int_cell(1)]), enc.image([enc.int_cell(2), enc.text_cell("b")])], bitmaps=[1, 3]
    )
    decoded = read([enc.INT, enc.TEXT], wider)
    assert (decoded.before.to_pylist(), decoded.after.to_pylist()) == ([{"id": 1}], [{"id": 2, "name": "b"}])


def test_a_row_that_leaves_its_event_is_an_error() -> None:
    with pytest.raises(BinlogError, match=r"rows of shop\.t .*event 2 of the run"):
        rows = [enc.rows(30, 1, [enc.image([enc.int_cell(1)])]), enc.rows(30, 1, [b"\x00\x01\x02"])]
        read([enc.INT], *rows)


@pytest.mark.parametrize(
    ("column", "raw", "reason"),
    [
        (Column("c", 254, b"\xf7\x01", collation=255, members=("a",)), b"\x02", "1 members"),
        (Column("c", 15, b"\x0a\x00", collation=255), b"\x01\xff", "UTF"),
        (Column("c", 246, b"\x05\x00"), b"\xff\xff\xff", "DECIMAL"),
        (Column("c", 19, b"\x00"), b"\xff\xff\xff", "part of a time"),
        (Column("c", 245, b"\x04"), b"\x01\x00\x00\x00\x0e", "type 14"),
    ],
)
def test_an_invalid_value_names_its_column(column: Column, raw: bytes, reason: str) -> None:
    with pytest.raises(BinlogError, match=rf"column c has an invalid value: .*{reason}"):
        cells(column, raw)


def test_a_table_without_full_metadata_is_refused_with_the_statement_to_run() -> None:
    table = BinlogDecoder("bin.000001").decode(enc.table_map([enc.INT], described=False))
    assert isinstance(table, TableMap)
    with pytest.raises(UnsupportedBinlogError, match="SET GLOBAL binlog_row_metadata = 'FULL'"):
        RowDecoder(table.table)


@pytest.mark.parametrize(("kind", "remedy"), [(12, "ALTER TABLE `shop`.`t` FORCE"), (141, "without COMPRESSED")])
def test_columns_in_old_formats_are_refused_with_the_statement_to_run(kind: int, remedy: str) -> None:
    column = Column("c", kind, b"\x10\x00" if kind == 141 else b"")
    table = BinlogDecoder("bin.000001").decode(enc.table_map([column]))
    assert isinstance(table, TableMap)
    with pytest.raises(UnsupportedBinlogError, match=remedy):
        RowDecoder(table.table)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        (Column("c", 15, b"\x0a\x00", collation=255), b"\x01\xff"),  # no UTF-8
        (Column("c", 245, b"\x04"), b"\x01\x00\x00\x00\x0e"),  # no JSON
        (Column("c", 15, b"\x0a\x00", collation=92), b"\x02ab"),  # geostd8, which Python does not have
        (Column("c", 254, b"\xf7\x01", collation=92, members=("a",)), b"\x01"),
        (Column("c", 140, b"\x02"), b"\x02\x00\x00e"),  # TEXT COMPRESSED, bytes of MariaDB 10.11
        (Column("c", 141, b"\x33\x00"), b"\x02\x00a"),  # VARCHAR(50) COMPRESSED
        (Column("c", 141, b"\xff\x00"), b"\x02\x00c"),  # VARCHAR(254) COMPRESSED
        (Column("c", 141, b"\x00\x01"), b"\x02\x00\x00b"),  # VARCHAR(255) COMPRESSED
        (Column("c", 7), bytes(4)),  # TIMESTAMP before MySQL 5.6
        (Column("c", 11), bytes(3)),  # TIME
        (Column("c", 12), bytes(8)),  # DATETIME
    ],
)
def test_a_column_that_is_not_wanted_may_be_unreadable(column: Column, cell: bytes) -> None:
    reader = BinlogDecoder("bin.000001")
    reader.decode(enc.format_description())
    found = reader.decode(enc.table_map([enc.INT, column, enc.TEXT]))
    images = [enc.image([enc.int_cell(n), value, enc.text_cell("z")]) for n, value in ((1, cell), (2, None))]
    run = reader.decode(enc.rows(31, 3, images))
    assert isinstance(found, TableMap)
    assert isinstance(run, RowsEvent)
    decoded = RowDecoder(found.table, (0, 2)).decode([run])
    assert decoded.before.to_pylist() == [{"id": 1, "name": "z"}]
    assert decoded.after.to_pylist() == [{"id": 2, "name": "z"}]
    with pytest.raises((BinlogError, UnsupportedBinlogError), match=r"column\.exclude\.list"):
        RowDecoder(found.table).decode([run])


# The bytes are built by hand from json_binary.h: type, count, size, entries of keys, entries of values, keys, values.
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("", "null"),
        ("0401", "true"),
        ("05ffff", "-1"),
        ("0affffffffffffffff", "18446744073709551615"),
        ("0b000000000000f83f", "1.5"),
        ("0c02c3a9", '"é"'),
        ("0c03220a5c", '"\\"\\n\\\\"'),
        # {"a": 7, "bc": "x"}
        ("00" "0200" "1700" "1200" "0100" "1300" "0200" "050700" "0c1500" "61" "6263" "0178", '{"a": 7, "bc": "x"}'),
        # [null, [1]]
        ("02" "0200" "1100" "040000" "020a00" "0100" "0700" "050100", "[null, [1]]"),
        # large array with an inlined int32
        ("03" "01000000" "0d000000" "07" "ffffffff", "[-1]"),
        # DECIMAL(3,1) 12.5; DATE 2024-02-29; TIME -1:00; an opaque BLOB
        ("0f" "f6" "04" "0301" "8c05", "12.5"),
        ("0f" "0a" "08" + ((2024 * 13 + 2) << 46 | 29 << 41).to_bytes(8, "little").hex(), '"2024-02-29"'),
        ("0f" "0b" "08" + (-(1 << 36)).to_bytes(8, "little", signed=True).hex(), '"-01:00:00.000000"'),
        ("0f" "fc" "02" "0102", '"base64:type252:AQI="'),
    ],
)  # fmt: skip
def test_binary_json_is_the_text_that_the_server_prints(raw: str, text: str) -> None:
    assert decode_json(bytes.fromhex(raw)) == text


def test_a_json_document_whose_parts_overlap_does_not_explode() -> None:
    """Arrays of 60 elements that all point at the next array: read naively, 60 ** depth elements."""
    count, depth = 60, 20
    size = 4 + 3 * count
    body = bytearray()
    for level in range(depth):
        last = level == depth - 1
        entry = b"\x04\x00\x00" if last else b"\x02" + size.to_bytes(2, "little")
        body += count.to_bytes(2, "little") + (size * (depth - level)).to_bytes(2, "little") + entry * count
    with pytest.raises(ValueError, match="overlap"):
        decode_json(b"\x02" + bytes(body))


@pytest.mark.parametrize(
    ("collation", "raw", "text"),
    [
        (8, b"\xe9\x80", "é€"),
        (9, b"\xb9", "š"),
        (28, b"\xc4\xe3", "你"),
        (45, "hé".encode(), "hé"),
        (13, b"\x83\x41\x81\x60", "ア〜"),
        (19, b"\xb0\xa1\x81\x41", "가갂"),
        (91, b"\xa4\xa2\x8e\xb1\xa1\xc1\xad\xa1\xa1\xc0", "あｱ〜①\\"),
        (97, b"\xa4\xa2\xa1\xc1\xad\xa1\x8f\xf3\xf3\x8f\xf4\xfe\x8f\xa2\xb7", "あ～①ⅰ黑～"),
        (98, b"\xf5\xa1\x8f\xf5\xa1\xf8\xa1", "\ue000\ue3ac\ue11a"),
        (36, b"\xfc", "ⁿ"),
        (25, b"\xa1", "\u02bd"),
    ],
)
def test_texts_with_and_without_ascii_only_are_in_one_column(collation: int, raw: bytes, text: str) -> None:
    column = Column("c", 15, b"\x0a\x00", collation=collation)
    values = [b"plain", raw, None, b"", b"a" + raw, b"~"]
    array, _ = cells(column, *(None if value is None else bytes([len(value)]) + value for value in values))
    assert array.to_pylist() == ["plain", text, None, "", "a" + text, "~"]


def test_a_character_set_that_does_not_contain_ascii_is_decoded_by_its_own_rules() -> None:
    column = Column("c", 15, b"\x28\x00", collation=35)  # ucs2
    array, _ = cells(column, b"\x04\x00a\x00b", b"\x02\x4f\x60")
    assert array.to_pylist() == ["ab", "你"]
