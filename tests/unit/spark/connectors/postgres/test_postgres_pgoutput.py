"""Messages of pgoutput: bytes that were put together by hand from the layouts in PostgreSQL's manual."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.spark.connectors.postgres.errors import PgoutputError, PostgresValueError
from barnabas.spark.connectors.postgres.lsn import format_lsn, parse_lsn
from barnabas.spark.connectors.postgres.messages import (
    Begin,
    Column,
    Commit,
    LogicalMessage,
    Origin,
    Relation,
    ReplicaIdentity,
    Truncate,
    TypeName,
)
from barnabas.spark.connectors.postgres.pgoutput import decode_message, decode_rows

# Time 1_000_000 is one second after 2000-01-01; 946_684_801 is that second in Unix time.
LSN = "00000000 016B3748"
SECOND = "00000000 000F4240"
MESSAGES: dict[str, tuple[str, Any]] = {
    "begin": (f"42 {LSN} {SECOND} 000002F1", Begin(0x16B3748, 946_684_801_000_000, 753)),
    "commit": (f"43 00 {LSN} 00000000 016B3778 {SECOND}", Commit(0x16B3748, 0x16B3778, 946_684_801_000_000)),
    "origin": (f"4F {LSN} 6E6F64653100", Origin(0x16B3748, "node1")),
    "relation": (
        "52 00004001 7075626C696300 6F726465727300 64 0002"
        " 01 696400 00000014 FFFFFFFF 00 616D6F756E7400 000006A4 000A0006",
        Relation(
            0x4001,
            "public",
            "orders",
            ReplicaIdentity.DEFAULT,
            (Column("id", 20, -1, True), Column("amount", 1700, 0xA0006, False)),
        ),
    ),
    "relation in pg_catalog": (
        "52 000004B1 00 706700 6E 0000",
        Relation(1201, "pg_catalog", "pg", ReplicaIdentity.NOTHING, ()),
    ),
    "type": ("59 00004002 7075626C696300 6D6F6F6400", TypeName(0x4002, "public", "mood")),
    "truncate": ("54 00000002 03 00004001 00004005", Truncate((0x4001, 0x4005), True, True)),
    "message": (f"4D 01 {LSN} 616200 00000003 000102", LogicalMessage(True, 0x16B3748, "ab", b"\0\1\2")),
    "empty message": (f"4D 00 {LSN} 00 00000000", LogicalMessage(False, 0x16B3748, "", b"")),
}


@pytest.mark.parametrize(("text", "message"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_of_each_type_is_decoded(text: str, message: Any) -> None:
    assert decode_message(0, bytes.fromhex(text)) == message


@pytest.mark.parametrize("text", [text for text, _ in MESSAGES.values()], ids=MESSAGES)
def test_a_truncated_message_and_one_with_bytes_left_over_are_refused(text: str) -> None:
    data = bytes.fromhex(text)
    for size in range(len(data)):
        with pytest.raises(PgoutputError):
            decode_message(0, data[:size])
    with pytest.raises(PgoutputError):
        decode_message(0, data + b"\0")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the message is empty"),
        (b"?", "its type is unknown"),
        (b"S\0\0\0\1\1", "streaming (protocol version 2)"),
        (b"P\0", "two-phase commit (protocol version 3)"),
        (b"C\1" + bytes(24), "the flags of a commit are 0 in version 1, not 1"),
        (b"T\x7f\xff\xff\xff\0", "items of at least 4 bytes cannot be in the 0 bytes that are left"),
        (b"M\0" + bytes(8) + b"\0\xff\xff\xff\xff", "4294967295 bytes are needed, 0 are left"),
        (b"R\0\0\0\1s\0t\0x\0\0", "'x' is no replica identity"),
        (b"R\0\0\0\1s\0t\0d\xff\xff", "-1 items"),
        (b"Y\0\0\0\1\xff\0t\0", "a string is not UTF-8"),
    ],
)
def test_a_malformed_message_is_refused_with_its_place(data: bytes, problem: str) -> None:
    with pytest.raises(PgoutputError) as caught:
        decode_message(0x16_B374D848, data)
    assert problem in str(caught.value)
    assert "LSN 16/B374D848" in str(caught.value)


INSERT = bytes.fromhex("49 00004001 4E 0002 74 00000001 31 6E")
UPDATE_KEY = bytes.fromhex("55 00004001 4B 0002 74 00000001 31 6E 4E 0002 74 00000001 32 75")
DELETE_OLD = bytes.fromhex("44 00004001 4F 0002 74 00000001 32 74 00000000")


def test_row_messages_are_decoded_column_by_column() -> None:
    rows = decode_rows(2, [1, 2, 3], [INSERT, UPDATE_KEY, DELETE_OLD])
    assert bytes(rows.tags) == b"IUD"
    assert [column.to_pylist() for column in rows.new.values] == [[b"1", b"2", None], [None, None, None]]
    assert rows.new.unchanged[0] is None
    assert rows.new.unchanged[1].tolist() == [False, True, False]
    assert rows.new.present.tolist() == [True, True, False]
    assert [column.to_pylist() for column in rows.old.values] == [[None, b"1", b"2"], [None, None, b""]]
    assert rows.old.present.tolist() == [False, True, True]
    assert rows.old_full.tolist() == [False, False, True]


def test_no_row_messages_are_no_rows() -> None:
    assert len(decode_rows(3, [], [])) == 0


@pytest.mark.parametrize(
    ("data", "position", "problem"),
    [
        ("49 00004001", 5, "it ends before its last value"),
        ("49 00004001 4B 0002 6E 6E", 5, "the letter of a tuple"),
        ("44 00004001 4E 0002 6E 6E", 5, "the letter of a tuple"),
        ("55 00004001 4B 0002 6E 6E", 10, "it ends before its last value"),
        ("55 00004001 4B 0002 6E 6E 4F", 10, "the letter of a tuple"),
        ("49 00004001 4E 0003 6E 6E 6E", 6, "does not have the 2 columns of its table"),
        ("49 00004001 4E 0002 6E", 9, "it ends before its last value"),
        ("49 00004001 4E 0002 6E 62 00000001 31", 9, "a value is in binary form"),
        ("49 00004001 4E 0002 6E 78", 9, "the letter of a value is not n, u or t"),
        ("49 00004001 4E 0002 6E 74 FFFFFFFF 31", 10, "the length of a value"),
        ("49 00004001 4E 0002 6E 74 00000002 31", 10, "the length of a value"),
        ("49 00004001 4E 0002 6E 6E 00", 10, "bytes are left over"),
    ],
)
def test_a_malformed_row_message_is_refused_with_its_place(data: str, position: int, problem: str) -> None:
    with pytest.raises(PgoutputError) as caught:
        decode_rows(2, [7, 8], [INSERT, bytes.fromhex(data)])
    assert f"at LSN 0/8 is malformed at byte {position} of" in str(caught.value)
    assert problem in str(caught.value)


def test_an_lsn_is_read_and_written_as_postgresql_prints_it() -> None:
    assert parse_lsn("16/B374D848") == 0x16_B374D848
    assert format_lsn(0x16_B374D848) == "16/B374D848"
    assert format_lsn(0) == "0/0"
    for text in ("", "16", "16/", "16/B374D8480", "g/0", "-1/0"):
        with pytest.raises(PostgresValueError):
            parse_lsn(text)
