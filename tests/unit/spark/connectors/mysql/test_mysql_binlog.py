"""Events of a binlog: golden bytes from the documented layouts, refusals, limits."""

from __future__ import annotations

import zlib

import cramjam
import pytest
from tests.property import mysql_encoder as enc

from barnabas.spark.connectors.mysql.binlog.decoder import BinlogDecoder, split_file
from barnabas.spark.connectors.mysql.binlog.events import (
    AnonymousGtid,
    Event,
    FormatDescription,
    Gtid,
    Heartbeat,
    Incident,
    MariadbGtid,
    MariadbGtidList,
    PreviousGtids,
    Query,
    Rotate,
    RowsEvent,
    RowsQuery,
    StatementParameter,
    TableMap,
    TransactionPayload,
    WithoutChanges,
    Xid,
)
from barnabas.spark.connectors.mysql.binlog.rows import RowDecoder
from barnabas.spark.connectors.mysql.errors import BinlogError, BinlogLimitError, UnsupportedBinlogError


def decoder(version: str = enc.MYSQL, **options: int) -> BinlogDecoder:
    result = BinlogDecoder("bin.000001", **options)
    result.decode(enc.format_description(version))
    return result


def decode(raw: bytes, version: str = enc.MYSQL) -> Event:
    return decoder(version).decode(raw)


def common(end: int = 126) -> dict[str, int]:
    return {"timestamp": enc.TIMESTAMP, "server_id": enc.SERVER_ID, "end": end}


def mariadb_compressed(raw: bytes) -> bytes:
    return b"\x82" + len(raw).to_bytes(2, "big") + zlib.compress(raw)


def test_a_format_description_says_how_the_rest_of_the_file_is_read() -> None:
    event = BinlogDecoder("bin.000001").decode(enc.format_description(enc.MARIADB, 0))
    assert isinstance(event, FormatDescription)
    assert (event.server_version, event.mariadb, event.checksums) == (enc.MARIADB, True, False)


def test_a_file_is_split_into_its_events() -> None:
    events = [enc.format_description(), enc.xid(157), enc.event(3, b"", 180)]
    assert list(split_file(b"\xfebin" + b"".join(events))) == events
    with pytest.raises(BinlogError, match="the file ends inside an event"):
        list(split_file(b"\xfebin" + b"".join(events)[:-1]))
    with pytest.raises(BinlogError, match="encrypted"):
        list(split_file(b"\xfdbin" + b"".join(events)))


def test_a_format_description_of_a_file_in_use_has_the_checksum_of_one_that_is_not() -> None:
    raw = bytearray(enc.format_description())
    raw[17] |= 1
    assert isinstance(BinlogDecoder().decode(bytes(raw)), FormatDescription)


def test_servers_before_checksums_are_refused() -> None:
    with pytest.raises(UnsupportedBinlogError, match=r"version 5\.5\.30"):
        BinlogDecoder().decode(enc.format_description("5.5.30"))


def test_control_events_have_the_documented_fields() -> None:
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    previous = b"\x01" + bytes(7) + bytes(range(16)) + b"\x02" + bytes(7)
    previous += b"".join(n.to_bytes(8, "little") for n in (1, 6, 7, 8))
    assert decode(enc.event(4, b"\x04" + bytes(7) + b"bin.000002")) == Rotate(**common(), file="bin.000002", position=4)
    assert decode(enc.gtid(9, 200)) == Gtid(
        **common(200), uuid=uuid, number=9, commit_us=enc.TIMESTAMP * 10**6, transaction_bytes=500
    )
    assert decode(enc.event(34, bytes(25))) == AnonymousGtid(**common(), commit_us=0, transaction_bytes=0)
    assert decode(enc.event(35, previous)) == PreviousGtids(**common(), intervals=((uuid, ((1, 5), (7, 7))),))
    assert decode(enc.mariadb_gtid(3, 1), enc.MARIADB) == MariadbGtid(**common(), domain=0, sequence=3, flags=1)
    gtid_list = b"\x01\x00\x00\x10" + b"\x02\x00\x00\x00\x05\x00\x00\x00" + b"\x09" + bytes(7)
    assert decode(enc.event(163, gtid_list)) == MariadbGtidList(**common(), gtids=((2, 5, 9),))
    assert decode(enc.xid(150)) == Xid(**common(150), xid=0)
    assert decode(enc.event(29, b"\x03abc")) == RowsQuery(**common(), statement="abc")
    assert decode(enc.event(160, b"abc")) == RowsQuery(**common(), statement="abc")
    assert decode(enc.event(26, b"\x01\x00\x04lost")) == Incident(**common(), code=1, message="lost")
    assert decode(enc.event(5, bytes(9))) == StatementParameter(**common(), name="INTVAR")
    assert decode(enc.event(161, bytes(9))) == WithoutChanges(**common(), type=161)


