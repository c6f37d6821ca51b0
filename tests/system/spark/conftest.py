"""One Spark session and one broker for all tests here; a session takes five seconds to start."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.connection import LogClient
from barnabas.spark.environment import prepare_environment
from barnabas.testing.process import BrokerProcess
from tests.system.spark.broker import Topics
from tests.system.spark.pipeline_projects import Write, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_names = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    prepare_environment()
    from pyspark.sql import SparkSession

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
    session.stop()
    signal.signal(signal.SIGINT, on_interrupt)  # Spark's own handler fails once Spark has stopped


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`BARNABAS_TEST_SERVERS` runs the same tests against another cluster."""
    given = os.environ.get("BARNABAS_TEST_SERVERS")
    if given:
        yield given
        return
    with BrokerProcess(tmp_path_factory.mktemp("spark") / "data") as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def topics(servers: str) -> Iterator[Topics]:
    client = LogClient({"bootstrap.servers": servers})
    yield Topics(servers, client)
    client.close()


@pytest.fixture
def topic() -> str:
    """A topic name of the test's own; the topic does not exist yet."""
    return f"spark-{os.getpid()}-{next(_names)}"


@pytest.fixture
def transactions(topics: Topics) -> None:
    """Skips a test on a cluster that serves no transactions."""
    if not topics.has_transactions():
        pytest.skip("the broker does not serve transactions")


@pytest.fixture
def options(servers: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "subscribe": topic}


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of pipelines is in a directory of the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def clean_catalog(spark: SparkSession, state_home: None) -> Iterator[None]:
    yield
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} IF EXISTS `{table.name}`")


@pytest.fixture
def write(tmp_path: Path, clean_catalog: None) -> Write:
    """Writes a project of a pipeline with these files."""
    return lambda files: write_files(tmp_path, files)


@pytest.fixture
def run_now(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Callable[..., list[dict[str, object]]]:
    """Runs a streaming query over the topic to its end; returns the progress reports. Rows go to `tmp_path/rows`."""

    def run(**more: str) -> list[dict[str, object]]:
        stream = spark.readStream.format("barnabas").options(**{**options, **more}).load()
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240), "the query does not end"
        return [progress if isinstance(progress, dict) else progress.jsonValue for progress in query.recentProgress]

    return run
