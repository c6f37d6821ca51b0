"""Delta and Iceberg tables without Spark: tasks write, a driver commits, and each of them dies at every point."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.lake.changes import KeyedRows, check_required, fold, nulls_of
from barnabas.spark.connectors.lake.errors import LakeError
from barnabas.spark.connectors.lake.options import LakeKind, LakeOptions, parse_lake_options
from barnabas.spark.connectors.lake.ports import Changes, Commit, LakeTable
from barnabas.spark.connectors.lake.target import LakeStage, LakeTarget
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, StagedPart, TableRows
from barnabas.spark.delivery.identity import LedgerEntry
from barnabas.spark.errors import DeliveryError

QUERY = "6f1e3c8a-0000-4000-8000-000000000001"
NOW = datetime.datetime(2026, 11, 23, 10, 0, 0, 123456, datetime.UTC)
KINDS = [LakeKind.DELTA, LakeKind.ICEBERG]


class Lake:
    """One table of either kind, and the micro-batches of a query that writes it."""

    def __init__(self, kind: LakeKind, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.target = LakeTarget(self.options())

    def options(self, **more: str) -> LakeOptions:
        given = {"path": str(self.folder / "t")}
        if self.kind is LakeKind.ICEBERG:
            given = {"table": "shop.t", "catalog.warehouse": str(self.folder)}
        return parse_lake_options(self.kind, {**given, **{name.replace("_", "."): text for name, text in more.items()}})

    def use(self, **more: str) -> None:
        self.target = LakeTarget(self.options(**more))

    @property
    def name(self) -> str:
        return self.target.options.rows.table_format

    def stage(self, batch: int, *tables: Any, partition: int = 0, deleted: Any = None, query: str = QUERY) -> LakeStage:
        """A task attempt that has got the rows of these tables."""
        stage = self.target.open_stage(AttemptId(query, "run", batch, partition, 0))
        assert isinstance(stage, LakeStage)
        order = 0
        for step, table in enumerate(tables):
            for each in table.combine_chunks().to_batches():
                marks = None if deleted is None else pa.array(deleted)
                orders = pa.array(range(order, order + each.num_rows), pa.int64())
                order += each.num_rows
                stage.add(TableRows(self.name, each, self.target.options.rows.key_fields, marks, orders, step))
        return stage

    def write(self, batch: int, *tables: Any, deleted: Any = None, query: str = QUERY) -> None:
        """A micro-batch without faults."""
        parts = self.stage(batch, *tables, deleted=deleted, query=query).finish()
        self.target.publish(BatchId(query, batch), parts)

    def table(self) -> LakeTable:
        table = self.target._open(self.name, None)
        assert table is not None
        return table

    def rows(self) -> list[dict[str, Any]]:
        if self.kind is LakeKind.DELTA:
            from deltalake import DeltaTable

            found = DeltaTable(self.name).to_pyarrow_table()
        else:
            from barnabas.spark.connectors.lake.iceberg import open_catalog

            found = open_catalog(self.target.options.catalog).load_table(self.name).scan().to_arrow()
        key = found.column_names[0]
        return sorted(found.to_pylist(), key=lambda row: (row[key] is None, row[key]))

    def files(self) -> list[str]:
        """The data files in the table's directory, whether they belong to the table or not."""
        return [
            path for path in self.table().storage.list("") if path.endswith(".parquet") and "_delta_log" not in path
        ]

    def beside(self) -> list[str]:
        """The notes and the staged files."""
        return self.table().storage.list("_barnabas")


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name.lower())
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path)


def rows(*ids: int, **columns: Any) -> Any:
    return pa.table({"id": pa.array(ids, pa.int64()), **columns})


def ids(lake: Lake) -> list[int]:
    return [row["id"] for row in lake.rows()]


def test_rows_of_all_tasks_are_appended_in_one_commit(lake: Lake) -> None:
    parts = [*lake.stage(0, rows(1, 2)).finish(), *lake.stage(0, rows(3), partition=1).finish()]
    lake.target.publish(BatchId(QUERY, 0), parts)
    assert ids(lake) == [1, 2, 3]
    assert lake.table().committed_batch(QUERY) == LedgerEntry(0, marks=lake.table().marks)
    assert len(lake.files()) == 2
    assert lake.beside() == []
    assert list(lake.folder.rglob(f"{QUERY}/*")) == []


