"""Unchanged large values of PostgreSQL, which it does not send: in no sink do they become a placeholder or NULL."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from barnabas.spark.connectors.capture.errors import CaptureError, TableChangedError
from barnabas.spark.connectors.lake.opening import delta_plan, iceberg_plan
from barnabas.spark.connectors.postgres.source import CONNECTOR
from barnabas.spark.connectors.sinking.writer import SinkPlan
from barnabas.spark.errors import SinkError
from barnabas.testing.databases import MariaDbServer, PostgresServer
from tests.system.connectors.pathways import capturing, placed, write
from tests.system.connectors.postgres_sources import capture_texts, create, session
from tests.system.connectors.sql_databases import MariaDbSinkDatabase

pytestmark = pytest.mark.system

BIG = "abcdefghij" * 900
PLAIN = {
    "key.converter": "JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
}
PLAIN_OPTIONS = {name.replace(".", "_"): text for name, text in PLAIN.items()}
UNWRAP = {"transforms": "flat", "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState"}
KEYED = {"insert.mode": "upsert", "pk.mode": "record_key", "delete.enabled": "true"}
ROWS = {"insert.mode": "upsert", "pk.fields": "id", "delete.enabled": "true"}


@pytest.fixture(autouse=True)
def dropped_slots(postgres: PostgresServer) -> Iterator[None]:
    yield
    with session(postgres) as admin:
        admin.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")


def table(server: PostgresServer, name: str) -> psycopg.Connection[Any]:
    """A table in a schema of this name, with a value of each kind that the server leaves out of updates."""
    admin = create(server, name, "CREATE TABLE t (id int PRIMARY KEY, n int, note text, file bytea, tags text[])")
    for column in ("note", "file", "tags"):
        admin.execute(f"ALTER TABLE t ALTER {column} SET STORAGE EXTERNAL")
    for number in (1, 2, 3):
        admin.execute("INSERT INTO t VALUES (%s, 0, %s, %s, %s)", (number, BIG, BIG.encode(), [BIG, None]))
    return admin


def source_rows(admin: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in admin.execute("SELECT * FROM t ORDER BY id").fetchall()]


class Sinks:
    """A table in each kind of sink, written by the same micro-batches."""

    def __init__(self, mariadb: MariaDbServer, folder: Path, *, records: bool, **more: str) -> None:
        self.database = MariaDbSinkDatabase(mariadb)
        self.database.open()
        self._number = 0
        how = {**PLAIN, **UNWRAP, **KEYED} if records else ROWS
        how = how | {name.replace("_", "."): text for name, text in more.items()}
        sql = {name.replace(".", "_"): text for name, text in how.items()}
        self.delta = folder / "delta"
        warehouse = {"table": "shop.t", "catalog.warehouse": str(folder / "iceberg")}
        self.plans: dict[str, SinkPlan] = {
            "mariadb": self.database.plan(**sql, table_name_format="t", auto_create="true"),
            "delta": delta_plan({**how, "path": str(self.delta)}),
            "iceberg": iceberg_plan({**how, **warehouse}),
        }

    def write(self, batch: Any) -> None:
        for plan in self.plans.values():
            write(plan, self._number, batch)
        self._number += 1

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        lake = {"delta": DeltaTable(str(self.delta)).to_pyarrow_table()}
        iceberg: Any = self.plans["iceberg"].target
        opened = iceberg.open_table("shop.t", pa.schema([]))
        lake["iceberg"] = opened._table.scan().to_arrow()
        found = {name: sorted(tuple(row.values()) for row in one.to_pylist()) for name, one in lake.items()}
        return found | {"mariadb": self.database.rows("SELECT * FROM t ORDER BY id")}


def change(admin: psycopg.Connection[Any]) -> None:
    """Updates that leave the large values alone, before and after changes of keys; a moved row moves again."""
    for statement in (
        "UPDATE t SET n = n + 1",
        "UPDATE t SET id = id + 10, n = n + 1 WHERE id < 3",
        "UPDATE t SET id = 30 WHERE id = 12",
        "UPDATE t SET n = n + 1",
    ):
        admin.execute(statement)


def test_the_rows_of_every_sink_are_those_of_the_source_after_keys_have_changed(
    postgres: PostgresServer, mariadb: MariaDbServer, tmp_path: Path
) -> None:
    sinks = Sinks(mariadb, tmp_path, records=False)
    texts = capture_texts(postgres, tmp_path, "moved", unavailable_value_handling_mode="list")
    with table(postgres, "moved") as admin, capturing(texts, CONNECTOR) as capture:
        sinks.write(capture.batch())
        change(admin)
        sinks.write(capture.batch())
        expected = source_rows(admin)
        assert [row[0] for row in expected] == [3, 11, 30]
        found = sinks.rows()
        as_json = json.dumps([BIG, None], separators=(",", ":"))
        assert found["mariadb"] == [(*row[:4], as_json) for row in expected]
        assert found["delta"] == found["iceberg"] == [tuple(row) for row in expected]


def test_events_through_a_topic_with_two_partitions_give_the_rows_of_the_source(
    postgres: PostgresServer, mariadb: MariaDbServer, tmp_path: Path
) -> None:
    """The delete and the create of a changed key may be read in either order, and in two micro-batches."""
    sinks = Sinks(mariadb, tmp_path, records=True)
    texts = capture_texts(postgres, tmp_path, "topics", output="records", tombstones_on_delete="true", **PLAIN_OPTIONS)
    with table(postgres, "topics") as admin, capturing(texts, CONNECTOR) as capture:
        sinks.write(placed(capture.batch()))
        change(admin)
        admin.execute("UPDATE t SET note = '__debezium_unavailable_value' WHERE id = 3")  # a user wrote this
        batch = placed(capture.batch(), first=10)
        new = [json.loads(key)["id"] > 3 for key in batch.column("key").to_pylist()]
        sinks.write(batch.filter(pa.array(new)))
        sinks.write(batch.filter(pa.array([not one for one in new])))
        expected = [(id, n, note, file) for id, n, note, file, _ in source_rows(admin)]
        found = sinks.rows()
        assert [(row[0], *row[1:3]) for row in found["mariadb"]] == [row[:3] for row in expected]
        assert [row[:3] for row in found["delta"]] == [row[:3] for row in expected]
        assert [row[:3] for row in found["iceberg"]] == [row[:3] for row in expected]
        assert all(row[4] == [BIG, None] for row in found["delta"])


def test_a_row_that_has_gone_since_its_key_changed_stops_the_query_or_is_null(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with table(postgres, "gone") as admin:
        texts = capture_texts(postgres, tmp_path, "gone")
        with capturing(texts, CONNECTOR) as capture:
            capture.batch()
            admin.execute("UPDATE t SET id = 10 WHERE id = 1")
            admin.execute("DELETE FROM t WHERE id = 10")
            with pytest.raises(CaptureError, match=r"gone\.t has the new key id=10.*note.*mode=reselect"):
                capture.batch()
        texts |= {"unavailable.value.handling.mode": "reselect"}
        with capturing(texts, CONNECTOR, capture.offset) as again:
            rows = again.batch().to_pylist()
            assert [(row["id"], row["__op"], row["note"]) for row in rows] == [
                (1, "d", None), (10, "c", None), (10, "d", None),
            ]  # fmt: skip


def test_a_column_that_was_renamed_since_takes_no_other_value_with_it(
    postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The row is there, and so is its value in another column that did not change."""
    with table(postgres, "elsewhere") as admin:
        texts = capture_texts(postgres, tmp_path, "elsewhere", output="records", **PLAIN_OPTIONS)
        with capturing(texts, CONNECTOR) as capture:
            capture.batch()
            admin.execute("UPDATE t SET id = 10 WHERE id = 1")
            admin.execute("ALTER TABLE t RENAME note TO remark")
            with pytest.raises(CaptureError, match=r"has the new key id=10.*note.*no such column"):
                capture.batch()
        texts |= {"unavailable.value.handling.mode": "reselect"}
        with capturing(texts, CONNECTOR, capture.offset) as again:
            *_, created = (json.loads(row["value"]) for row in again.batch().to_pylist() if row["value"])
        assert (created["op"], created["after"]["id"], created["after"]["note"]) == ("c", 10, None)
        assert created["after"]["file"] == base64.b64encode(BIG.encode()).decode()
        assert created["after"]["tags"] == [BIG, None]
        assert "has no column note any more as the changes have it" in caplog.text


