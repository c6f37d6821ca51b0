"""The database servers of the tests of connectors. Each starts once a session; a module uses it by a fixture."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.environment import prepare_environment
from barnabas.testing.databases import MariaDbServer, MySqlServer, PostgresServer
from tests.system.connectors.mysql_sources import InstalledMySql, missing_mysql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that every test of the session shares: use a database or table names of your own."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    """A MariaDB server that every test of the session shares: use a database or table names of your own."""
    with MariaDbServer() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySqlServer]:
    """A MySQL server that every test of the session shares. Without one, the test is skipped."""
    if missing := missing_mysql():
        pytest.skip(missing)
    with InstalledMySql() as server:
        yield server


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of the process; one that this module has started ends with it."""
    prepare_environment()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()  # of another folder's tests
    on_interrupt = signal.getsignal(signal.SIGINT)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # a short life
        .config("spark.ui.enabled", False)
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    if running is None:
        session.stop()
        signal.signal(signal.SIGINT, on_interrupt)  # Spark's own handler fails once Spark has stopped
