"""Changes of PostgreSQL and MariaDB through Apache Kafka: into the other database by our exactly-once sinks, and into
PostgreSQL by Debezium's own JDBC sink in Kafka Connect.

Debezium's sink reads our change events as it reads those of its own connectors: types by the names of their schemas,
deletes, tombstones, changed keys, truncates. Every copy must be equal to its source.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from bench.connectors.kafka_connect import KafkaConnect
from pyspark.errors import StreamingQueryException

from barnabas.testing.databases import MariaDbServer, PostgresServer
from tests.interop.apache_kafka import ApacheKafka
from tests.interop.spark_connector import running_session
from tests.progress import wait_until
from tests.system.connectors.query_driver import STARVED
from tests.system.connectors.shops import MariaDbShop, PostgresShop, Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = 20
THEIR_COLUMNS = {
    "pg": {
        "kinds": (
            "version", "small", "medium", "great", "ratio", "precise", "amount", "flag", "day", "clock",
            "moment", "stamp", "fixed", "word", "few", "mood", "unique_id", "address", "note",
        ),
        "marks": ("version", "kind", "mark"),
    },
    "my": {
        "kinds": (
            "version", "tiny", "small", "medium", "great", "precise", "amount", "year", "day", "moment",
            "fixed", "word", "latin", "six", "few", "choice", "note", "file",
        ),
        "marks": ("version", "kind", "mark"),
    },
}  # fmt: skip
"""By the names of the databases: the tables and columns that are compared in Debezium's copies. Its sink stores numbers
without a fixed scale as doubles, so `longest` is not among them."""


LEFT_OUT = {
    "pg": "several|words|bits|length|written|span|place|file",
    "my": "clock|stamp|bits|several|document|flag|ratio",  # Debezium's sink refuses a TIME of more than a day
}
"""The columns that are not captured."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with running_session([], {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}) as session:
        yield session


def change(shop: Shop, rng: random.Random) -> None:
    """Insert, update, delete and move rows; the table of marks has other rows after a truncate."""
    session = shop.connect()
    cursor = session.cursor()
    for key in range(ROWS, 2 * ROWS):
        shop.insert(cursor, "shop.kinds", key, {name: one.make(rng) for name, one in shop.columns.items()})
    for name in THEIR_COLUMNS[shop.name]["kinds"][1:]:
        cursor.execute(f"UPDATE shop.kinds SET {name} = NULL, version = version + 1 WHERE id = {rng.randrange(ROWS)}")
    cursor.execute("DELETE FROM shop.kinds WHERE id % 7 = 3")
    cursor.execute("UPDATE shop.kinds SET id = id + 100 WHERE id % 7 = 4")
    cursor.execute("TRUNCATE TABLE shop.marks")
    cursor.execute("INSERT INTO shop.marks VALUES (1, 1, 2, 'after')")
    session.commit()
    session.close()


def run(spark: SparkSession, checkpoint: Path, reading: dict[str, str], writing: dict[str, str]) -> None:
    """Read all that is there now. It goes on where the last query with this checkpoint ended."""
    while True:
        rows = spark.readStream.format(reading["format"]).options(**_options(reading)).load()
        writer = rows.writeStream.format(writing["format"]).options(**_options(writing))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            if STARVED not in str(error):
                raise


def _options(options: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name != "format"}


def their_sink(postgres: PostgresServer, shop: Shop) -> dict[str, str]:
    """Debezium's JDBC sink: the tables of a shop in a schema of its name."""
    return {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": ",".join(map(shop.topic, shop.tables)),
        "connection.url": f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres",
        "connection.username": "postgres",
        "connection.password": "any",
        "insert.mode": "upsert",
        "primary.key.mode": "record_key",
        "delete.enabled": "true",
        "truncate.enabled": "true",
        "schema.evolution": "basic",
        "collection.name.format": f"theirs_{shop.name}.${{source.table}}",
    }


SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}


def test_changes_of_postgresql_reach_debeziums_sink_through_apache_kafka(spark: SparkSession, tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path)
    with PostgresServer() as postgres, kafka.running():
        shop = PostgresShop(postgres)
        shop.create(ROWS)
        capture_changes(spark, tmp_path, kafka, [shop])
        compare_theirs(tmp_path, kafka, postgres, [shop])


