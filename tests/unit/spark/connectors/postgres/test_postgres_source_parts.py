"""The parts of the PostgreSQL source that need no server: options, positions, rows of COPY, and change batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.logs import messages
from tests.pgoutput import UNCHANGED, delete, encode, insert, update

from barnabas.spark.connectors.capture.options import CaptureOptions, parse_capture_options
from barnabas.spark.connectors.events.changes import Meaning
from barnabas.spark.connectors.postgres.change_batches import BatchContext, captured_changes, place_of
from barnabas.spark.connectors.postgres.copy_rows import copy_statement, decode_copy
from barnabas.spark.connectors.postgres.errors import NoTableError, PostgresValueError
from barnabas.spark.connectors.postgres.messages import Begin, Column, Commit, Relation, ReplicaIdentity, TypeName
from barnabas.spark.connectors.postgres.options import POSTGRES_OPTIONS, POSTGRES_REFUSED, parse_postgres_options
from barnabas.spark.connectors.postgres.peeking import BatchDivider
from barnabas.spark.connectors.postgres.position import from_position, to_position
from barnabas.spark.connectors.postgres.session import LockedError
from barnabas.spark.connectors.postgres.setup_state import Checkpoint
from barnabas.spark.connectors.postgres.source import PostgresSource
from barnabas.spark.connectors.postgres.statements import LOCK_TIMEOUT, SNAPSHOT
from barnabas.spark.connectors.postgres.tables import read_columns
from barnabas.spark.connectors.postgres.transactions import TransactionReader
from barnabas.spark.connectors.postgres.types import ValuePolicy
from barnabas.spark.connectors.sql.dialects import Statement
from barnabas.spark.errors import OptionError

GIVEN = {
    "stagingLocation": "/tmp/staging",
    "topic.prefix": "shop",
    "output": "rows",
    "database.hostname": "db",
    "database.user": "reader",
    "database.dbname": "shop",
    "table.include.list": "public.orders",
}
ORDERS = Relation(
    7,
    "public",
    "orders",
    ReplicaIdentity.DEFAULT,
    (Column("id", 20, -1, True), Column("note", 25, -1, False), Column("at", 1114, 3, False)),
)


def capture(**more: str) -> CaptureOptions:
    texts = {**GIVEN, **{name.replace("_", "."): value for name, value in more.items()}}
    return parse_capture_options(texts, POSTGRES_OPTIONS, POSTGRES_REFUSED, connector="postgresql", version="1")


# -- options


def test_the_options_have_debeziums_names_in_any_case() -> None:
    options = parse_postgres_options(capture(DATABASE_PORT="5433", slot_name="s"))
    assert (options.connection["port"], options.slot, options.publication) == (5433, "s", "barnabas_publication")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slot_nmae": "s"}, "did you mean slot.name"),
        ({"slot_drop_on_stop": "true"}, "pg_drop_replication_slot"),
        ({"plugin_name": "decoderbufs"}, "pgoutput"),
        ({"publication_autocreate_mode": "all_tables"}, "filtered"),
        ({"snapshot_mode": "never"}, "no_data"),
        ({"snapshot_mode": "when_needed"}, "failOnDataLoss=false"),
        ({"table_exclude_list": "a"}, "not both"),
        ({"message_key_columns": "orders"}, "public.orders:id"),
        ({"output": "rows", "transforms": "T"}, "output=records"),
        ({"topic_prefix": "a b"}, "topic.prefix"),
        ({"stagingLocation": " "}, "stagingLocation must be given"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_do(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_postgres_options(capture(**given))


def test_a_query_that_names_no_table_is_refused() -> None:
    texts = {name: value for name, value in GIVEN.items() if name != "table.include.list"}
    options = parse_capture_options(texts, POSTGRES_OPTIONS, POSTGRES_REFUSED, connector="postgresql", version="1")
    with pytest.raises(OptionError, match=r"table\.include\.list"):
        parse_postgres_options(options)


def test_the_lists_choose_tables_by_whole_names_in_any_case() -> None:
    options = parse_postgres_options(capture(table_include_list=r"public\.o.*,Sales\.items", schema_exclude_list="x"))
    wanted = [("public", "orders"), ("sales", "ITEMS"), ("public", "items"), ("x", "orders"), ("apublic", "orders")]
    assert [options.wants_table(*name) for name in wanted] == [True, True, False, False, False]


# -- positions


def test_a_position_survives_json() -> None:
    position = to_position(Checkpoint(0x16_B374D848, 7301294837512038401))
    assert position == {"lsn": "16/B374D848", "system": "7301294837512038401"}
    assert from_position(position) == Checkpoint(0x16_B374D848, 7301294837512038401)


@pytest.mark.parametrize("position", [{}, {"lsn": 3, "system": "1"}, {"lsn": "0/1", "system": "x"}, {"file": "b.1"}])
def test_another_position_is_refused(position: dict[str, Any]) -> None:
    with pytest.raises(PostgresValueError, match="not a position in PostgreSQL"):
        from_position(position)


# -- COPY


def test_rows_of_copy_keep_nulls_quotes_and_newlines() -> None:
    text = b'"1","a ""b"", c\nd"\n"2",""\n"3",\n'
    assert [column.to_pylist() for column in decode_copy(text, 2)] == [
        [b"1", b"2", b"3"],
        [b'a "b", c\nd', b"", None],
    ]


def test_a_null_in_the_only_column_is_a_row() -> None:
    (column,) = decode_copy(b'"1"\n\n""\n', 1)
    assert column.to_pylist() == [b"1", None, b""]


def test_a_value_may_be_larger_than_a_block_of_the_parser() -> None:
    value = b"x" * 3_000_000
    (column,) = decode_copy(b'"' + value + b'"\n"' + value + b'"\n', 1)
    assert column.to_pylist() == [value, value]


def test_a_row_with_another_number_of_values_is_refused() -> None:
    with pytest.raises(PostgresValueError, match="CSV"):
        decode_copy(b'"1","2"\n"3"\n', 2)


def test_the_statement_quotes_every_value() -> None:
    assert copy_statement('"a"', '"t"') == 'COPY (SELECT "a" FROM "t") TO STDOUT (FORMAT csv, FORCE_QUOTE *)'


# -- columns


def test_columns_say_what_their_text_means() -> None:
    columns = (
        Column("id", 20, -1, True),
        Column("j", 3802, -1, False),
        Column("u", 2951, -1, False),
        Column("n", 1700, -1, False),
        Column("p", 1700, (10 << 16 | 2) + 4, False),
        Column("t", 1184, 3, False),
        Column("d", 20_000, -1, False),
    )
    relation = Relation(1, "public", "t", ReplicaIdentity.DEFAULT, columns)
    types = {20_000: TypeName(20_000, "pg_catalog", "uuid")}
    found = read_columns("shop", relation, types, (0,), ValuePolicy(), capture()).schema
    meanings = [column.meaning for column in found.columns]
    assert meanings == [
        Meaning.PLAIN,
        Meaning.JSON,
        Meaning.UUID,
        Meaning.NUMERIC,
        Meaning.PLAIN,
        Meaning.PLAIN,
        Meaning.UUID,
    ]
    assert [column.nullable for column in found.columns] == [False, *[True] * 6]
    assert found.columns[5].digits == 3


def test_the_key_is_read_even_if_it_is_excluded() -> None:
    options = capture(column_exclude_list="public.orders.(id|note)")
    found = read_columns("shop", ORDERS, {}, (0,), ValuePolicy(), options)
    assert (found.places, [column.name for column in found.schema.columns], found.schema.key) == (
        (0, 2),
        ["id", "at"],
        (0,),
    )


# -- changes


def read(*messages: bytes, **more: str) -> Any:
    reader = TransactionReader(0, 1 << 62)
    reader.feed([(100, 5, encode(Begin(200, 1_000_000, 5)))])
    reader.feed([(100 + at, 5, message) for at, message in enumerate(messages)])
    reader.feed([(210, 5, encode(Commit(200, 210, 1_000_000)))])
    context = BatchContext("shop", ValuePolicy(), capture(**more), last_commit_lsn=150)
    return captured_changes(reader.finish(), context)


def test_changes_have_both_sides_their_position_and_their_place() -> None:
    captured = read(
        encode(ORDERS),
        insert(7, [b"1", b"a", b"2024-01-01 00:00:00"]),
        update(7, [b"2", UNCHANGED, None], key=[b"1", None, None]),
        delete(7, key=[b"2", None, None]),
    )
    (table,) = captured.tables
    changes = table.changes
    assert bytes(changes.op) == b"cud"
    assert [row and row["id"] for row in changes.before.to_pylist()] == [None, 1, 2]
    assert [row and (row["id"], row["note"]) for row in changes.after.to_pylist()] == [(1, "a"), (2, None), None]
    assert {at: mask.tolist() for at, mask in changes.unavailable.items()} == {1: [False, True, False]}
    assert changes.key_changed.tolist() == [False, True, False]
    assert table.places.to_pylist() == [place_of(200, order) for order in (1, 2, 4)]
    assert changes.positions.last_commit_lsn.tolist() == [150] * 3
    assert changes.ts_us.tolist() == [1_000_000] * 3
    assert changes.transaction.to_pylist() == ["5:200"] * 3
    assert captured.transactions == ()


def test_places_grow_as_text() -> None:
    places = [place_of(0xFF, 9), place_of(0xFF, 10), place_of(0x100, 0), place_of(1 << 40, 0)]
    assert places == sorted(places)


def test_transactions_are_given_if_they_are_wanted() -> None:
    captured = read(encode(ORDERS), insert(7, [b"1", None, None]), provide_transaction_metadata="true")
    (transaction,) = captured.transactions
    assert (transaction.id, transaction.event_counts) == ("5:200", (("public.orders", 1),))


def test_a_type_of_another_column_is_an_arrow_column() -> None:
    (table,) = read(encode(ORDERS), insert(7, [b"1", None, b"2024-01-01 00:00:00"])).tables
    assert table.changes.after.type.field("at").type == pa.timestamp("us")


# -- pages


def test_a_peek_is_divided_in_the_same_way_however_its_pages_are_cut() -> None:
    messages = [(0, 0, encode(ORDERS))]
    for number in range(1, 8):
        lsn = number * 100
        messages.append((lsn, number, encode(Begin(lsn + 50, 0, number))))
        rows = 1 if number % 3 else 9
        messages += [(lsn, number, insert(7, [b"%d" % row, b"x" * 20, None])) for row in range(rows)]
        messages.append((lsn, number, encode(Commit(lsn + 50, lsn + 60, 0))))

    def division(size: int, start: int) -> list[list[int]]:
        divider = BatchDivider(TransactionReader(start, 1 << 62), 100)
        batches = []
        for first in range(0, len(messages), size):
            batches += list(divider.feed(messages[first : first + size]))
        batches.append(divider.finish())
        return [[one.xid for one in batch.transactions] for batch in batches]

    assert division(len(messages), 0) == [[1, 2, 3], [4, 5, 6], [7]]
    assert {str(division(size, 0)) for size in range(1, 40)} == {"[[1, 2, 3], [4, 5, 6], [7]]"}
    assert {str(division(size, 251)) for size in range(1, 40)} == {"[[3], [4, 5, 6], [7]]"}


# -- unchanged values


class FakeSession:
    """A session whose server has a table of (id, note) with the note of each id, and counts locks and transactions."""

    is_broken = False

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fails: list[Exception] = []
        self.columns = [("id", 20), ("note", 25)]

    @contextmanager
    def transaction(self, doing: str) -> Iterator[None]:
        self.log.append("begin")
        try:
            yield
        finally:
            self.log.append("end")

    def run(self, sql: str, doing: str) -> None:
        self.log.append(sql)
        if sql.startswith("LOCK") and self.fails:
            raise self.fails.pop(0)

    def rows(self, statement: Statement, doing: str) -> list[tuple[Any, ...]]:
        if statement == SNAPSHOT:
            return [(100, [])]
        return [
            (name, oid, -1, name == "id", name == "id", "pg_catalog", "", 7, "d", "r") for name, oid in self.columns
        ]

    def texts(self, statement: Statement, doing: str) -> list[list[bytes | None]]:
        self.log.append("select")
        found: list[bytes | None] = [str(key).encode() for key in statement.parameters]
        return [found, [f"note {key}".encode() for key in statement.parameters]]


def look_up(session: FakeSession, keys: int) -> Any:
    source = PostgresSource(capture())
    source._checking = session  # type: ignore[assignment]
    (change,) = read(encode(ORDERS), insert(7, [b"1", b"a", None])).tables
    return source.look_up(change.changes, (1,), [(key,) for key in range(keys)])


LOCK = 'LOCK TABLE "public"."orders" IN ACCESS SHARE MODE'
CHUNK = ["begin", LOCK_TIMEOUT, LOCK, "select", "end"]


def test_a_look_up_locks_the_table_for_some_rows_at_a_time() -> None:
    session = FakeSession()
    found = look_up(session, 450)
    assert found == {(key,): (f"note {key}",) for key in range(450)}
    assert session.log == CHUNK * 3


def test_a_look_up_waits_for_the_lock_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    session = FakeSession()
    session.fails = [LockedError("no lock")] * 2
    assert look_up(session, 1) == {(0,): ("note 0",)}
    assert session.log == [*["begin", LOCK_TIMEOUT, LOCK, "end"] * 2, *CHUNK]
    assert (
        messages(caplog, "barnabas.spark")
        == ["no lock. The query has waited for 0 s, and goes on when that session ends"] * 2
    )


def test_a_look_up_in_a_table_that_is_gone_finds_nothing() -> None:
    session = FakeSession()
    session.fails = [NoTableError("no table")]
    assert look_up(session, 1) == {}


def test_a_look_up_of_a_column_that_is_gone_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    session = FakeSession()
    session.columns = [("id", 20)]
    assert look_up(session, 450) == {}
    (message,) = messages(caplog, "barnabas.spark")
    assert message.startswith("public.orders has no column note any more as the changes have it")
