"""Extreme values of every type by every path into every sink: equal, in the form that the files beside say, or refused.

`type_matrix/*.txt` have what becomes of each value; `--rewrite` writes them anew. A snapshot, the changes and a poll of
a table give the same values, so that one path is enough for the sinks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.capture.ports import Connector
from barnabas.spark.connectors.converters.making import make_converter
from barnabas.spark.connectors.converters.runs import BadRows
from barnabas.spark.connectors.mysql.source import MARIADB, MYSQL
from barnabas.spark.connectors.polling.mysql import MARIADB_POLLING, MYSQL_POLLING
from barnabas.spark.connectors.polling.postgres import POSTGRES_POLLING
from barnabas.spark.connectors.postgres.source import CONNECTOR as POSTGRES
from barnabas.spark.errors import SparkSourceError
from barnabas.spark.records import encoding, registries
from barnabas.testing.databases import MariaDbServer, MySqlServer, PostgresServer
from tests.system.connectors.mysql_sources import InstalledMySql, missing_mysql
from tests.system.connectors.pathways import capturing, placed
from tests.system.connectors.postgres_sources import capture_texts, create, session
from tests.system.connectors.sql_databases import MariaDbSinkDatabase, PostgresSinkDatabase, SinkDatabase
from tests.system.connectors.type_matrix import (
    AVRO,
    FORMS,
    MatrixSink,
    elements_of,
    file_sinks,
    lines_of,
    outcomes,
    sql_sink,
    topic_sinks,
    without_sink,
)
from tests.system.connectors.type_values import (
    MARIADB_TYPES,
    MYSQL_TYPES,
    POSTGRES_SETUP,
    POSTGRES_TYPES,
    Form,
    ValueType,
    columns_of,
    rows_of,
)
from tests.unit.registry.memory_registry import memory_registry

pytestmark = pytest.mark.system

FOLDER = Path(__file__).with_name("type_matrix")
Results = dict[str, dict[str, list[str]]]


@pytest.fixture(autouse=True)
def dropped_slots(postgres: PostgresServer) -> Iterator[None]:
    yield
    with session(postgres) as admin:
        admin.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """All clients of registries use one in memory."""
    found = memory_registry()
    monkeypatch.setattr(registries, "RegistryClient", lambda url, **_: found)
    monkeypatch.setattr(registries, "_clients", {})
    monkeypatch.setattr(encoding, "_encoders", {})


@pytest.fixture
def sinks(postgres: PostgresServer, mariadb: MariaDbServer, tmp_path: Path) -> Iterator[list[MatrixSink]]:
    """All sinks; MySQL is the last one, and is missing where it is not installed."""
    with ExitStack() as stack:
        databases: dict[str, SinkDatabase] = {
            "postgres": PostgresSinkDatabase(postgres),
            "mariadb": MariaDbSinkDatabase(mariadb),
        }
        if not missing_mysql():
            databases["mysql"] = MariaDbSinkDatabase(stack.enter_context(InstalledMySql()))
        for database in databases.values():
            database.open()
        folder = tmp_path / "sinks"
        folder.mkdir()
        of_databases = {
            name: sql_sink(name, database, "{}::text" if name == "postgres" else "{}")
            for name, database in databases.items()
        }
        mysql = of_databases.pop("mysql", None)
        yield [*of_databases.values(), *file_sinks(folder), *topic_sinks(), *([] if mysql is None else [mysql])]
        for database in databases.values():
            database.connection.close()


def matrix(sinks: list[MatrixSink], types: tuple[ValueType, ...], batches: Mapping[str, Any]) -> Results:
    """The outcomes of all types in all forms and sinks."""
    results: Results = {}
    for number, form in enumerate((*FORMS, "events in avro")):
        batch = batches[form]
        for sink in (sink for sink in sinks if form in sink.forms):
            found = results.setdefault(f"{sink.name}, {form}", {})
            for one in types:
                if not (one.rows_only and form != "rows"):
                    found[one.name] = outcomes(sink, form, one, batch, f"r{number}_{one.name}")
    return results


def check_file(name: str, text: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{name}.txt"
    if missing := missing_mysql():
        assert not request.config.getoption("--rewrite"), f"the files have MySQL: {missing}"
        assert without_sink(path.read_text(), "mysql") == text
        return
    if request.config.getoption("--rewrite"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_the_places_of_a_sink_are_left_out_of_lines() -> None:
    lines = ["t: T", '  "1"', "    =  <- rows: a b; events: b", '    "x"  <- events: c mysql; rows: mysql']
    found = without_sink("\n".join([*lines, "    2  <- rows: mysql"]), "mysql")
    assert found.splitlines() == [*lines[:3], '    "x"  <- events: c']


def captures(
    texts: Mapping[str, str], connector: Connector, types: tuple[ValueType, ...], run: Any, table: str
) -> dict[str, Any]:
    """What a query gives in each form, after a check that the changes are those of the snapshot."""
    found = {}
    for form, more in {
        "rows": {"output": "rows"},
        "events": {"output": "records"},
        "events without schemas": {
            "output": "records",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        },
        "events in avro": {"output": "records", **AVRO},
    }.items():
        given = {**texts, **more, "stagingLocation": f"{texts['stagingLocation']}-{len(found)}"}
        if "slot.name" in given:
            given["slot.name"] += f"_{len(found)}"
        if form != "rows":
            left_out = "|".join(one.name for one in types if one.rows_only)
            given |= {"column.exclude.list": rf"{table.replace('.', '[.]')}\.({left_out})"} if left_out else {}
        with capturing(given, connector) as capture:
            snapshot = capture.batch()
            run(f"DELETE FROM {table}")
            for statement in inserts(table, types):
                run(statement)
            changes = capture.batch()
        height = len(rows_of(types))
        assert snapshot.num_rows == height
        if form == "rows":
            created = changes.slice(height)
            for one in types:
                assert texts_of(created.column(one.name)) == texts_of(snapshot.column(one.name)), one.name
        elif form != "events in avro":
            created = changes.slice(2 * height)  # a tombstone follows each delete
            assert [_after(value) for value in created.column("value").to_pylist()] == [
                _after(value) for value in snapshot.column("value").to_pylist()
            ]
        found[form] = snapshot if form == "rows" else placed(snapshot)
    assert read_by_sinks(found["events in avro"], AVRO) == read_by_sinks(found["events"], FORMS["events"])
    return found


def read_by_sinks(batch: Any, options: Mapping[str, str]) -> list[str]:
    """The new rows of events as a sink gets them from its converter."""
    converter = make_converter("value.converter", options, is_key=False)
    runs = converter.decode_column(batch.column("value"), BadRows("value"))
    return [str(event["after"]) for run in runs for event in run.values.to_pylist()]


def inserts(table: str, types: tuple[ValueType, ...]) -> list[str]:
    return [f"INSERT INTO {table} VALUES ({number}, {', '.join(row)})" for number, row in rows_of(types)]


def texts_of(column: Any) -> list[str]:
    """Values as texts, among which NaN equals NaN."""
    return [str(value) for value in column.to_pylist()]


def _after(value: bytes) -> Any:
    event = json.loads(value)
    return event.get("payload", event)["after"]


def polled(texts: Mapping[str, str], connector: Connector, expected: Any, types: Sequence[ValueType]) -> None:
    """Check that a poll gives the rows of the snapshot. Only a poll knows the precision of a domain over numeric."""
    with capturing(texts, connector) as capture:
        rows = [capture.batch(), capture.batch()][-1]  # the first micro-batch is the start of the polls
    rows = rows.take(pa.compute.sort_indices(rows.column("id")))
    for one in types:
        assert texts_of(rows.column(one.name)) == texts_of(expected.column(one.name)), one.name


def postgres_batches(
    postgres: PostgresServer, folder: Path, types: tuple[ValueType, ...], name: str, **more: str
) -> Any:
    """What captures of a table with these types give in each form, after a check that a poll gives the same rows."""
    setup = (*POSTGRES_SETUP, f"CREATE TABLE t (id int PRIMARY KEY, {columns_of(types)})")
    with create(postgres, name, *setup, *inserts("t", types)) as admin:
        texts = capture_texts(postgres, folder, name, **more)
        batches = captures(texts, POSTGRES, types, admin.execute, f"{name}.t")
        polled(poll_texts(postgres, folder, name, "t", **more), POSTGRES_POLLING, batches["rows"], types)
    return batches


def poll_texts(postgres: PostgresServer, folder: Path, schema: str, table: str, **more: str) -> dict[str, str]:
    return {
        "connection.url": f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres",
        "connection.user": "postgres",
        "schema.pattern": schema,
        "table.whitelist": table,
        "mode": "bulk",
        "topic.prefix": "polled-",
        "output": "rows",
        "stagingLocation": str(folder / f"polled-{table}"),
    } | {name.replace("_", "."): text for name, text in more.items()}


def mysql_batches(
    server: MariaDbServer, folder: Path, types: tuple[ValueType, ...], connectors: tuple[Connector, Connector]
) -> dict[str, Any]:
    """The same for MariaDB and MySQL, with their connectors of changes and of polls."""
    source = MariaDbSinkDatabase(server)
    source.open()
    source.run("SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_BACKSLASH_ESCAPES', SESSION time_zone = '+00:00'")
    source.run(f"CREATE TABLE t (id int PRIMARY KEY, {columns_of(types)}) DEFAULT CHARSET utf8mb4")
    for statement in inserts("t", types):
        source.run(statement)
    table = f"{source.schema}.t"
    texts = {
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "table.include.list": table,
        "topic.prefix": "kinds",
        "stagingLocation": str(folder / "staging"),
    }
    batches = captures(texts, connectors[0], types, source.run, table)
    polling = {
        "connection.url": f"jdbc:mariadb://127.0.0.1:{server.port}/{source.schema}",
        "connection.user": server.user,
        "connection.password": server.password,
        "table.whitelist": "t",
        "mode": "bulk",
        "topic.prefix": "polled-",
        "output": "rows",
        "stagingLocation": str(folder / "polled"),
    }
    # A poll has INET4 and INET6 as the server prints them, and not as bytes.
    alike = [one for one in types if not one.ddl.startswith("INET")]
    polled(polling, connectors[1], batches["rows"], alike)
    source.connection.close()
    return batches


def test_snapshot_changes_and_polls_of_postgres_have_the_same_values(postgres: PostgresServer, tmp_path: Path) -> None:
    batches = postgres_batches(postgres, tmp_path, POSTGRES_TYPES, "kinds")
    rows = batches["rows"]
    for one in POSTGRES_TYPES:
        if one.form is Form.TEXT:
            kept = [value.text for value in one.values if value.refused is None]
            assert rows.column(one.name).to_pylist()[: len(kept)] == kept, one.name


def test_snapshot_changes_and_polls_of_mariadb_have_the_same_values(mariadb: MariaDbServer, tmp_path: Path) -> None:
    mysql_batches(mariadb, tmp_path, MARIADB_TYPES, (MARIADB, MARIADB_POLLING))


def test_snapshot_changes_and_polls_of_mysql_have_the_same_values(mysql: MySqlServer, tmp_path: Path) -> None:
    mysql_batches(mysql, tmp_path, MYSQL_TYPES, (MYSQL, MYSQL_POLLING))


@pytest.mark.slow
def test_every_type_of_postgres_in_every_sink(
    postgres: PostgresServer, sinks: list[MatrixSink], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    batches = postgres_batches(postgres, tmp_path, POSTGRES_TYPES, "many")
    results = matrix(sinks, POSTGRES_TYPES, batches)
    check_file("postgres", lines_of(POSTGRES_TYPES, results), request)


@pytest.mark.slow
def test_every_type_of_mariadb_in_every_sink(
    mariadb: MariaDbServer, sinks: list[MatrixSink], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    batches = mysql_batches(mariadb, tmp_path, MARIADB_TYPES, (MARIADB, MARIADB_POLLING))
    results = matrix(sinks, MARIADB_TYPES, batches)
    check_file("mariadb", lines_of(MARIADB_TYPES, results), request)


def refused_types() -> tuple[ValueType, ...]:
    """The types with values that stop a query, with these values only."""
    found = []
    for one in POSTGRES_TYPES:
        values = tuple(replace(value, refused=None) for value in one.values if value.refused)
        if values and "array" not in str([value.refused for value in one.values]):
            found.append(replace(one, values=values))
    return tuple(found)


@pytest.mark.parametrize("mode", ["null", "text"])
def test_values_that_spark_has_no_place_for_are_what_the_options_say_on_every_path(
    mode: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    types = refused_types()
    options = {"out_of_range_handling_mode": mode, "nan_handling_mode": mode}
    rows = postgres_batches(postgres, tmp_path, types, f"options_{mode}", **options)["rows"]
    for one in types:
        texts = [value.text for value in one.values]
        found = rows.column(one.name).to_pylist()[: len(texts)]
        if one.form is Form.LIST:
            texts = [elements_of(text or "") for text in texts]
            expected = texts if mode == "text" else [[None] * len(text) for text in texts]
        else:
            expected = texts if mode == "text" else [None] * len(texts)
        assert found == expected, one.name


def test_a_numeric_without_a_scale_that_is_no_number_follows_the_option_in_events(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    (one,) = (one for one in POSTGRES_TYPES if one.rows_only)
    with create(postgres, "no_number", f"CREATE TABLE t (id int PRIMARY KEY, v {one.ddl})") as admin:
        admin.execute("INSERT INTO t VALUES (1, 'NaN'), (2, '-Infinity'), (3, 1.5)")
        for number, (mode, more, expected) in enumerate(
            (
                ("fail", {}, None),
                ("null", {}, [None, None, {"scale": 1, "value": "Dw=="}]),
                ("text", {}, ["NaN", "-Infinity", "1.5"]),
                ("fail", {"decimal.handling.mode": "string"}, ["NaN", "-Infinity", "1.5"]),
            )
        ):
            texts = capture_texts(postgres, tmp_path, "no_number", output="records", nan_handling_mode=mode) | more
            texts |= {"slot.name": f"no_number_{number}", "stagingLocation": str(tmp_path / f"{number}")}
            with capturing(texts, POSTGRES) as capture:
                if expected is None:
                    with pytest.raises(SparkSourceError, match=r"NaN of the column v is no decimal: set nan\.handling"):
                        capture.batch()
                else:
                    found = [_after(value)["v"] for value in capture.batch().column("value").to_pylist()]
                    assert found == expected


def test_values_that_spark_has_no_place_for_stop_every_path_with_the_option_that_decides(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    with create(postgres, "refused") as admin:
        for one in POSTGRES_TYPES:
            for number, value in enumerate(value for value in one.values if value.refused):
                table = f"x_{one.name}_{number}"
                admin.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v {one.ddl})")
                admin.execute(f"INSERT INTO {table} VALUES (1, {value.literal})")
                with (
                    pytest.raises(SparkSourceError, match=rf"of the column v cannot be read.*{value.refused}"),
                    capturing(poll_texts(postgres, tmp_path, "refused", table), POSTGRES_POLLING) as capture,
                ):
                    capture.batch()
                    capture.batch()
        for snapshot in (True, False):
            name = f"refused_{snapshot}".lower()
            with create(postgres, name, "CREATE TABLE t (id int PRIMARY KEY, v date)") as other:
                if snapshot:
                    other.execute("INSERT INTO t VALUES (1, 'infinity')")
                with capturing(capture_texts(postgres, tmp_path / name, name), POSTGRES) as capture:
                    if not snapshot:
                        capture.batch()
                        other.execute("INSERT INTO t VALUES (1, 'infinity')")
                    with pytest.raises(
                        SparkSourceError, match=r"'infinity'.*column v .*out\.of\.range\.handling\.mode"
                    ):
                        capture.batch()
