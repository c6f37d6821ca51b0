"""`readFrom=segments` on directories that Apache Kafka has written: the same rows as through that Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark.connection import LogClient
from tests.interop.apache_kafka import ApacheKafka
from tests.system.spark.broker import Topics
from tests.system.spark.segment_reads import check_both_ways, fill, record_fetches

pytestmark = pytest.mark.interop


def test_closed_segments_of_apache_kafka_have_the_rows_of_its_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApacheKafka(tmp_path).running() as kafka:
        client = LogClient({"bootstrap.servers": kafka.bootstrap})
        try:
            fill(Topics(kafka.bootstrap, client), "orders")
        finally:
            client.close()
        check_both_ways(
            {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "orders"}, record_fetches(monkeypatch)
        )
