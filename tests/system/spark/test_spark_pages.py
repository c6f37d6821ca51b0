"""Every Python block of the pages about Spark runs, in order, and prints what stands under it.

A block that starts streaming queries is followed by a wait until they have read all records that exist, so that the
next block can read their results. A page lists its topics and the addresses of a cluster and a registry as its reader
would have them; the test replaces the addresses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.system.pages import DOCS, run_page
from tests.system.registry.conftest import RunningRegistry

PAGES = ["SPARK.md"]


@pytest.fixture
def registry(servers: str, topic: str) -> Iterator[RunningRegistry]:
    with RunningRegistry(servers, f"_schemas-{topic}") as running:
        yield running


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_of_the_page_run_and_print_the_shown_output(
    page: str,
    spark: SparkSession,
    servers: str,
    registry: RunningRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # checkpoints have relative paths

    def finish_streams() -> None:
        for query in spark.streams.active:
            query.processAllAvailable()

    addresses = {"127.0.0.1:9092": servers, "http://127.0.0.1:8081": registry.url}
    try:
        run_page(DOCS / page, addresses, {"spark": spark}, finish_streams)
    finally:
        for query in spark.streams.active:
            query.stop()
