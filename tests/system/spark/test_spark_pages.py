"""Every Python block of the pages about Spark runs, in order, and prints what stands under it.

A block that starts streaming queries is followed by a wait until they have read all records that exist, so that the
next block can read their results. A page lists its topics and the addresses of a cluster and a registry as its reader
would have them; the test replaces the addresses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas.spark.source.lag import with_lag
from tests.system.pages import DOCS, run_page
from tests.system.registry.conftest import RunningRegistry

PAGES = ["SPARK.md"]


def offsets_behind(query: StreamingQuery) -> int:
    """The largest lag of the query's sources in the last progress report; 1 before the first report."""
    if query.lastProgress is None:
        return 1
    sources = with_lag(json.loads(query.lastProgress.json))["sources"]
    return max(int(source["metrics"].get("maxOffsetsBehindLatest", 0)) for source in sources)


@pytest.fixture
def registry(servers: str, topic: str) -> Iterator[RunningRegistry]:
    with RunningRegistry(servers, f"_schemas-{topic}") as running:
        yield running


@pytest.mark.system
@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_of_the_page_run_and_print_the_shown_output(
    page: str,
    spark: SparkSession,
    servers: str,
    registry: RunningRegistry,
    tmp_path: Path,
) -> None:
    def finish_streams() -> None:
        for query in spark.streams.active:
            query.processAllAvailable()  # may return after the first micro-batch, which is empty
            while offsets_behind(query):
                query.processAllAvailable()
        if not spark.streams.active:
            spark.streams.awaitAnyTermination(1)  # raises the exception of a query that has failed

    spark.streams.resetTerminated()
    addresses = {
        "127.0.0.1:9092": servers,
        "http://127.0.0.1:8081": registry.url,
        '"checkpoints/': f'"{tmp_path}/',  # for Spark, a relative path begins where the JVM was started
    }
    try:
        run_page(DOCS / page, addresses, {"spark": spark}, finish_streams)
    finally:
        for query in spark.streams.active:
            query.stop()


@pytest.mark.system
def test_the_pipeline_of_the_readme_reads_a_topic(spark: SparkSession, servers: str, topic: str) -> None:
    places = {"127.0.0.1:9092": servers, '"flights")': f'"{topic}")'}
    names = run_page(DOCS.parent / "README.md", places, {"spark": spark}, section="## A Spark pipeline")
    flights: Any = names["flights"]
    assert flights.isStreaming
    assert flights.columns[:2] == ["key", "value"]
