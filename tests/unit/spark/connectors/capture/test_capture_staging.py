"""Staged snapshots: complete with the manifest or not there at all, and read as they were written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.spark.connectors.capture import staging as staging_module
from barnabas.spark.connectors.capture.errors import StagingError
from barnabas.spark.connectors.capture.manifest import StagedFile, arrow_schema_of, table_schema_of
from barnabas.spark.connectors.capture.snapshot_rows import snapshot_words
from barnabas.spark.connectors.capture.staging import open_staging
from barnabas.spark.connectors.events.changes import ColumnSchema, Meaning, TableSchema

COLUMNS = (
    ColumnSchema("id", pa.int64(), False),
    ColumnSchema("state", pa.string(), True, Meaning.ENUM, allowed=("new", "done")),
    ColumnSchema("at", pa.timestamp("us"), digits=3),
)
ORDERS = TableSchema("shop", "public", "orders", COLUMNS, (0,))
POSITION = {"lsn": "0/1"}


def batch(first: int, rows: int) -> pa.RecordBatch:
    ids = pa.array(range(first, first + rows), pa.int64())
    return pa.RecordBatch.from_arrays(
        [ids, pa.array(["new"] * rows), pa.nulls(rows, pa.timestamp("us"))], names=["id", "state", "at"]
    )


def test_a_table_survives_the_schema_of_its_files() -> None:
    assert table_schema_of(arrow_schema_of(ORDERS)) == ORDERS


def test_a_snapshot_is_not_there_before_its_manifest(tmp_path: Path) -> None:
    staging = open_staging(str(tmp_path / "s"))
    assert not staging.was_begun("db")
    writer = staging.begin("db")
    writer.write(ORDERS, [batch(0, 3)])
    assert staging.read_manifest("db") is None
    assert staging.was_begun("db")
    manifest = writer.manifest(POSITION, 7)
    staging.complete(manifest)
    assert open_staging(f"file://{tmp_path}/s").read_manifest("db") == manifest


def test_a_new_snapshot_deletes_what_an_unfinished_one_left(tmp_path: Path) -> None:
    staging = open_staging(str(tmp_path))
    staging.begin("db").write(ORDERS, [batch(0, 3)])
    (left,) = tmp_path.glob("*/*.arrow")
    writer = staging.begin("db")
    assert not left.exists()
    assert writer.manifest(POSITION, 0).files == ()


def test_files_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_module, "STAGED_FILE_BYTES_MAX", 1)
    staging = open_staging(str(tmp_path))
    writer = staging.begin("db")
    writer.write(ORDERS, [batch(0, 3), batch(3, 2)])
    files = writer.manifest(POSITION, 0).files
    assert [(file.rows, file.rows_before, file.is_last) for file in files] == [(3, 0, False), (2, 3, True)]
    table, batches = staging.read_file(files[1])
    assert table == ORDERS
    assert [one.column("id").to_pylist() for one in batches] == [[3, 4]]


def test_files_grow_with_the_table_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = batch(0, 10).nbytes
    monkeypatch.setattr(staging_module, "STAGED_FILE_BYTES_MIN", 2 * size)
    monkeypatch.setattr(staging_module, "STAGED_FILE_BYTES_MAX", 4 * size)
    writer = open_staging(str(tmp_path)).begin("db")
    writer.write(ORDERS, [batch(10 * number, 10) for number in range(28)])
    files = writer.manifest(POSITION, 0).files
    assert [file.rows // 10 for file in files] == [2, 2, 2, 2, 2, 3, 4, 4, 4, 3]
    assert sum(file.bytes for file in files) == 28 * size


def test_the_rows_can_be_deleted_and_the_manifest_stays(tmp_path: Path) -> None:
    staging = open_staging(str(tmp_path))
    writer = staging.begin("db")
    writer.write(ORDERS, [batch(0, 3)])
    manifest = writer.manifest(POSITION, 0)
    staging.complete(manifest)
    assert not staging.is_read(manifest)
    staging.remove_files()
    staging.remove_files()
    assert staging.is_read(manifest)
    assert staging.read_manifest("db") == manifest
    with pytest.raises(StagingError, match="share this directory"):
        staging.read_file(manifest.files[0])


def test_the_directory_of_another_source_is_refused(tmp_path: Path) -> None:
    staging = open_staging(str(tmp_path))
    staging.begin("one")
    with pytest.raises(StagingError, match="a directory of its own"):
        staging.was_begun("two")


def test_a_damaged_manifest_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(StagingError, match=r"manifest\.json cannot be read"):
        open_staging(str(tmp_path)).read_manifest("db")


def test_rows_know_their_place_in_the_snapshot(tmp_path: Path) -> None:
    files = (StagedFile("a", "t", 3, 1, 0, True), StagedFile("b", "u", 2, 1, 0, True))
    writer = open_staging(str(tmp_path)).begin("db")
    manifest = writer.manifest(POSITION, 0)
    from msgspec import structs

    manifest = structs.replace(manifest, files=files)
    assert snapshot_words(manifest, 0, 0, 3).to_pylist() == ["first", "true", "last_in_data_collection"]
    assert snapshot_words(manifest, 1, 0, 1).to_pylist() == ["first_in_data_collection"]
    assert snapshot_words(manifest, 1, 1, 1).to_pylist() == ["last"]
