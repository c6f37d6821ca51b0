"""Tables and files in an S3-compatible store: commits, commits that are repeated, and files that do not count."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.spark.connectors.lake.s3_server import S3Server

from barnabas.spark.connectors.files.options import parse_file_sink
from barnabas.spark.connectors.files.target import DirectoryTarget
from barnabas.spark.connectors.lake.options import LakeKind, parse_lake_options
from barnabas.spark.connectors.lake.reading import DeltaReading, IcebergReading
from barnabas.spark.connectors.lake.target import LakeTarget
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, SinkTarget, StagedPart, TableRows

QUERY = str(uuid.UUID(int=7))
UPSERT = {"insert.mode": "upsert", "pk.fields": "id"}


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def stage(target: SinkTarget, table: str, batch: int, *ids: int, keys: tuple[str, ...] = ()) -> list[StagedPart]:
    opened = target.open_stage(AttemptId(QUERY, "run", batch, 0, 0))
    rows = pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "n": pa.array([batch] * len(ids), pa.int64())})
    opened.add(TableRows(table, rows, keys, None, pa.array(range(len(ids)), pa.int64()), 0))
    return opened.finish()


def drive(target: SinkTarget, table: str, keys: tuple[str, ...] = ()) -> None:
    """Two micro-batches; the first one has an attempt that lost, and is repeated."""
    stage(target, table, 0, 99, keys=keys)
    target.publish(BatchId(QUERY, 0), stage(target, table, 0, 1, 2, keys=keys))
    target.publish(BatchId(QUERY, 0), stage(target, table, 0, 1, 2, keys=keys))
    target.publish(BatchId(QUERY, 1), stage(target, table, 1, 2, 3, keys=keys))


def rows_of(reading: Any) -> list[tuple[int, int]]:
    batches = [batch for task in reading.tasks() for batch in reading.batches(task.paths)]
    return sorted((row["id"], row["n"]) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("mode", [{}, UPSERT], ids=["insert", "upsert"])
def test_a_delta_table_is_written_in_s3(s3: S3Server, mode: dict[str, str]) -> None:
    given = {
        "path": "s3://lake/orders",
        "storage.aws_endpoint_url": s3.url,
        "storage.aws_access_key_id": "key",
        "storage.aws_secret_access_key": "secret",
        "storage.aws_region": "us-east-1",
        "storage.aws_allow_http": "true",
    }
    options = parse_lake_options(LakeKind.DELTA, {**given, **mode})
    drive(LakeTarget(options), "s3://lake/orders", options.rows.key_fields)
    expected = [(1, 0), (2, 1), (3, 1)] if mode else [(1, 0), (2, 0), (2, 1), (3, 1)]
    assert rows_of(DeltaReading("s3://lake/orders", options.storage, None)) == expected
    assert [key for key in s3.objects() if "_barnabas" in key and not key.endswith("/")] == []


def test_an_iceberg_table_is_written_in_s3(s3: S3Server, tmp_path: Path) -> None:
    given = {
        "table": "shop.orders",
        "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
        "catalog.warehouse": "s3://lake/warehouse",
        "catalog.s3.endpoint": s3.url,
        "catalog.s3.access-key-id": "key",
        "catalog.s3.secret-access-key": "secret",
        "catalog.s3.region": "us-east-1",
    }
    options = parse_lake_options(LakeKind.ICEBERG, given)
    drive(LakeTarget(options), "shop.orders")
    assert rows_of(IcebergReading("shop.orders", options.catalog, None)) == [(1, 0), (2, 0), (2, 1), (3, 1)]
    assert [key for key in s3.objects() if "_barnabas" in key and not key.endswith("/")] == []


def test_files_land_in_s3(s3: S3Server) -> None:
    given = {
        "path": "s3://lake/landing",
        "file.format": "json",
        "storage.aws_endpoint_url": s3.url,
        "storage.aws_access_key_id": "key",
        "storage.aws_secret_access_key": "secret",
    }
    drive(DirectoryTarget(parse_file_sink(given)), "s3://lake/landing")
    files = {key: content for key, content in s3.objects().items() if "_barnabas" not in key and content}
    assert b"".join(files.values()) == b'{"id":1,"n":0}\n{"id":2,"n":0}\n{"id":2,"n":1}\n{"id":3,"n":1}\n'
    assert all(key.endswith(".json") for key in files)
