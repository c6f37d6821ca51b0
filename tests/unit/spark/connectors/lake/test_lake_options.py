"""Options of lake tables: what is refused, catalogs and partitions; and what a Delta commit says of its files."""

from __future__ import annotations

import datetime
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.spark.connectors.lake.columns import new_columns
from barnabas.spark.connectors.lake.delta_files import column_statistics, partition_directory, partition_slices
from barnabas.spark.connectors.lake.errors import LakeError
from barnabas.spark.connectors.lake.options import (
    LakeKind,
    PartitionField,
    catalog_properties,
    parse_lake_options,
    parse_partitions,
)
from barnabas.spark.errors import OptionError


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (LakeKind.DELTA, {}, "path must be given"),
        (LakeKind.DELTA, {"path": "/t", "table": "a.b"}, "give the table's location as path"),
        (LakeKind.DELTA, {"path": "/t", "catalog.uri": "x"}, r"leave the options catalog\.\* out"),
        (LakeKind.DELTA, {"path": "/t", "partition.by": "day(at)"}, "partitioned by columns only"),
        (LakeKind.DELTA, {"path": "/t", "insert.mode": "upsert"}, "insert.mode=upsert needs a key"),
        (LakeKind.DELTA, {"path": "/t", "auto.evole": "true"}, "did you mean auto.evolve"),
        (LakeKind.DELTA, {"path": "/t", "stagingLocation": "/s"}, "the table's own directory"),
        (LakeKind.ICEBERG, {"table": "t", "catalog.warehouse": "/w"}, "a namespace and a name, such as shop.t"),
        (LakeKind.ICEBERG, {"table": "a.t"}, "needs a catalog"),
        (LakeKind.ICEBERG, {"table": "a.t", "catalog.warehouse": "s3://b/w"}, "also give catalog.uri"),
    ],
)
def test_options_that_cannot_work_are_refused(kind: LakeKind, given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_lake_options(kind, given)


def test_a_warehouse_has_a_sqlite_catalog_and_an_address_is_a_rest_catalog() -> None:
    assert catalog_properties({"warehouse": "/w"}) == {
        "name": "barnabas",
        "type": "sql",
        "uri": "sqlite:////w/catalog.db",
        "warehouse": "file:///w",
    }
    assert catalog_properties({"uri": "http://h:8181", "name": "n"}) == {
        "name": "n",
        "type": "rest",
        "uri": "http://h:8181",
    }


def test_partitions_are_columns_and_transforms() -> None:
    assert parse_partitions("region, day(created) ,bucket(16, id)") == (
        PartitionField("region"),
        PartitionField("created", "day"),
        PartitionField("id", "bucket", 16),
    )
    with pytest.raises(OptionError, match="not understood at 'bucket"):
        parse_partitions("bucket(id)")


@pytest.mark.parametrize(
    ("given", "known", "fits"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.float32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.int64(), pa.decimal128(20, 0), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), True),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), True),
        (pa.decimal128(10, 2), pa.decimal128(11, 4), False),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC"), True),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64()), ("b", pa.string())]), True),
        (pa.struct([("c", pa.int32())]), pa.struct([("a", pa.int64())]), False),
    ],
)
def test_a_column_fits_if_the_table_holds_all_of_its_values(given: Any, known: Any, fits: bool) -> None:
    table, rows = pa.schema([("c", known)]), pa.schema([("c", given)])
    if fits:
        assert new_columns(table, rows) == []
    else:
        with pytest.raises(LakeError, match="cast it to"):
            new_columns(table, rows)


def test_names_that_differ_in_case_are_refused() -> None:
    with pytest.raises(LakeError, match="differ only in case"):
        new_columns(pa.schema([("id", pa.int64())]), pa.schema([("ID", pa.int64())]))


def test_statistics_are_bounds_and_nulls_of_a_file() -> None:
    utc = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
    columns: dict[str, tuple[Any, list[Any]]] = {
        "i": (pa.int64(), [3, None, -1]),
        "s": (pa.string(), ["b", "a", "z" * 100]),
        "d": (pa.date32(), [datetime.date(2026, 1, 1)] * 3),
        "t": (pa.timestamp("us", "UTC"), [utc, utc, None]),
        "f": (pa.float64(), [1.5, float("inf"), 0.0]),
        "n": (pa.decimal128(9, 2), [Decimal("1.00")] * 3),
        "empty": (pa.int32(), [None] * 3),
        "b": (pa.bool_(), [True, False, True]),
    }
    table = pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=2)
    found = column_statistics(pq.ParquetFile(out).metadata, table.schema)
    assert found == {
        "numRecords": 3,
        "minValues": {"i": -1, "d": "2026-01-01", "t": "2026-01-02T03:04:05.000006Z"},
        "maxValues": {"i": 3, "d": "2026-01-01", "t": "2026-01-02T03:04:05.000006Z"},
        "nullCount": {"i": 1, "s": 0, "d": 0, "t": 1, "f": 0, "n": 0, "empty": 3, "b": 0},
    }


def test_rows_are_divided_by_all_partition_values() -> None:
    table = pa.table({"p": ["x", None, "x", "y"], "q": [True, False, True, None], "id": [1, 2, 3, 4]})
    found = [(values, part["id"].to_pylist()) for values, part in partition_slices(table, ["p", "q"])]
    assert sorted(found, key=lambda each: each[1]) == [
        ({"p": "x", "q": "true"}, [1, 3]),
        ({"p": None, "q": "false"}, [2]),
        ({"p": "y", "q": None}, [4]),
    ]
    assert partition_directory({"p": "a/b c", "q": None}) == "p=a%2Fb c/q=__HIVE_DEFAULT_PARTITION__/"


@pytest.mark.parametrize(("zone", "end"), [(None, ""), ("UTC", "Z")])
def test_the_bounds_of_times_before_the_year_1000_have_four_digits(zone: str | None, end: str) -> None:
    found = [datetime.datetime(999, 1, 2, 3, 4, 5, 6), datetime.datetime(1, 1, 1)]
    table = pa.table({"at": pa.array(found, pa.timestamp("us")).cast(pa.timestamp("us", zone))})
    out = io.BytesIO()
    pq.write_table(table, out)
    statistics = column_statistics(pq.ParquetFile(out).metadata, table.schema)
    assert statistics["minValues"] == {"at": f"0001-01-01T00:00:00.000000{end}"}
    assert statistics["maxValues"] == {"at": f"0999-01-02T03:04:05.000006{end}"}