def test_a_query_has_its_database_and_is_decoded_in_the_clients_character_set() -> None:
    event = decode(enc.query("ALTER TABLE é ADD b INT", 300))
    assert isinstance(event, Query)
    assert (event.database, event.statement, event.end) == ("shop", "ALTER TABLE é ADD b INT", 300)


def test_heartbeats_name_the_file_and_leave_the_position_alone() -> None:
    reader = decoder()
    assert reader.decode(enc.event(27, b"bin.000001", 900)) == Heartbeat(**common(900), file="bin.000001")
    body = b"\x01" + enc.packed_text("bin.000001") + b"\x02\x09" + enc.packed(1 << 40) + b"\x00"
    assert reader.decode(enc.event(41, body)) == Heartbeat(**common(1 << 40), file="bin.000001")
    assert reader.position == 126


def test_positions_grow_beyond_four_gigabytes() -> None:
    reader = BinlogDecoder("bin.000001", (1 << 32) - 100)
    assert reader.decode(enc.xid(50)).end == (1 << 32) + 50


@pytest.mark.parametrize("version", [enc.MYSQL, enc.MARIADB])
def test_a_table_map_with_full_metadata_describes_its_columns(version: str) -> None:
    columns = [
        enc.EncodedColumn("id", 8),
        enc.EncodedColumn("y", 13, unsigned=True),
        enc.EncodedColumn("n", 8),
        enc.EncodedColumn("e", 254, b"\xf7\x01", collation=255, members=("a", "b,c")),
        enc.EncodedColumn("c", 254, b"\xee\x2c", collation=255),  # CHAR(75) of four bytes each: 300 = 0x12c
        enc.TEXT,
    ]
    reader = decoder(version)
    event = reader.decode(enc.table_map(columns, key=(0, 5)))
    assert isinstance(event, TableMap)
    table = event.table
    assert [(c.name, c.type, c.meta, c.unsigned) for c in table.columns] == [
        ("id", 8, 0, False),
        ("y", 13, 0, True),
        ("n", 8, 0, False),
        ("e", 247, 1, False),
        ("c", 254, 300, False),
        ("name", 15, 400, False),
    ]
    assert (table.columns[3].values, table.primary_key, table.described) == (("a", "b,c"), (0, 5), True)
    again = reader.decode(enc.table_map(columns, key=(0, 5)))
    assert isinstance(again, TableMap)
    assert again.table is table


@pytest.mark.parametrize("what", ["metadata", "a column"])
def test_a_table_with_unknown_parts_is_an_error_only_if_its_rows_are_decoded(what: str) -> None:
    raw = enc.table_map([enc.INT], crc=False)[19:] + b"\x63\x00"
    if what == "a column":
        raw = enc.table_map([enc.EncodedColumn("c", 99)], crc=False)[19:]
    event = decode(enc.event(19, raw))
    assert isinstance(event, TableMap)
    assert (event.table.database, event.table.name, event.table.columns) == ("shop", "t", ())
    with pytest.raises(UnsupportedBinlogError, match=r"unknown type 99[\s\S]*table\.exclude\.list"):
        RowDecoder(event.table)


@pytest.mark.parametrize("kind", [23, 30])
def test_rows_of_both_versions_have_the_same_shape(kind: int) -> None:
    event = decode(enc.rows(kind, 2, [enc.image([enc.int_cell(1), None])]))
    assert isinstance(event, RowsEvent)
    assert (event.table_id, event.before, event.after, event.data) == (42, None, 3, b"\x02\x01\x00\x00\x00")


