"""A micro-batch is the same one only if its query, its parents and its offsets are: each sink, and each way in which a
number comes to stand for other rows. `tests/system/connectors/test_sql_sinks.py` has the databases with servers.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.checkpoint_files import QUERY, QueryCheckpoint
from tests.property.delivery_model import Cluster, ModelLedger, ModelTransactions
from typer.testing import CliRunner

from barnabas.cli.app import build_app
from barnabas.client.values import HandedOverTransaction
from barnabas.spark.connectors.files.opening import file_plan
from barnabas.spark.connectors.http.writer import HttpStreamWriter, row_source
from barnabas.spark.connectors.lake.opening import delta_plan, iceberg_plan
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId
from barnabas.spark.connectors.sinking.writer import SinkPlan, stage_rows
from barnabas.spark.connectors.sql.sinks.opening import duckdb_plan, sqlite_plan
from barnabas.spark.delivery.checkpoints import CheckpointHistory
from barnabas.spark.delivery.driver import DeliveryDriver, MicroBatch
from barnabas.spark.delivery.identity import BatchHistory, LedgerEntry, decode_entry, encode_entry
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.records import DeliveryState
from barnabas.spark.errors import BatchConflictError
from barnabas.spark.sink.tasks import Attempt

OTHER = "6f1e3c8a-0000-4000-8000-000000000002"
Plan = Callable[[Path], SinkPlan]


class Sink:
    """A target with a ledger, and the ids of the rows in it."""

    def write(self, batch: int, history: BatchHistory | None, *ids: int, query: str = QUERY) -> None:
        raise NotImplementedError

    def ids(self) -> list[int]:
        raise NotImplementedError

    def forget_identity(self) -> None:
        """Let the ledger be one of an earlier release, which stored numbers only."""
        raise NotImplementedError

    def back_up(self) -> None:
        """Copy the target as it is now."""
        raise NotImplementedError

    def restore(self) -> None:
        """Let the target be as it was."""
        raise NotImplementedError


class TargetSink(Sink):
    """A sink of the connectors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = self.open()

    def open(self) -> SinkPlan:
        raise NotImplementedError

    def write(self, batch: int, history: BatchHistory | None, *ids: int, query: str = QUERY) -> None:
        self.plan.target.prepare(query)
        rows = pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})
        parts = stage_rows(iter([rows]), self.plan, AttemptId(query, "run", batch, 0, 0)).parts

        def publish() -> None:
            self.plan.target.publish(BatchId(query, batch, history=history), list(parts))

        history.explain(publish) if isinstance(history, CheckpointHistory) else publish()

    def back_up(self) -> None:
        shutil.copytree(self.folder, self.folder.with_name("target backup"))

    def restore(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.folder.with_name("target backup"), self.folder)


class SqlSink(TargetSink):
    def query(self, sql: str) -> list[Any]:
        raise NotImplementedError

    def ids(self) -> list[int]:
        return [row[0] for row in self.query("SELECT id FROM t ORDER BY id")]

    def forget_identity(self) -> None:
        self.query("ALTER TABLE barnabas_ledger DROP COLUMN identity")


class SqliteSink(SqlSink):
    def open(self) -> SinkPlan:
        self.query("CREATE TABLE t (id integer)")
        return sqlite_plan({"connection.url": f"jdbc:sqlite:{self.folder}/shop.db", "dbtable": "t"})

    def query(self, sql: str) -> list[Any]:
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(self.folder / "shop.db")) as connection, connection:
            found: list[Any] = connection.execute(sql).fetchall()
            return found


class DuckdbSink(SqlSink):
    def open(self) -> SinkPlan:
        self.query("CREATE TABLE t (id bigint)")
        return duckdb_plan({"connection.url": f"jdbc:duckdb:{self.folder}/shop.duckdb", "dbtable": "t"})

    def query(self, sql: str) -> list[Any]:
        import duckdb

        with duckdb.connect(str(self.folder / "shop.duckdb")) as connection:
            found: list[Any] = connection.execute(sql).fetchall()
            return found