def test_a_commit_that_is_repeated_adds_nothing(lake: Lake) -> None:
    parts = lake.stage(0, rows(1, 2)).finish()
    lake.target.publish(BatchId(QUERY, 0), parts)
    again = lake.stage(0, rows(1), rows(2)).finish()
    lake.target.publish(BatchId(QUERY, 0), again)
    assert ids(lake) == [1, 2]
    assert len(lake.files()) == 1
    assert lake.beside() == []


def test_files_of_a_driver_that_died_before_its_commit_are_removed_by_the_next_commit(lake: Lake) -> None:
    lake.write(0, rows(1))
    lake.stage(1, rows(2, 3)).finish()  # the driver dies here
    lake.write(1, rows(2, 3))
    assert ids(lake) == [1, 2, 3]
    assert len(lake.files()) == 2
    assert lake.beside() == []


def test_files_of_a_losing_attempt_are_removed(lake: Lake) -> None:
    lake.stage(0, rows(1)).finish()
    parts = lake.stage(0, rows(1)).finish()
    lake.target.publish(BatchId(QUERY, 0), parts)
    assert ids(lake) == [1]
    assert len(lake.files()) == 1


def test_files_of_a_micro_batch_that_is_not_committed_are_kept(lake: Lake) -> None:
    """Another driver of the query may still commit them."""
    later = lake.stage(1, rows(2)).finish()
    lake.write(0, rows(1))
    lake.target.publish(BatchId(QUERY, 1), later)
    assert ids(lake) == [1, 2]


def test_a_driver_that_died_between_its_commit_and_the_removal_leaves_the_committed_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("barnabas.spark.connectors.lake.target.sweep", die)
    lake.stage(0, rows(9)).finish()  # an attempt that lost
    parts = lake.stage(0, rows(1)).finish()
    with pytest.raises(KeyboardInterrupt):
        lake.target.publish(BatchId(QUERY, 0), parts)
    monkeypatch.undo()
    lake.write(0, rows(1))
    assert ids(lake) == [1]
    assert len(lake.files()) == 1
    assert lake.beside() == []


