"""Spark copies records between Apache Kafka, an older Apache Kafka, and our broker: equal, once, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.connection import LogClient
from barnabas.spark.environment import prepare_environment
from barnabas.testing.process import BrokerProcess
from tests.interop.apache_kafka import ApacheKafka
from tests.interop.jars import KAFKA_VERSION, OLDER_VERSION
from tests.system.spark.broker import Topics
from tests.system.spark.mirror import test_mirror_copying as copying
from tests.system.spark.mirror.clusters import CLEANING, OFFSETS, OFFSETS_PARTITIONS, Pair

pytestmark = pytest.mark.interop

OURS = "barnabas"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    prepare_environment()
    session = (
        SparkSession.builder.master("local[2]")
        .appName("mirror")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The addresses of the clusters, by their programs."""
    folder = tmp_path_factory.mktemp("clusters")
    (folder / "older").mkdir()
    (folder / "newer").mkdir()
    with (
        ApacheKafka(folder / "older", CLEANING, version=OLDER_VERSION).running() as older,
        ApacheKafka(folder / "newer", CLEANING, version=KAFKA_VERSION).running() as newer,
        BrokerProcess(folder / "ours", settings=CLEANING) as ours,
    ):
        yield {OLDER_VERSION: older.bootstrap, KAFKA_VERSION: newer.bootstrap, OURS: ours.bootstrap_servers}


@pytest.fixture(
    params=[
        (OLDER_VERSION, KAFKA_VERSION),
        (KAFKA_VERSION, OLDER_VERSION),
        (KAFKA_VERSION, OURS),
        (OURS, KAFKA_VERSION),
    ],
    ids="-to-".join,
)
def pair(request: pytest.FixtureRequest, spark: SparkSession, clusters: Mapping[str, str]) -> Iterator[Pair]:
    servers = (clusters[request.param[0]], clusters[request.param[1]])
    clients = [LogClient({"bootstrap.servers": address}) for address in servers]
    source, target = (Topics(address, client) for address, client in zip(servers, clients, strict=True))
    if OFFSETS not in clients[1].run(clients[1].cluster.all_topics()):
        target.create(OFFSETS, OFFSETS_PARTITIONS, cleanup_policy="compact")
    yield Pair(spark, servers, source, target)
    for client in clients:
        client.close()


@pytest.mark.timeout(300)
def test_records_come_out_equal_and_once(pair: Pair) -> None:
    """Each codec, headers, null keys and values, aborted transactions, a growing topic, a second copier."""
    copying.test_records_come_out_equal_and_once(pair, f"orders-{uuid4().hex[:8]}")


@pytest.mark.timeout(300)
def test_a_topic_that_is_created_anew_is_noticed(pair: Pair) -> None:
    copying.test_a_topic_that_is_created_anew_stops_the_copier_or_is_copied_from_its_beginning(
        pair, f"again-{uuid4().hex[:8]}", 9
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "test",
    [
        copying.test_a_compacted_log_is_copied_with_its_holes_and_times,
        copying.test_records_that_retention_deletes_are_reported,
        copying.test_a_copier_continues_where_mirror_maker_stopped,
        copying.test_at_least_once_writes_no_transactions_and_copies_what_is_uncommitted,
        copying.test_equal_names_do_not_echo,
    ],
    ids=lambda test: test.__name__.removeprefix("test_"),
)
def test_other_topics_and_settings(pair: Pair, test: Callable[[Pair, str], None]) -> None:
    test(pair, f"other-{uuid4().hex[:8]}")