@pytest.mark.slow
def test_changes_of_both_databases_reach_our_sinks_and_debeziums_through_apache_kafka(
    spark: SparkSession, tmp_path: Path
) -> None:
    kafka = ApacheKafka(tmp_path)
    with PostgresServer() as postgres, MariaDbServer() as mariadb, kafka.running():
        shops = [PostgresShop(postgres), MariaDbShop(mariadb)]
        for shop in shops:
            shop.create(ROWS)
            shop.create_copies()
        capture_changes(spark, tmp_path, kafka, shops)
        for source, target in (shops, shops[::-1]):
            topics = ",".join(map(source.topic, source.tables))
            reading = _cluster(kafka) | {"subscribe": topics, "startingOffsets": "earliest"}
            writing = target.sink_options() | SCHEMAS
            writing |= {"fields.include": ",".join(source.copied), "auto.evolve": "true"}
            run(spark, tmp_path / f"{source.name}-copy", reading, writing)
            compare_copies(source, target)
        compare_theirs(tmp_path, kafka, postgres, shops)


def capture_changes(spark: SparkSession, folder: Path, kafka: ApacheKafka, shops: Sequence[Shop]) -> None:
    """Capture the snapshot of each shop, change its tables, and capture the changes."""
    for seed, shop in enumerate(shops):
        for turn in range(2):
            writing = _cluster(kafka) | {"includeHeaders": "true"}
            run(spark, folder / shop.name, capture(shop, folder) | SCHEMAS, writing)
            if turn == 0:
                change(shop, random.Random(seed))


def compare_theirs(folder: Path, kafka: ApacheKafka, postgres: PostgresServer, shops: Sequence[Shop]) -> None:
    """Let Debezium's sink copy the topics of the shops into PostgreSQL, and compare its tables with the sources."""
    with KafkaConnect(folder / "connect", kafka.bootstrap, "jdbc", schemas=True) as connect:
        with psycopg.connect(postgres.conninfo, autocommit=True) as session:
            for shop in shops:
                session.execute(f"CREATE SCHEMA theirs_{shop.name}")
                connect.create(shop.name, their_sink(postgres, shop))
        for shop in shops:
            for table, names in THEIR_COLUMNS[shop.name].items():
                wait_for_copy(shop, PostgresShop(postgres), connect, table, names)


def _cluster(kafka: ApacheKafka) -> dict[str, str]:
    return {"format": "barnabas", "kafka.bootstrap.servers": kafka.bootstrap}


def capture(shop: Shop, folder: Path) -> dict[str, str]:
    return shop.options(folder) | {
        "decimal.handling.mode": "precise",
        "skipped.operations": "none",
        "column.exclude.list": rf"shop\.kinds\.({LEFT_OUT[shop.name]})",
    }


def compare_copies(source: Shop, target: Shop) -> None:
    """Our copies of the tables. A truncate has no meaning for our sink, so the table of marks has older rows, too."""
    for table, columns in (("kinds", source.columns), ("marks", source.tables["shop.marks"])):
        names = ["version", *(name for name in source.copied if name in columns)]
        names = list(dict.fromkeys(names))
        found, wanted = target.values(f"copies.{table}", names), source.values(f"shop.{table}", names)
        assert {key: found.get(key) for key in wanted} == wanted
        assert table == "marks" or found.keys() == wanted.keys()


def wait_for_copy(shop: Shop, target: Shop, connect: KafkaConnect, table: str, names: Sequence[str]) -> None:
    """Return when Debezium's copy of a table is equal to the table. Fails if its task fails."""
    wanted = _plain(shop.values(f"shop.{table}", names))

    def found() -> dict[int, tuple[Any, ...]]:
        try:
            return _plain(target.values(f"theirs_{shop.name}.{table}", names))
        except psycopg.errors.UndefinedTable:
            return {}  # until the first record of the table

    def differences() -> list[Any]:
        copy = found()
        keys = sorted(copy.keys() | wanted.keys())
        return [(key, copy.get(key), wanted.get(key)) for key in keys if copy.get(key) != wanted.get(key)]

    wait_until(
        lambda: connect.failure() is not None or not differences(),
        f"Debezium's copy of {table} of {shop.name} is equal",
        progress=lambda: str(differences()),
        patience_s=60,
    )
    failure = connect.failure()
    assert failure is None, failure


def _plain(rows: dict[int, tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """The values as texts and numbers, which do not depend on the types of the columns that Debezium creates."""
    return {key: tuple(map(_plain_value, values)) for key, values in rows.items()}


def _plain_value(value: Any) -> Any:
    if value is None or isinstance(value, float | int | Decimal | bytes):
        return value
    return bytes(value) if isinstance(value, memoryview | bytearray) else str(value)