def test_two_drivers_of_one_query_commit_a_micro_batch_once(lake: Lake) -> None:
    lake.write(0, rows(0))
    first = lake.stage(1, rows(1)).finish()
    second = lake.stage(1, rows(1)).finish()
    tables = [lake.table(), lake.table()]
    assert [table.committed_batch(QUERY) for table in tables] == [LedgerEntry(0, marks=lake.table().marks)] * 2
    start = threading.Barrier(2)

    def publish(parts: list[StagedPart]) -> None:
        start.wait()
        lake.target.publish(BatchId(QUERY, 1), parts)

    threads = [threading.Thread(target=publish, args=(parts,)) for parts in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(lake) == [0, 1]


def test_a_stale_table_does_not_commit_a_micro_batch_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other driver commits after this one has looked for the micro-batch: the catalog or the log must refuse."""
    lake.write(0, rows(0))
    parts = lake.stage(1, rows(1)).finish()
    table = lake.table()
    refresh = "update_incremental" if lake.kind is LakeKind.DELTA else "refresh"
    inner: Any = table._table  # type: ignore[attr-defined]
    original: Callable[[], Any] = getattr(type(inner), refresh)
    raced = []

    def race(self: Any) -> Any:
        found = original(self)
        if self is inner and not raced:
            raced.append(True)
            lake.write(1, rows(1))
        return found

    monkeypatch.setattr(type(inner), refresh, race)
    monkeypatch.setattr(LakeTarget, "_open", lambda *_: table)
    monkeypatch.setattr(type(table), "committed_batch", lambda *_: None)
    lake.target.publish(BatchId(QUERY, 1), parts)
    monkeypatch.undo()
    assert raced
    assert ids(lake) == [0, 1]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_a_commit_whose_answer_is_lost_keeps_its_files(lake: Lake, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store or the catalog reports a conflict, and it is the commit itself that is there already."""
    if mode == "upsert":
        upserting(lake)
    lake.write(0, rows(0))
    parts = lake.stage(1, rows(1)).finish()
    lost = []

    def lose(original: Callable[..., Any], error: Exception) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            original(*given, **named)
            if not lost:
                lost.append(True)
                raise error

        return call

    if lake.kind is LakeKind.DELTA:
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError
        from deltalake.table import TableMerger

        owner, name = (DeltaTable, "create_write_transaction") if mode == "insert" else (TableMerger, "execute")
        error: Exception = CommitFailedError("lost")
    else:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table import Transaction

        owner, name, error = Transaction, "commit_transaction", CommitFailedException("lost")
    monkeypatch.setattr(owner, name, lose(getattr(owner, name), error))
    lake.target.publish(BatchId(QUERY, 1), parts)
    assert lost
    assert ids(lake) == [0, 1]
    assert lake.beside() == []


def test_many_commits_of_a_stream_leave_few_files_of_metadata(tmp_path: Path) -> None:
    lake = Lake(LakeKind.ICEBERG, tmp_path)
    lake.write(0, rows(0))
    table: Any = lake.table()
    small = {"commit.manifest.min-count-to-merge": "5", "write.metadata.previous-versions-max": "3"}
    with table._table.transaction() as transaction:
        transaction.set_properties(small)
    for batch in range(1, 15):
        lake.write(batch, rows(batch))
    assert ids(lake) == list(range(15))
    table = lake.table()
    assert len(table._table.current_snapshot().manifests(table._table.io)) < 10
    assert len([path for path in table.storage.list("metadata") if path.endswith(".json")]) <= 5


def test_an_old_checkpoint_is_refused(lake: Lake) -> None:
    lake.write(3, rows(1))
    with pytest.raises(DeliveryError, match="ledger has micro-batch 3"):
        lake.write(2, rows(2))


def test_two_queries_write_one_table(lake: Lake) -> None:
    lake.write(0, rows(1))
    lake.write(0, rows(2), query=QUERY.replace("1", "2"))
    assert ids(lake) == [1, 2]


def test_new_columns_are_added_and_are_null_in_old_rows(lake: Lake) -> None:
    lake.write(0, rows(1))
    lake.write(1, rows(2, name=["b"]))
    assert lake.rows() == [{"id": 1, "name": None}, {"id": 2, "name": "b"}]


def test_rows_of_several_columns_in_one_task_are_appended(lake: Lake) -> None:
    lake.write(0, rows(1), rows(2, name=["b"]), rows(3))
    assert lake.rows() == [{"id": 1, "name": None}, {"id": 2, "name": "b"}, {"id": 3, "name": None}]


def test_a_new_column_is_refused_without_auto_evolve(lake: Lake) -> None:
    lake.write(0, rows(1))
    lake.use(auto_evolve="false")
    with pytest.raises(LakeError, match=r"no column name, and auto\.evolve is false"):
        lake.write(1, rows(2, name=["b"]))


def test_a_table_is_not_created_without_auto_create(lake: Lake) -> None:
    lake.use(auto_create="false")
    with pytest.raises(LakeError, match=r"auto\.create is false"):
        lake.write(0, rows(1))


def test_a_column_of_another_type_is_refused(lake: Lake) -> None:
    lake.write(0, rows(1))
    with pytest.raises(LakeError, match="the column id has the type string in the rows and int64 in the table"):
        lake.write(1, pa.table({"id": ["x"]}))


def test_a_table_is_divided_by_partition_columns(lake: Lake) -> None:
    lake.use(partition_by="region")
    lake.write(0, rows(1, 2, 3, 4, region=["eu", "a b/c%", None, "eu"]))
    assert [(row["id"], row["region"]) for row in lake.rows()] == [(1, "eu"), (2, "a b/c%"), (3, None), (4, "eu")]
    assert len(lake.files()) == 3
    assert any("region=eu/" in path for path in lake.files())


# -- upsert ------------------------------------------------------------------------------------------------------------


def upserting(lake: Lake, **more: str) -> None:
    lake.use(insert_mode="upsert", pk_fields="id", delete_enabled="true", **more)


def test_the_newest_row_of_each_key_is_merged_and_deleted_keys_are_gone(lake: Lake) -> None:
    upserting(lake)
    lake.write(0, rows(1, 2, 3, name=["a", "b", "c"]))
    changes = rows(2, 3, 4, 2, 5, 5, name=["x", None, "d", "y", "e", None])
    lake.write(1, changes, deleted=[False, True, False, False, False, True])
    assert lake.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "y"}, {"id": 4, "name": "d"}]
    assert lake.beside() == []


def test_a_merge_that_is_repeated_changes_nothing(lake: Lake) -> None:
    upserting(lake)
    lake.write(0, rows(1, name=["a"]))
    lake.write(0, rows(1, name=["other"]))
    assert lake.rows() == [{"id": 1, "name": "a"}]
    assert lake.beside() == []


