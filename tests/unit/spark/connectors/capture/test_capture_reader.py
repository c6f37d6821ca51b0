"""The streaming and the batch reader on a source in memory: deaths, replays, triggers, and what is confirmed when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from barnabas.spark.connectors.capture import reader as reader_module
from barnabas.spark.connectors.capture.errors import CaptureError, LostPositionError, NewStartError, StagingError
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.output import CaptureOutput
from barnabas.spark.connectors.capture.ports import CapturedChanges, Connector, Position, SnapshotStage, TableChange
from barnabas.spark.connectors.capture.reader import CaptureBatchReader, CaptureStreamReader, parse
from barnabas.spark.connectors.capture.rows_output import rows_schema
from barnabas.spark.connectors.events.changes import CREATE, ChangeBatch, ColumnSchema, PostgresPositions, TableSchema
from barnabas.spark.connectors.events.envelope import HEADERS_TYPE

TABLE = TableSchema("db", "public", "t", (ColumnSchema("id", pa.int64(), False),), (0,))


class Database:
    """A table whose log is the list of the ids that were inserted; a position is an index in it."""

    def __init__(self) -> None:
        self.log: list[int] = [1, 2, 3]
        self.confirmed: list[int] = []
        self.checked: list[tuple[Position | None, bool]] = []
        self.lost: list[Position | None] = []
        self.dies_in_snapshot = False
        self.server = 1
        self.oldest = 0
        """The position before which the log is purged."""
        self.damaged: int | None = None
        """The id that no task can read any more."""


DATABASE = Database()


class MemorySource:
    """A ChangeSource on DATABASE."""

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        self._starts = 0

    @property
    def identity(self) -> str:
        return "memory"

    def check(self, position: Position | None, *, begun: bool, lost: Position | None = None) -> None:
        DATABASE.checked.append((position, begun))
        DATABASE.lost.append(lost)
        self._starts = 0 if lost is None else lost.get("starts", 0) + 1
        self._check_server(position)

    def _check_server(self, position: Position | None) -> None:
        if position is not None and position.get("server", 1) != DATABASE.server:
            raise LostPositionError("the position belongs to another server")
        if position is not None and position["at"] < DATABASE.oldest:
            raise LostPositionError("the log is purged")

    def _at(self, place: int, starts: int) -> Position:
        server = {} if DATABASE.server == 1 else {"server": DATABASE.server}
        return {"at": place, **server, **({"starts": starts} if starts else {})}

    def take_snapshot(self, stage: SnapshotStage, *, rows: bool, follow: bool) -> Position:
        if rows:
            ids = list(DATABASE.log)
            stage.write(TABLE, [pa.RecordBatch.from_arrays([pa.array([one], pa.int64())], names=["id"]) for one in ids])
        if DATABASE.dies_in_snapshot:
            raise CaptureError("the process dies")
        return self._at(len(DATABASE.log), self._starts)

    def find_end(self, start: Position, bytes_max: int | None, until: Position | None) -> Position:
        self._check_server(start)
        end = len(DATABASE.log) if bytes_max is None else min(len(DATABASE.log), start["at"] + 2)
        return self._at(end if until is None else min(end, until["at"]), start.get("starts", 0))

    def find_target(self, start: Position) -> Position:
        self._check_server(start)
        return self._at(len(DATABASE.log), start.get("starts", 0))

    def read(self, start: Position, end: Position) -> Iterator[CapturedChanges]:
        ids = DATABASE.log[start["at"] : end["at"]]
        if DATABASE.damaged in ids:
            raise LostPositionError("the log is damaged")
        numbers = np.arange(len(ids), dtype=np.int64)
        after = pa.StructArray.from_arrays([pa.array(ids, pa.int64())], names=["id"])
        changes = ChangeBatch(
            TABLE,
            np.full(len(ids), CREATE, np.uint8),
            None,
            after,
            numbers,
            numbers,
            PostgresPositions(numbers, numbers, numbers),
        )
        yield CapturedChanges((TableChange(changes, pa.array(["p"] * len(ids), pa.string())),))

    def confirm(self, position: Position) -> None:
        DATABASE.confirmed.append(position["at"])

    def snapshot_positions(self, position: Position, rows: int) -> PostgresPositions:
        none = np.zeros(rows, np.int64)
        return PostgresPositions(none, none, none)

    def snapshot_place(self, position: Position) -> str:
        return ""

    def read_tables(self) -> list[TableSchema]:
        return [TABLE]

    def beat(self) -> None:
        pass

    def close(self) -> None:
        pass


CONNECTOR = Connector("barnabas.memory", "memory", "1", (), {}, MemorySource)


@pytest.fixture(autouse=True)
def database() -> Database:
    DATABASE.__init__()  # type: ignore[misc]  # workers find the source by its module
    return DATABASE


class Query:
    """What Spark does with a reader: offsets in a log, and the rows of each micro-batch."""

    def __init__(self, folder: Path, **options: str) -> None:
        texts = {"stagingLocation": str(folder / "staging"), "output": "rows", **options}
        self._options = parse(texts, CONNECTOR)
        self.offsets: list[dict[str, Any]] = []
        self.restart()

    def restart(self) -> None:
        output = CaptureOutput(self._options, rows_schema(TABLE, self._options.unavailable))
        self.reader = CaptureStreamReader(self._options, output, CONNECTOR)

    @property
    def start(self) -> dict[str, Any]:
        return self.offsets[-1] if self.offsets else self.reader.initialOffset()

    def plan(self, limit: Any = None) -> dict[str, Any]:
        return self.reader.latestOffset(self.start, limit or self.reader.getDefaultReadLimit())

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, str]]:
        batches = [one for task in self.reader.partitions(start, end) for one in self.reader.read(task)]
        return [(row["id"], row["__op"]) for batch in batches for row in batch.to_pylist()]

    def batch(self, limit: Any = None) -> list[tuple[int, str]]:
        end = self.plan(limit)
        rows = self.rows(self.start, end)
        self.offsets.append(end)
        return rows


SNAPSHOT = [(1, "r"), (2, "r"), (3, "r")]


def test_changes_follow_the_snapshot_and_are_confirmed_behind_the_planned_batch(tmp_path: Path) -> None:
    query = Query(tmp_path)
    assert query.batch() == SNAPSHOT
    DATABASE.log += [4, 5, 6]
    assert query.batch() == [(4, "c"), (5, "c")]
    assert DATABASE.confirmed == [3]
    assert query.batch() == [(6, "c")]
    assert DATABASE.confirmed == [3, 5]
    assert query.plan() == query.start


def test_a_batch_that_is_replayed_reads_the_same(tmp_path: Path) -> None:
    query = Query(tmp_path)
    end = query.plan()
    DATABASE.log.append(4)
    query.restart()
    assert query.rows(query.start, end) == SNAPSHOT


def test_a_plan_that_was_not_stored_adopts_the_staged_snapshot(tmp_path: Path) -> None:
    query = Query(tmp_path)
    end = query.plan()
    DATABASE.log.append(4)
    query.restart()
    assert query.plan() == end
    assert DATABASE.checked == [(None, False), ({"at": 3}, False)]
    assert query.batch() == SNAPSHOT
    assert query.batch() == [(4, "c")]


def test_a_death_during_the_snapshot_emits_nothing_and_begins_again(tmp_path: Path) -> None:
    query = Query(tmp_path)
    DATABASE.dies_in_snapshot = True
    with pytest.raises(CaptureError, match="dies"):
        query.plan()
    DATABASE.dies_in_snapshot = False
    DATABASE.log = [7]
    query.restart()
    assert query.batch() == [(7, "r")]
    assert DATABASE.checked == [(None, False), (None, True)]


def test_a_snapshot_is_read_in_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.spark.connectors.capture.staging.STAGED_FILE_BYTES_MAX", 1)
    query = Query(tmp_path, maxBytesPerTrigger="1")
    assert [query.batch(), query.batch(), query.batch(), query.batch()] == [[one] for one in SNAPSHOT] + [[]]
    assert DATABASE.confirmed == [3]


def test_the_staged_rows_are_deleted_when_changes_are_planned(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch()
    assert list(tmp_path.glob("staging/*/*.arrow"))
    query.batch()
    assert not list(tmp_path.glob("staging/*/*.arrow"))
    query.restart()
    query.batch()


def test_a_new_checkpoint_on_a_read_snapshot_is_refused(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch()
    query.batch()
    with pytest.raises(CaptureError, match="another checkpoint"):
        Query(tmp_path).plan()


def test_a_lost_staging_directory_is_named(tmp_path: Path) -> None:
    query = Query(tmp_path)
    end = query.plan()
    (tmp_path / "staging" / "manifest.json").unlink()
    query.restart()
    with pytest.raises(StagingError, match="is gone"):
        query.rows(query.start, end)


def test_available_now_ends_at_what_was_there_when_changes_began(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.reader.prepareForTriggerAvailableNow()
    query.batch()
    DATABASE.log += [4, 5, 6]
    assert query.batch() == [(4, "c"), (5, "c")]
    DATABASE.log += [7]
    assert query.batch() == [(6, "c")]
    assert query.plan() == query.start


def test_trigger_once_reads_without_a_limit(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch(ReadAllAvailable())
    DATABASE.log += [4, 5, 6]
    assert query.batch(ReadAllAvailable()) == [(4, "c"), (5, "c"), (6, "c")]


def test_no_data_begins_with_changes(tmp_path: Path) -> None:
    query = Query(tmp_path, **{"snapshot.mode": "no_data"})
    assert query.batch() == []
    DATABASE.log.append(4)
    assert query.batch() == [(4, "c")]


def test_initial_only_ends_with_the_snapshot_and_asks_for_no_setup(tmp_path: Path) -> None:
    query = Query(tmp_path, **{"snapshot.mode": "initial_only"})
    assert query.batch() == SNAPSHOT
    DATABASE.log.append(4)
    assert query.plan() == query.start
    assert (DATABASE.checked, DATABASE.confirmed) == ([], [])


def replace_server(*ids: int) -> None:
    DATABASE.server, DATABASE.log = 2, list(ids)


def test_a_lost_position_stops_the_query(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch()
    replace_server(7, 8)
    with pytest.raises(LostPositionError):
        query.plan()
    query.restart()
    with pytest.raises(LostPositionError):
        query.plan()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("available_now", [False, True])
def test_a_query_whose_position_is_lost_starts_anew_if_it_may(
    restarts: bool, available_now: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    if available_now:
        query.reader.prepareForTriggerAvailableNow()
    query.batch()
    DATABASE.log.append(4)
    assert query.batch() == [(4, "c")]
    replace_server(7, 8)
    if restarts:
        query.restart()
    assert query.batch() == [(7, "r"), (8, "r")]
    assert "starts anew" in caplog.text
    assert DATABASE.lost[-1] == {"at": 4}
    DATABASE.log.append(9)
    assert query.batch() == [(9, "c")]
    assert not list(tmp_path.glob("staging/*/*.arrow"))
    query.restart()
    assert query.batch() == []


def test_a_new_start_that_was_not_stored_uses_the_staged_snapshot(tmp_path: Path) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    query.batch()
    replace_server(7)
    end = query.plan()
    DATABASE.log.append(8)
    query.restart()
    assert query.plan() == end
    query.restart()
    assert query.rows(query.start, end) == [(7, "r")]  # the plan was stored, and the micro-batch was not committed
    query.offsets.append(end)
    assert query.batch() == [(8, "c")]


def test_a_death_in_the_snapshot_of_a_new_start_begins_it_again(tmp_path: Path) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    query.batch()
    replace_server(7)
    DATABASE.dies_in_snapshot = True
    with pytest.raises(CaptureError, match="dies"):
        query.plan()
    DATABASE.dies_in_snapshot = False
    query.restart()
    assert query.batch() == [(7, "r")]
    assert DATABASE.checked[-2:] == [(None, False), (None, True)]
    assert query.batch() == []


def test_a_new_start_goes_on_also_if_the_lost_position_looks_right_by_then(tmp_path: Path) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    query.batch()
    replace_server(7)
    end = query.plan()
    DATABASE.server, DATABASE.log = 1, [1, 2, 3, 4]
    query.restart()
    new = query.plan()
    assert new["snapshot"]["id"] != end["snapshot"]["id"]  # that snapshot's own position is lost now
    assert query.rows(query.start, new) == [(1, "r"), (2, "r"), (3, "r"), (4, "r")]
    assert DATABASE.checked[-2:] == [({"at": 1, "server": 2, "starts": 1}, False), (None, True)]
    with pytest.raises(LostPositionError, match="has begun a new snapshot"):
        Query(tmp_path).reader.latestOffset(query.start, ReadAllAvailable())


def test_a_death_in_the_new_snapshot_of_a_query_without_an_offset_begins_it_again(tmp_path: Path) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    query.plan()
    replace_server(7)
    DATABASE.dies_in_snapshot = True
    query.restart()
    with pytest.raises(CaptureError, match="dies"):
        query.plan()
    DATABASE.dies_in_snapshot = False
    query.restart()
    assert query.batch() == [(7, "r")]


def test_a_planned_batch_of_a_lost_position_has_no_changes(tmp_path: Path) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    query.batch()
    DATABASE.log.append(4)
    end = query.plan()
    replace_server(7)
    query.restart()
    assert query.rows(query.start, end) == []
    query.offsets.append(end)
    assert query.batch() == [(7, "r")]


@pytest.mark.parametrize("at", [3, 4])
def test_a_repeated_batch_without_its_changes_is_followed_by_a_new_start(at: int, tmp_path: Path) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    query.batch()
    DATABASE.log += [4, 5]
    end = query.plan()
    if at == 3:  # the beginning of the batch is purged, and its end is not
        DATABASE.oldest = 4
    else:  # the server is an older one, which has the beginning, and grows later
        end["position"] = {"at": 5, "server": 2}
    query.restart()
    assert query.rows(query.start, end) == []
    query.offsets.append(end)
    DATABASE.server, DATABASE.oldest = (1, 4) if at == 3 else (2, 0)
    DATABASE.log.append(6)
    query.restart()
    assert query.batch() == [(one, "r") for one in (1, 2, 3, 4, 5, 6)]
    assert query.batch() == []


def test_a_repeated_batch_is_checked_at_both_ends(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch()
    DATABASE.log.append(4)
    end = query.plan()
    query.restart()
    DATABASE.checked.clear()
    assert query.rows(query.start, end) == [(4, "c")]
    assert DATABASE.checked == [({"at": 3}, False), ({"at": 4}, False)]


def test_a_loss_that_only_a_task_finds_leads_to_a_new_start(tmp_path: Path) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    query.batch()
    DATABASE.log.append(4)
    end = query.plan()
    DATABASE.damaged = 4
    with pytest.raises(NewStartError, match=r"is damaged\. The query starts anew when it is started again"):
        query.rows(query.start, end)
    query.restart()
    assert query.rows(query.start, end) == []
    query.offsets.append(end)
    assert query.batch() == [(1, "r"), (2, "r"), (3, "r"), (4, "r")]
    DATABASE.log.append(5)
    query.restart()
    assert query.batch() == [(5, "c")]


def test_a_loss_that_only_a_task_finds_stops_a_query_that_may_lose_nothing(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch()
    DATABASE.log.append(4)
    end = query.plan()
    DATABASE.damaged = 4
    for _ in range(2):
        with pytest.raises(LostPositionError, match="is damaged"):
            query.rows(query.start, end)
        query.restart()
    DATABASE.damaged = None
    assert query.rows(query.start, end) == [(4, "c")]


def test_a_loss_that_cannot_be_noted_is_named(tmp_path: Path) -> None:
    query = Query(tmp_path, failOnDataLoss="false")
    query.batch()
    DATABASE.log.append(4)
    end = query.plan()
    [task] = query.reader.partitions(query.start, end)
    DATABASE.damaged = 4
    (tmp_path / "staging").rename(tmp_path / "moved")
    (tmp_path / "staging").write_text("in the way")
    with pytest.raises(StagingError, match=r"is damaged.*let driver and workers write"):
        list(query.reader.read(task))


def test_a_snapshot_of_a_lost_position_is_replaced_before_it_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.connectors.capture.staging.STAGED_FILE_BYTES_MAX", 1)
    query = Query(tmp_path, maxBytesPerTrigger="1", failOnDataLoss="false")
    assert query.batch() == [(1, "r")]
    replace_server(7, 8)
    query.restart()
    assert [query.batch(), query.batch(), query.batch()] == [[(7, "r")], [(8, "r")], []]


def test_no_data_starts_anew_with_later_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = Query(tmp_path, **{"snapshot.mode": "no_data", "failOnDataLoss": "false"})
    query.batch()
    replace_server(7)
    assert query.batch() == []
    assert "with the changes from now on" in caplog.text
    DATABASE.log.append(8)
    assert query.batch() == [(8, "c")]


def test_a_snapshot_alone_is_read_on_from_a_restart_without_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.connectors.capture.staging.STAGED_FILE_BYTES_MAX", 1)
    query = Query(tmp_path, **{"snapshot.mode": "initial_only", "maxBytesPerTrigger": "1"})
    query.batch()
    query.restart()
    assert [query.batch(), query.batch(), query.batch()] == [[(2, "r")], [(3, "r")], []]
    assert DATABASE.checked == []


RECORDS = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


def test_a_heartbeat_is_written_in_the_batch_whose_offset_has_its_time(tmp_path: Path) -> None:
    texts = {"stagingLocation": str(tmp_path), "topic.prefix": "shop", "heartbeat.interval.ms": "3600000"}
    options = parse(texts | {"value.converter.schemas.enable": "false"}, CONNECTOR)
    reader = CaptureStreamReader(options, CaptureOutput(options, RECORDS), CONNECTOR)
    limit = reader.getDefaultReadLimit()
    snapshot = reader.latestOffset(reader.initialOffset(), limit)
    first = reader.latestOffset(snapshot, limit)
    assert first["heartbeat"] > 0
    for _ in range(2):  # a replay gives the same heartbeat
        tasks = reader.partitions(snapshot, first)
        rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
        assert [(row["topic"], row["value"]) for row in rows] == [
            ("__debezium-heartbeat.shop", b'{"ts_ms":%d}' % first["heartbeat"])
        ]
    assert reader.latestOffset(first, limit) == first  # the next one is not due


def test_a_batch_query_reads_a_snapshot_of_its_own(tmp_path: Path) -> None:
    options = parse({"stagingLocation": str(tmp_path), "output": "rows"}, CONNECTOR)
    reader = CaptureBatchReader(options, CaptureOutput(options, rows_schema(TABLE, options.unavailable)), CONNECTOR)
    rows = [row["id"] for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert rows == [1, 2, 3]
    assert DATABASE.checked == []


def test_the_columns_are_those_of_the_only_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"stagingLocation": str(tmp_path), "output": "rows"}
    assert reader_module.capture_schema(texts, CONNECTOR).startswith("`id` bigint, `__op` string")
    monkeypatch.setattr(MemorySource, "read_tables", lambda _: [TABLE, TABLE])
    with pytest.raises(ValueError, match="selects 2"):
        reader_module.capture_schema(texts, CONNECTOR)
