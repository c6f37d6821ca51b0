"""Two clusters for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.connection import LogClient
from barnabas.testing.process import BrokerProcess
from tests.system.spark.broker import Topics
from tests.system.spark.mirror.clusters import CLEANING, OFFSETS, OFFSETS_PARTITIONS, Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def mirrored_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("mirror")
    with BrokerProcess(folder / "a", settings=CLEANING) as a, BrokerProcess(folder / "b") as b:
        yield a.bootstrap_servers, b.bootstrap_servers


@pytest.fixture
def pair(spark: SparkSession, mirrored_servers: tuple[str, str]) -> Iterator[Pair]:
    clients = [LogClient({"bootstrap.servers": servers}) for servers in mirrored_servers]
    source, target = (Topics(servers, client) for servers, client in zip(mirrored_servers, clients, strict=True))
    if OFFSETS not in clients[1].run(clients[1].cluster.all_topics()):
        target.create(OFFSETS, OFFSETS_PARTITIONS, cleanup_policy="compact")
    yield Pair(spark, mirrored_servers, source, target)
    for client in clients:
        client.close()