def test_a_column_that_a_row_has_not_received_keeps_its_value(lake: Lake) -> None:
    upserting(lake)
    lake.write(0, rows(1, 2, name=["a", "b"], size=[10, 20]))
    lake.write(1, rows(1, size=[11]), rows(3, size=[30]), rows(2, name=["bb"]))
    assert lake.rows() == [
        {"id": 1, "name": "a", "size": 11},
        {"id": 2, "name": "bb", "size": 20},
        {"id": 3, "name": None, "size": 30},
    ]


def test_a_column_that_no_row_has_received_keeps_its_value(lake: Lake) -> None:
    upserting(lake)
    lake.write(0, rows(1, name=["a"], tags=[["x", "y"]]))
    lake.write(1, rows(1, name=["b"]))
    assert lake.rows() == [{"id": 1, "name": "b", "tags": ["x", "y"]}]


def test_update_changes_only_rows_that_exist(lake: Lake) -> None:
    lake.write(0, rows(1, name=["a"]))
    lake.use(insert_mode="update", pk_fields="id")
    lake.write(1, rows(1, 2, name=["b", "c"]))
    assert lake.rows() == [{"id": 1, "name": "b"}]


def test_rows_of_a_partitioned_table_are_merged_and_move_between_partitions(lake: Lake) -> None:
    upserting(lake, partition_by="region")
    lake.write(0, rows(1, 2, 3, 4, region=["eu", "eu", "us", None]))
    lake.write(1, rows(1, 3, 4, region=["us", None, "eu"]), deleted=[False, True, False])
    assert [(row["id"], row["region"]) for row in lake.rows()] == [(1, "us"), (2, "eu"), (4, "eu")]
    lake.write(2, rows(2, 5, region=["eu", "us"]))
    assert [(row["id"], row["region"]) for row in lake.rows()] == [(1, "us"), (2, "eu"), (4, "eu"), (5, "us")]


def test_keys_of_two_columns_are_merged(lake: Lake) -> None:
    lake.use(insert_mode="upsert", pk_fields="id,region")
    lake.write(0, rows(1, 1, region=["eu", "us"], n=[1, 2]))
    lake.write(1, rows(1, 2, region=["us", "us"], n=[3, 4]))
    assert sorted((row["id"], row["region"], row["n"]) for row in lake.rows()) == [
        (1, "eu", 1),
        (1, "us", 3),
        (2, "us", 4),
    ]


def test_of_rows_that_lack_values_the_nulls_are_read_and_not_the_values(tmp_path: Path) -> None:
    lake = Lake(LakeKind.DELTA, tmp_path)
    lake.use(insert_mode="upsert", pk_fields="id,part", auto_evolve="true")
    lake.write(0, rows(1, part=["b"]))  # a file that is older than the column
    lake.write(1, rows(1, 2, 2, part=["a", "a", "b"], note=["x" * 1000, None, "y"]))
    sent = rows(1, 1, 2, 3, part=["a", "b", "a", "c"])
    part = KeyedRows(sent, pa.array([False] * 4), pa.array(range(4)), ("note",))
    table = lake.table()
    changes = fold([part], ("id", "part"), table.schema())
    known = table._known_rows(changes)  # type: ignore[attr-defined]
    assert sorted(known.to_pylist(), key=lambda row: (row["id"], row["part"])) == [
        {"id": 1, "part": "a", "note": False},
        {"id": 1, "part": "b", "note": True},
        {"id": 2, "part": "a", "note": True},
    ]
    with pytest.raises(LakeError, match=r"the row with id=3, part='c'"):
        check_required(changes, known, "t")