def test_reselect_reads_the_values_of_updates_so_that_rows_can_be_appended(
    postgres: PostgresServer, mariadb: MariaDbServer, tmp_path: Path
) -> None:
    """Rows of a history are whole: without the values, they are refused."""
    log = MariaDbSinkDatabase(mariadb)
    log.open()
    insert = log.plan(dbtable="log", auto_create="true", fields_include="id,n,note")
    with table(postgres, "appended") as admin:
        listed = capture_texts(postgres, tmp_path, "appended", unavailable_value_handling_mode="list")
        with capturing(listed, CONNECTOR) as capture:
            write(insert, 0, capture.batch())
            admin.execute("UPDATE t SET n = 7 WHERE id = 2")
            offset = capture.offset
            with pytest.raises(SinkError, match=r"did not send its unchanged value of note.*reselect"):
                write(insert, 1, capture.batch())
        reselected = listed | {"unavailable.value.handling.mode": "reselect"}
        with capturing(reselected, CONNECTOR, offset) as capture:
            write(insert, 1, capture.batch())
        assert log.rows("SELECT id, n, note FROM log WHERE n = 7") == [(2, 7, BIG)]


def test_a_new_row_without_a_value_is_refused_by_every_sink(
    postgres: PostgresServer, mariadb: MariaDbServer, tmp_path: Path
) -> None:
    """The update of a row that the sink never got, and a create of Debezium, which has the placeholder."""
    sinks = Sinks(mariadb, tmp_path, records=False)
    texts = capture_texts(postgres, tmp_path, "unknown", unavailable_value_handling_mode="list")
    with table(postgres, "unknown") as admin, capturing(texts, CONNECTOR) as capture:
        first = capture.batch()
        sinks.write(first.filter(pa.array([row["id"] != 2 for row in first.to_pylist()])))
        before = sinks.rows()
        admin.execute("UPDATE t SET n = 5")
        batch = capture.batch()
        for plan in sinks.plans.values():
            with pytest.raises(SinkError, match=r"2.* is new to the table, and its source did not send its value of"):
                write(plan, 1, batch)
        assert sinks.rows() == before


