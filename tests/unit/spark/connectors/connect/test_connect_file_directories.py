"""A connector that came over the REST API uses files below the configured directories only."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark.connectors.connect.plans.file_directories import refused_file
from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
from barnabas.spark.connectors.connect.plans.table import CONNECTORS
from barnabas.spark.errors import OptionError

SOURCE = {"name": "lines", "connector.class": "FileStreamSource", "topic": "t"}


def test_files_below_the_directories_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "out").symlink_to("/etc")
    allowed = [str(tmp_path / "in")]
    for text in (f"{tmp_path}/in/a.txt", f"file:{tmp_path}/in/a", f"file://{tmp_path}/in/a%20b", "s3://bucket/key"):
        assert refused_file({"file": text}, allowed) is None, text
    for text in ("/etc/passwd", f"{tmp_path}/in/../b", f"{tmp_path}/in/out/passwd", f"{tmp_path}/inner", "file:/etc/x",
                 "relative", f"file://{tmp_path}/in/%2e%2e/b"):  # fmt: skip
        assert refused_file({"File": text}, allowed) is not None, text
        assert refused_file({"path": text}, []) is not None, text


CONFIGS = {
    "DeltaSink": {"path": "PLACE"},
    "IcebergSink": {"table": "a.b", "catalog.warehouse": "PLACE"},
    "FileStreamSink": {"file": "PLACE"},
    "FileStreamSource": {"file": "PLACE", "topic": "t"},
    "DebeziumJdbcSink": {"connection.url": "jdbc:sqlite:PLACE"},
    "JdbcSink": {"connection.url": "jdbc:duckdb:PLACE"},
    "JdbcSource": {"connection.url": "jdbc:sqlite:PLACE", "mode": "bulk", "topic.prefix": "t-"},
    "SparkSink": {"spark.format": "parquet", "spark.option.path": "PLACE"},
    "SparkSource": {"spark.format": "barnabas.sqlite", "spark.option.connection.url": "sqlite:PLACE"},
}
"""Each connector that can use files of its host, with the key that names one."""


def test_every_connector_that_names_files_is_listed() -> None:
    others = {"HttpSink", "MariaDbSource", "MySqlSource", "PostgresSource"}
    assert {row.name for row in CONNECTORS} == {*CONFIGS, *others}


@pytest.mark.parametrize("name", CONFIGS)
def test_each_connector_has_the_same_rule(name: str, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    planner = WorkerPlanner({"bootstrap.servers": "b:1"}, {}, [str(tmp_path)])

    def errors(place: str) -> list[str]:
        more = {key: text.replace("PLACE", place) for key, text in CONFIGS[name].items()}
        config = {"name": "n", "connector.class": name, "topics": "t", **more}
        return [error for found in planner.findings(config) for error in found.errors if "not below" in error]

    assert errors(f"{tmp_path}/a") == []
    for place in ("/etc/a", f"{tmp_path}/../a", f"{tmp_path}/out/a", "a", f"file:{tmp_path}/%2e%2e/a", "s3:/../etc/a"):
        assert len(errors(place)) == 1, place


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ({"path": "s3://bucket/key"}, None),
        ({"path": "abfss://container@account.dfs.core.windows.net/x"}, None),
        ({"path": "local://host/etc/passwd"}, "path"),
        ({"path": "${env:PLACE}"}, None),  # checked when the connector starts
        ({"catalog.uri": "sqlite:////etc/catalog.db"}, "catalog.uri"),
        ({"catalog.uri": "sqlite+pysqlite:////etc/catalog.db"}, "catalog.uri"),
        ({"catalog.uri": "postgresql+psycopg://h/d", "catalog.warehouse": "/etc"}, "catalog.warehouse"),
        ({"catalog.uri": "https://catalog", "catalog.warehouse": "sales"}, None),
        ({"catalog.type": "rest", "catalog.warehouse": "arn:aws:s3tables:eu-west-1:1:bucket/sales"}, None),
        ({"catalog.type": "rest", "catalog.warehouse": "file:///etc"}, "catalog.warehouse"),
        ({"connection.url": "jdbc:postgresql://h/d"}, None),
        ({"connection.url": "jdbc:oracle:thin:@h:1521/d"}, None),
        ({"connection.url": "jdbc:derby:/etc/d;create=true"}, "connection.url"),
        ({"connection.url": "jdbc:derby://h:1527/d"}, None),
        ({"connection.url": "jdbc:h2:tcp://h/~/d"}, None),
        ({"connection.url": "jdbc:h2:~/d"}, "connection.url"),
        ({"connection.url": "JDBC:SQLite:file:///etc/d?x=y"}, "connection.url"),
        ({"schema.registry.url": "http://registry:8081"}, None),
        ({"spark.option.checkpointLocation": "/etc"}, "spark.option.checkpointLocation"),
        ({"spark.option.sourceArchiveDir": "/etc"}, "spark.option.sourceArchiveDir"),
        ({"spark.select": "java_method('java.lang.System', 'load', '/data/x.so')"}, "spark.select"),
        ({"spark.select": "`reflect`('java.lang.System', 'exit', 1)"}, "spark.select"),
        ({"spark.select": "value, offset AS reflected"}, None),
        ({"connection.url": "jdbc:duckdb:/data/d", "query": "FROM read_text('/etc/passwd')"}, "query"),
        ({"connection.url": "jdbc:sqlite:/data/d", "query": "SELECT 1"}, None),
    ],
)
def test_places_in_addresses_catalogs_and_queries(config: dict[str, str], refused: str | None) -> None:
    found = refused_file(config, ["/data"])
    assert (None if found is None else found[0]) == refused


def test_a_worker_refuses_other_files_when_it_validates_and_when_it_plans() -> None:
    planner = WorkerPlanner({"bootstrap.servers": "b:1"}, {}, ["/data"])
    config = {**SOURCE, "file": "/etc/passwd"}
    (finding,) = [found for found in planner.findings(config) if found.errors]
    assert finding.name == "file"
    assert "file.directories" in finding.errors[0]
    with pytest.raises(OptionError, match="not below the directories"):
        planner.plan(config)
    assert not any(found.errors for found in planner.findings({**SOURCE, "file": "/data/a"}))
    assert not any(found.errors for found in WorkerPlanner({"bootstrap.servers": "b:1"}).findings(config))