def test_large_values_of_a_table_are_in_memory_a_few_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, size = 10_000, 2_000
    lake = Lake(LakeKind.DELTA, tmp_path)
    lake.use(insert_mode="upsert", pk_fields="id")
    lake.write(0, rows(*range(count), note=[f"{n:08d}" * (size // 8) for n in range(count)]))
    part = KeyedRows(rows(*range(count)), pa.array([False] * count), pa.array(range(count)), ("note",))
    table = lake.table()
    changes = fold([part], ("id",), table.schema())
    before, grown = pa.total_allocated_bytes(), []

    def watched(batch: Any, changes: Changes) -> Any:
        grown.append(pa.total_allocated_bytes() - before)
        return nulls_of(batch, changes)

    monkeypatch.setattr("barnabas.spark.connectors.lake.delta.nulls_of", watched)
    assert table._known_rows(changes).num_rows == count  # type: ignore[attr-defined]
    assert max(grown) < count * size / 2


@pytest.mark.parametrize("partitions", ["", "part", "id", "part,id"])
def test_rows_with_keys_of_text_may_lack_values_that_the_table_has(tmp_path: Path, partitions: str) -> None:
    """PyArrow does not compare texts of a file that a merge has written with the file's statistics."""
    lake = Lake(LakeKind.DELTA, tmp_path)
    lake.use(insert_mode="upsert", pk_fields="part,id", partition_by=partitions)
    lake.write(0, rows(1, 4, part=["a", None], note=["x", None]))
    lake.write(1, rows(2, 3, part=["a", "b"], note=["y", None]))
    table = lake.table()
    part = KeyedRows(rows(2, 3, part=["a", "b"]), pa.array([False] * 2), pa.array(range(2)), ("note",))
    table.merge(fold([part], ("part", "id"), table.schema()), Commit(None, ("",)))
    assert sorted((row["id"], row["note"]) for row in lake.rows()) == [(1, "x"), (2, "y"), (3, None), (4, None)]


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (pa.string(), "a'b", "c"),
        (pa.int32(), -1, 5),
        (pa.date32(), datetime.date(2026, 1, 1), datetime.date(1960, 1, 1)),
        (pa.timestamp("us", "UTC"), NOW, NOW + datetime.timedelta(microseconds=1)),
        (pa.decimal128(12, 2), Decimal("1.50"), Decimal("-3.00")),
        (pa.binary(), b"\x00\xff", b"\x01"),
        (pa.bool_(), True, False),
    ],
    ids=str,
)
def test_keys_of_every_type_are_merged(lake: Lake, kind: Any, one: Any, two: Any) -> None:
    upserting(lake)
    lake.write(0, pa.table({"id": pa.array([one, two], kind), "n": [1, 2]}))
    lake.write(1, pa.table({"id": pa.array([one, two], kind), "n": [10, None]}), deleted=[False, True])
    assert lake.rows() == [{"id": one, "n": 10}]


def test_more_keys_than_a_filter_names_are_merged(lake: Lake) -> None:
    upserting(lake)
    lake.write(0, rows(*range(1000), n=list(range(1000))))
    lake.write(1, rows(*range(500, 1500), n=[-1] * 1000))
    assert [(row["id"], row["n"]) for row in lake.rows()] == [(i, i if i < 500 else -1) for i in range(1500)]


def test_a_merge_removes_the_files_of_a_merge_that_was_not_committed(lake: Lake) -> None:
    upserting(lake)
    lake.stage(0, rows(1)).finish()
    lake.write(0, rows(1))
    assert ids(lake) == [1]
    assert lake.beside() == []


def test_large_batches_are_divided_into_files(lake: Lake) -> None:
    lake.use(file_bytes_max="1k")
    lake.write(0, rows(*range(200)), rows(*range(200, 400)))
    assert ids(lake) == list(range(400))
    assert len(lake.files()) == 2


def test_an_attempt_that_fails_removes_its_files(lake: Lake) -> None:
    lake.write(0, rows(1))
    lake.use(file_bytes_max="1")
    stage = lake.stage(1, rows(2))
    assert len(lake.files()) == 2
    stage.abandon()
    assert len(lake.files()) == 1
    assert lake.beside() == []


def test_all_types_come_back(lake: Lake) -> None:
    utc = NOW
    columns: Mapping[str, tuple[Any, Any]] = {
        "b": (pa.bool_(), True),
        "i": (pa.int32(), -5),
        "f": (pa.float32(), 0.5),
        "d": (pa.float64(), 1.25),
        "s": (pa.string(), "é"),
        "y": (pa.binary(), b"\x00\xff"),
        "day": (pa.date32(), utc.date()),
        "ts": (pa.timestamp("us", "UTC"), utc),
        "n": (pa.decimal128(20, 4), Decimal("12345.6789")),
        "list": (pa.list_(pa.field("element", pa.int64())), [1, None]),
        "map": (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
        "struct": (pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string())]), {"x": 1, "y": None}),
    }
    table = rows(1, 2, **{name: pa.array([value, None], kind) for name, (kind, value) in columns.items()})
    lake.write(0, table)
    first, second = lake.rows()
    assert first == {"id": 1, **{name: value for name, (_, value) in columns.items()}}
    assert second == {"id": 2, **dict.fromkeys(columns)}