def test_a_publication_with_a_part_of_the_table_gives_snapshot_and_changes_the_same_part(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with table(postgres, "partial") as admin:
        admin.execute("CREATE PUBLICATION partial FOR TABLE t (id, n, note) WHERE (id < 3)")
        texts = capture_texts(postgres, tmp_path, "partial", publication_autocreate_mode="disabled")
        with capturing(texts, CONNECTOR) as capture:
            first = capture.batch()
            assert first.schema.names[:4] == ["id", "n", "note", "__op"]
            assert [(row["id"], row["note"]) for row in first.to_pylist()] == [(1, BIG), (2, BIG)]
            admin.execute("UPDATE t SET id = 0, n = 9 WHERE id = 3")  # becomes an insert, without its large value
            (row,) = capture.batch().to_pylist()
            assert (row["id"], row["n"], row["note"], row["__op"]) == (0, 9, BIG, "c")
            admin.execute("ALTER PUBLICATION partial SET TABLE t (id, n) WHERE (id < 3)")
            admin.execute("UPDATE t SET n = 10 WHERE id = 1")
            with pytest.raises(TableChangedError, match=r"do not have the column note any more.*the publication"):
                capture.batch()


def test_a_renamed_column_is_not_null_in_silence(
    postgres: PostgresServer, mariadb: MariaDbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server sends no row because of ALTER TABLE, and no value of an update that did not change it."""
    sinks = Sinks(mariadb, tmp_path, records=True, auto_evolve="true")
    texts = capture_texts(postgres, tmp_path, "renamed", output="records", tombstones_on_delete="true", **PLAIN_OPTIONS)
    with table(postgres, "renamed") as admin, capturing(texts, CONNECTOR) as capture:
        sinks.write(placed(capture.batch()))
        admin.execute("ALTER TABLE t RENAME note TO remark")
        admin.execute("UPDATE t SET n = 1 WHERE id = 1")
        batch = placed(capture.batch(), first=10)
        for plan in sinks.plans.values():
            with pytest.raises(
                SinkError, match=r"has no column remark, and the source of a row did not send.*UPDATE t"
            ):
                write(plan, 1, batch)
        admin.execute("INSERT INTO t (id, n, remark) VALUES (4, 0, 'new')")
        sinks.write(placed(capture.batch(), first=20))
        sinks.write(batch)
        kept = [record.message for record in caplog.records if "keep NULL in remark" in record.message]
        assert len(kept) == len(sinks.plans)
        assert all(message.startswith("1 rows of ") for message in kept)
        admin.execute("UPDATE t SET n = n + 1, remark = remark || ''")
        sinks.write(placed(capture.batch(), first=30))
        expected = [(row[0], row[1], row[2]) for row in source_rows(admin)]
        columns = {"mariadb": (0, 1, 5), "delta": (0, 1, 5), "iceberg": (0, 1, 5)}
        for sink, rows in sinks.rows().items():
            assert [tuple(row[at] for at in columns[sink]) for row in rows] == expected