def test_an_unknown_event_is_an_error_unless_it_is_flagged_ignorable() -> None:
    with pytest.raises(UnsupportedBinlogError, match="event type 99"):
        decode(enc.event(99, b"abc"))
    assert decode(enc.event(99, b"abc", flags=0x80)) == WithoutChanges(**common(), type=99)


@pytest.mark.parametrize(
    ("kind", "body", "remedy"),
    [
        (42, b"", "gtid_next = 'AUTOMATIC'"),
        (39, b"", "binlog_row_value_options = ''"),
        (164, b"", "from the server"),
        (35, bytes(7) + b"\x01", "tagged GTIDs"),
    ],
)
def test_events_that_are_not_read_are_refused_with_a_remedy(kind: int, body: bytes, remedy: str) -> None:
    with pytest.raises(UnsupportedBinlogError, match=remedy):
        decode(enc.event(kind, body))


def payload(inner: bytes, declared: int | None = None, compression: int = 0) -> bytes:
    data = bytes(cramjam.zstd.compress(inner)) if compression == 0 else inner
    size = len(inner) if declared is None else declared
    fields = [(2, compression), (3, size), (1, len(data))]
    head = b"".join(bytes([field]) + packed_field for field, value in fields for packed_field in [_sized(value)])
    return enc.event(40, head + b"\x00" + data, 500)


def _sized(value: int) -> bytes:
    raw = enc.packed(value)
    return enc.packed(len(raw)) + raw


@pytest.mark.parametrize("compression", [0, 255])
def test_a_compressed_transaction_has_its_events_at_its_own_position(compression: int) -> None:
    inner = enc.query("BEGIN", crc=False) + enc.table_map([enc.INT], crc=False)
    inner += enc.rows(30, 1, [enc.image([enc.int_cell(5)])], crc=False) + enc.xid(crc=False)
    event = decode(payload(inner, compression=compression))
    assert isinstance(event, TransactionPayload)
    assert [type(part).__name__ for part in event.events] == ["Query", "TableMap", "RowsEvent", "Xid"]
    assert {part.end for part in event.events} == {500}


def test_a_compressed_transaction_is_not_inflated_beyond_what_is_allowed() -> None:
    inner = enc.query("x" * 1_000_000, crc=False)
    with pytest.raises(BinlogLimitError, match=r"the limit is 65536[\s\S]*binlog_transaction_compression=OFF"):
        decoder(inflated_bytes_max=65536).decode(payload(inner))
    with pytest.raises(BinlogError, match="more than the 100 bytes"):
        decode(payload(inner, declared=100))
    with pytest.raises(BinlogError, match="the event declares"):
        decode(payload(inner, declared=len(inner) + 1))


def test_compressed_events_of_mariadb_are_inflated() -> None:
    plain = enc.query("CREATE TABLE a (b INT)", crc=False)[19:]
    at = plain.index(b"CREATE")
    event = decode(enc.event(165, plain[:at] + mariadb_compressed(plain[at:])), enc.MARIADB)
    assert isinstance(event, Query)
    assert event.statement == "CREATE TABLE a (b INT)"
    rows = enc.rows(23, 1, [], crc=False)[19:] + mariadb_compressed(b"\x00\x01\x00\x00\x00" * 500)
    inflated = decode(enc.event(166, rows), enc.MARIADB)
    assert isinstance(inflated, RowsEvent)
    assert inflated.data == b"\x00\x01\x00\x00\x00" * 500
    with pytest.raises(BinlogLimitError):
        decoder(enc.MARIADB, inflated_bytes_max=100).decode(enc.event(166, rows))


def test_a_changed_byte_is_found_by_the_checksum() -> None:
    raw = bytearray(enc.xid(150))
    raw[20] ^= 1
    with pytest.raises(BinlogError, match=r"bin\.000001:126 \(event type 16\): the event's checksum"):
        decode(bytes(raw))


def test_too_large_events_are_refused() -> None:
    with pytest.raises(BinlogLimitError, match="binlog_row_event_max_size to its default of 8192"):
        decoder(event_bytes_max=200).decode(enc.query("x" * 300))