class DeltaSink(TargetSink):
    def open(self) -> SinkPlan:
        return delta_plan({"path": str(self.folder / "t")})

    def ids(self) -> list[int]:
        from deltalake import DeltaTable

        return sorted(DeltaTable(str(self.folder / "t")).to_pyarrow_table()["id"].to_pylist())

    def forget_identity(self) -> None:
        for path in sorted((self.folder / "t" / "_delta_log").glob("*.json")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            for line in lines:
                line.get("commitInfo", {}).pop("barnabas.ledger", None)
            path.write_text("\n".join(json.dumps(line) for line in lines))


class IcebergSink(TargetSink):
    def open(self) -> SinkPlan:
        return iceberg_plan({"table": "shop.t", "catalog.warehouse": str(self.folder)})

    def table(self) -> Any:
        return self.plan.target._open("shop.t", None)._table  # type: ignore[attr-defined]

    def ids(self) -> list[int]:
        return sorted(self.table().scan().to_arrow()["id"].to_pylist())

    def forget_identity(self) -> None:
        with self.table().transaction() as transaction:
            transaction.remove_properties(f"barnabas.identity.{QUERY}")


class AvroSink(TargetSink):
    def open(self) -> SinkPlan:
        return file_plan({"path": str(self.folder / "out"), "file.format": "avro"})

    def ids(self) -> list[int]:
        import fastavro

        found = []
        for path in (self.folder / "out").glob("*.avro"):
            with path.open("rb") as file:
                found += [row["id"] for row in fastavro.reader(file)]
        return sorted(found)

    def forget_identity(self) -> None:
        for path in (self.folder / "out" / "_barnabas" / QUERY).glob("*.json"):
            document = json.loads(path.read_text())
            del document["identity"]
            path.write_text(json.dumps(document))


class LinesSink(TargetSink):
    def open(self) -> SinkPlan:
        return file_plan({"file": str(self.folder / "lines.txt")})

    def write(self, batch: int, history: BatchHistory | None, *ids: int, query: str = QUERY) -> None:
        self.plan.target.prepare(query)
        stage = self.plan.target.open_stage(AttemptId(query, "run", batch, 0, 0))
        from barnabas.spark.connectors.sinking.ports import TableRows

        rows = pa.RecordBatch.from_pydict({"value": [str(one) for one in ids]})
        stage.add(TableRows(str(self.folder / "lines.txt"), rows, (), None, None))
        parts = stage.finish()

        def publish() -> None:
            self.plan.target.publish(BatchId(query, batch, history=history), parts)

        history.explain(publish) if isinstance(history, CheckpointHistory) else publish()

    def ids(self) -> list[int]:
        return sorted(int(line) for line in (self.folder / "lines.txt").read_text().splitlines())

    def forget_identity(self) -> None:
        path = self.folder / "lines.txt.barnabas.json"
        document = json.loads(path.read_text())
        del document["identities"]
        path.write_text(json.dumps(document))


class TopicSink(Sink):
    """The exactly-once sink of topics, on the model of a cluster."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(Random(0))
        self.states: dict[str, DeliveryState | None] = {}

    def write(self, batch: int, history: BatchHistory | None, *ids: int, query: str = QUERY) -> None:
        name = SinkName("p", query)
        slot = self.cluster.init(f"{name.prefix}.{query}.run{len(self.cluster.slots)}")
        slot.rows = list(ids)
        taken = HandedOverTransaction(list(self.cluster.slots)[-1], slot.producer_id, slot.epoch)
        self.cluster.ledger = self.states.get(query)
        ledger = _Ledgers(self.cluster, self.states)
        driver = DeliveryDriver(ledger, ModelTransactions(self.cluster), target="topics")
        generation = 0 if self.cluster.ledger is None else self.cluster.ledger.generation

        def commit() -> None:
            asyncio.run(driver.commit(name, MicroBatch(batch, generation, (taken,), history=history)))

        try:
            history.explain(commit) if isinstance(history, CheckpointHistory) else commit()
        finally:
            self.states[query] = self.cluster.ledger

    def ids(self) -> list[int]:
        return sorted(self.cluster.visible)

    def back_up(self) -> None:
        self.kept = (dict(self.states), list(self.cluster.visible))

    def restore(self) -> None:
        self.states, self.cluster.visible = self.kept

    def forget_identity(self) -> None:
        from dataclasses import replace

        state = self.states[QUERY]
        assert state is not None
        self.states[QUERY] = replace(state, identity=None)


class _Ledgers(ModelLedger):
    """The model has the ledger of one query; here the parents of a fork can be read, too."""

    def __init__(self, cluster: Cluster, states: dict[str, DeliveryState | None]) -> None:
        super().__init__(cluster)
        self._states = states

    async def read(self, name: SinkName) -> DeliveryState:
        return self._states.get(name.query_id) or DeliveryState(name.query_id)


SINKS = {
    "topics": TopicSink,
    "sqlite": SqliteSink,
    "duckdb": DuckdbSink,
    "delta": DeltaSink,
    "iceberg": IcebergSink,
    "avro files": AvroSink,
    "lines": LinesSink,
}


@pytest.fixture(params=list(SINKS))
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    (tmp_path / "target").mkdir()
    return SINKS[request.param](tmp_path / "target")


@pytest.fixture(params=[name for name in SINKS if name != "duckdb"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    """The sinks, without the slowest of those that share their ledger with another one."""
    (tmp_path / "target").mkdir()
    return SINKS[request.param](tmp_path / "target")


@pytest.fixture
def checkpoint(tmp_path: Path) -> QueryCheckpoint:
    return QueryCheckpoint(tmp_path / "checkpoint")


def begin(sink: Sink, checkpoint: QueryCheckpoint) -> None:
    """Micro-batches 0 and 1, with the rows 1 and 2."""
    for batch in (0, 1):
        checkpoint.plan(batch, batch + 1)
        sink.write(batch, checkpoint.history(), batch + 1)
        checkpoint.commit(batch)


def test_a_repeated_micro_batch_is_skipped_and_one_of_a_restored_checkpoint_is_not(
    sink: Sink, checkpoint: QueryCheckpoint, tmp_path: Path
) -> None:
    checkpoint.plan(0, 1)
    sink.write(0, checkpoint.history(), 1)
    sink.write(0, checkpoint.history(), 1)  # the driver died before Spark had logged the commit
    checkpoint.commit(0)
    backup = checkpoint.copy(tmp_path / "backup")
    checkpoint.plan(1, 2)
    sink.write(1, checkpoint.history(), 2)
    assert sink.ids() == [1, 2]
    backup.plan(1, 4, run=1)
    with pytest.raises(BatchConflictError, match=r"micro-batch 1 .*\"0\": 2.*\"0\": 4.*pipelines repair --checkpoint"):
        sink.write(1, backup.history(), 2, 3, 4)
    assert sink.ids() == [1, 2]
    (conflict,) = backup.history().conflicts()
    assert (conflict.query_id, conflict.batch_id, conflict.stored.batch_id) == (QUERY, 1, 1)


def test_a_repair_continues_from_the_ledger(sink: Sink, checkpoint: QueryCheckpoint, tmp_path: Path) -> None:
    begin(sink, checkpoint)
    backup = checkpoint.copy(tmp_path / "backup")
    for batch in (2, 3, 4):
        checkpoint.plan(batch, batch + 1)
        sink.write(batch, checkpoint.history(), batch + 1)
        checkpoint.commit(batch)
    backup.plan(2, 6, run=1)
    with pytest.raises(BatchConflictError):
        sink.write(2, backup.history(), 3, 4, 5, 6)
    repaired = run("--checkpoint", str(backup.folder), "--continue-from-ledger", "--yes")
    assert "start the query again" in repaired
    assert backup.end() == (4, 5)
    assert (backup.folder / "commits" / "4").exists() and (backup.folder / "offsets" / "3").exists()
    backup.plan(5, 6, run=2)
    sink.write(5, backup.history(), 6)
    assert sink.ids() == [1, 2, 3, 4, 5, 6]
    assert "nothing to repair" in run("--checkpoint", str(backup.folder), "--apply-again", "--yes")


def test_a_repair_applies_the_micro_batches_again(ledger: Sink, checkpoint: QueryCheckpoint, tmp_path: Path) -> None:
    begin(ledger, checkpoint)
    backup = checkpoint.copy(tmp_path / "backup")
    for batch in (2, 3):
        checkpoint.plan(batch, batch + 1)
        ledger.write(batch, checkpoint.history(), batch + 1)
        checkpoint.commit(batch)
    backup.plan(2, 4, run=1)
    with pytest.raises(BatchConflictError):
        ledger.write(2, backup.history(), 3, 4)
    run("--checkpoint", str(backup.folder), "--apply-again", "--yes")
    ledger.write(2, backup.history(), 3, 4)
    ledger.write(2, backup.history(), 3, 4)  # repeated, and not written a third time
    backup.commit(2)
    for batch in (3, 4):
        backup.plan(batch, batch + 2, run=1)
        ledger.write(batch, backup.history(), batch + 2)
    assert ledger.ids() == [1, 2, 3, 3, 4, 4, 5, 6]


def test_a_later_number_of_another_history_is_refused(
    ledger: Sink, checkpoint: QueryCheckpoint, tmp_path: Path
) -> None:
    checkpoint.plan(0, 1)
    checkpoint.commit(0)
    backup = checkpoint.copy(tmp_path / "backup")
    checkpoint.plan(1, 2)
    ledger.write(1, checkpoint.history(), 2)
    backup.plan(1, 1, run=1)  # a micro-batch without rows
    backup.commit(1)
    backup.plan(2, 3, run=1)
    with pytest.raises(BatchConflictError):
        ledger.write(2, backup.history(), 2, 3)
    assert ledger.ids() == [2]


def test_numbers_count_where_the_checkpoint_cannot_be_read(ledger: Sink, checkpoint: QueryCheckpoint) -> None:
    begin(ledger, checkpoint)
    ledger.write(1, None, 2, 3)
    ledger.write(2, None, 3)
    with pytest.raises(BatchConflictError, match="newest checkpoint"):
        ledger.write(1, None, 2)
    checkpoint.plan(2, 4, run=1)
    ledger.write(2, checkpoint.history(), 4)  # the ledger has number 2 only
    assert ledger.ids() == [1, 2, 3]


def test_a_ledger_of_an_earlier_release_is_read_and_upgraded(sink: Sink, checkpoint: QueryCheckpoint) -> None:
    begin(sink, checkpoint)
    sink.forget_identity()
    sink.write(1, checkpoint.history(), 2)
    checkpoint.plan(2, 3)
    sink.write(2, checkpoint.history(), 3)
    checkpoint.plan(2, 4, run=1)
    with pytest.raises(BatchConflictError):
        sink.write(2, checkpoint.history(), 3, 4)
    assert sink.ids() == [1, 2, 3]


def test_a_fork_knows_what_its_parent_has_written(ledger: Sink, checkpoint: QueryCheckpoint, tmp_path: Path) -> None:
    begin(ledger, checkpoint)
    checkpoint.plan(2, 3)
    fork = checkpoint.fork(tmp_path / "fork", OTHER)
    again = checkpoint.fork(tmp_path / "again", OTHER)
    ledger.write(2, checkpoint.history(), 3)
    ledger.write(2, fork.history(), 3, query=OTHER)
    assert ledger.ids() == [1, 2, 3]
    again.plan(2, 2, run=1)  # the fork goes on in another way, and a query of its own may
    ledger.write(2, again.history(), 7, query=OTHER)
    assert ledger.ids() == [1, 2, 3, 7]


def write_more(sink: Sink, checkpoint: QueryCheckpoint, *batches: int) -> None:
    for batch in batches:
        checkpoint.plan(batch, batch + 1)
        sink.write(batch, checkpoint.history(), batch + 1)
        checkpoint.commit(batch)


def test_a_target_that_was_restored_gets_the_rows_again_that_it_lost(
    ledger: Sink, checkpoint: QueryCheckpoint, tmp_path: Path
) -> None:
    begin(ledger, checkpoint)
    ledger.back_up()
    write_more(ledger, checkpoint, 2, 3)
    ledger.restore()
    checkpoint.plan(4, 5)
    with pytest.raises(BatchConflictError, match=r"has micro-batch 1, although it confirmed micro-batch 3 before"):
        ledger.write(4, checkpoint.history(), 5)
    assert ledger.ids() == [1, 2]
    run("--checkpoint", str(checkpoint.folder), "--continue-from-ledger", "--yes")
    assert checkpoint.end() == (1, 2)
    write_more(ledger, checkpoint, 2, 3, 4)
    assert ledger.ids() == [1, 2, 3, 4, 5]


def roll_back_delta(sink: DeltaSink) -> None:
    from deltalake import DeltaTable

    table = DeltaTable(str(sink.folder / "t"))
    table.restore(next(each["version"] for each in table.history() if each.get("barnabas.batch") == "1"))


def roll_back_iceberg(sink: IcebergSink) -> None:
    table = sink.table()
    snapshot = next(s for s in table.metadata.snapshots if s.summary["barnabas.batch"] == "1")
    table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()


def replace_delta(sink: DeltaSink) -> None:
    from deltalake import DeltaTable

    DeltaTable.create(str(sink.folder / "t"), DeltaTable(str(sink.folder / "t")).schema(), mode="overwrite")


def drop_delta(sink: DeltaSink) -> None:
    shutil.rmtree(sink.folder / "t")


def drop_iceberg(sink: IcebergSink) -> None:
    sink.plan.target._open("shop.t", None)._table.catalog.drop_table("shop.t")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "change", "has"),
    [
        (DeltaSink, roll_back_delta, "micro-batch 1"),
        (IcebergSink, roll_back_iceberg, "micro-batch 1"),
        (DeltaSink, replace_delta, "nothing of the query"),
        (DeltaSink, drop_delta, "nothing of the query"),
        (IcebergSink, drop_iceberg, "nothing of the query"),
    ],
    ids=["delta restored", "iceberg rolled back", "delta replaced", "delta dropped", "iceberg dropped"],
)
def test_a_lake_table_that_is_not_what_it_was_is_noticed(
    kind: type[TargetSink], change: Callable[[Any], None], has: str, checkpoint: QueryCheckpoint, tmp_path: Path
) -> None:
    (tmp_path / "target").mkdir()
    sink = kind(tmp_path / "target")
    begin(sink, checkpoint)
    write_more(sink, checkpoint, 2, 3)
    change(sink)
    checkpoint.plan(4, 5)
    with pytest.raises(BatchConflictError, match=f"has {has}, although it confirmed micro-batch 3 before"):
        sink.write(4, checkpoint.history(), 5)
    if has == "nothing of the query":
        run("--checkpoint", str(checkpoint.folder), "--continue-from-ledger", "--yes", code=1)
        run("--checkpoint", str(checkpoint.folder), "--apply-again", "--yes")
        sink.write(4, checkpoint.history(), 5)
        assert sink.ids() == [5]
        write_more(sink, checkpoint, 5)
        change(sink)
        checkpoint.plan(6, 7)
        with pytest.raises(BatchConflictError):  # the choice was for one time
            sink.write(6, checkpoint.history(), 7)
        return
    run("--checkpoint", str(checkpoint.folder), "--continue-from-ledger", "--yes")
    write_more(sink, checkpoint, 2, 3, 4)
    assert sink.ids() == [1, 2, 3, 4, 5]


def test_keys_of_requests_name_the_identity(checkpoint: QueryCheckpoint) -> None:
    from barnabas.spark.connectors.http.options import parse_http_options

    attempt = Attempt(QUERY, "run", 1, 0, 0)
    keys = []
    for run_number in (0, 0, 1):
        checkpoint.plan(1, 2, run=run_number)
        options = {"http.url": "http://localhost:1/", "checkpointLocation": str(checkpoint.folder)}
        writer = HttpStreamWriter(parse_http_options(options))
        state = writer.__getstate__()
        keys.append(row_source(attempt, state["_planned"]))  # type: ignore[arg-type]
    assert keys[0] == keys[1] != keys[2]
    assert row_source(attempt, LedgerEntry(2, "ab")) == row_source(attempt, None) == f"{QUERY}-1-0"


def test_a_repair_refuses_to_move_state(checkpoint: QueryCheckpoint, tmp_path: Path) -> None:
    sink = LinesSink(tmp_path)
    begin(sink, checkpoint)
    checkpoint.plan(1, 3, run=1)
    (checkpoint.folder / "state" / "0").mkdir(parents=True)
    with pytest.raises(BatchConflictError):
        sink.write(1, checkpoint.history(), 3)
    shown = json.loads(run("--checkpoint", str(checkpoint.folder), "--json"))
    assert [(each["ledger_batch"], each["ledger_offsets"], each["checkpoint_offsets"]) for each in shown] == [
        (1, ['{"orders": {"0": 2}}'], ['{"orders": {"0": 3}}'])
    ]
    refused = run("--checkpoint", str(checkpoint.folder), "--continue-from-ledger", "--yes", code=1)
    assert "keeps state" in refused


@pytest.mark.parametrize("text", [None, "", "[]", "7", '{"batch":4}', '{"batch":5,"offsets":"?"}', "no JSON"])
def test_an_identity_that_cannot_be_read_leaves_the_number(text: str | None) -> None:
    found = decode_entry(text, 5)
    assert found == LedgerEntry(5)
    assert decode_entry(text, None) is None


def test_entries_come_back_and_offsets_that_are_too_long_are_left_out() -> None:
    entry = LedgerEntry(5, "ab" * 32, (OTHER, QUERY), "v1\n{}\n{}")
    assert decode_entry(encode_entry(entry), 5) == entry
    rng = Random(1)
    long = LedgerEntry(5, "ab" * 32, (), "".join(chr(rng.randrange(32, 127)) for _ in range(200_000)))
    assert decode_entry(encode_entry(long), 5) == LedgerEntry(5, "ab" * 32)


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(build_app(), ["pipelines", "repair", *arguments])
    assert result.exit_code == code, result.output
    return result.output
