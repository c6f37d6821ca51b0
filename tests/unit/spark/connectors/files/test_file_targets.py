"""Files as a sink without Spark: whole files appear in a directory, lines are appended to a file, each exactly once."""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.spark.connectors.files.errors import FileWriteError
from barnabas.spark.connectors.files.formats import write_rows
from barnabas.spark.connectors.files.lines import LineFileTarget
from barnabas.spark.connectors.files.options import FileFormat, parse_file_sink
from barnabas.spark.connectors.files.storage import FileDirectory
from barnabas.spark.connectors.files.target import DirectoryTarget
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId, StagedPart, TableRows
from barnabas.spark.errors import DeliveryError, OptionError

QUERY = "6f1e3c8a-0000-4000-8000-000000000001"


def rows(*ids: int) -> Any:
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "value": [f"v{one}" for one in ids]})


class Landing:
    """A directory or a file, and the micro-batches of a query."""

    def __init__(self, place: Path, kind: str | None) -> None:
        self.place = place
        given = {"file": str(place)} if kind is None else {"path": str(place), "file.format": kind}
        made = LineFileTarget if kind is None else DirectoryTarget
        self.target = made(parse_file_sink(given))

    def stage(self, batch: int, *batches: Any, partition: int = 0) -> list[StagedPart]:
        stage = self.target.open_stage(AttemptId(QUERY, "run", batch, partition, 0))
        for each in batches:
            stage.add(TableRows(str(self.place), each, (), None, None, 0))
        return stage.finish()

    def write(self, batch: int, *batches: Any) -> None:
        self.target.publish(BatchId(QUERY, batch), self.stage(batch, *batches))

    def names(self) -> list[str]:
        """What a reader of the directory lists."""
        return sorted(path.name for path in self.place.iterdir() if not path.name.startswith("_"))

    def staged(self) -> list[str]:
        return [
            path for path in FileDirectory.open(str(self.place), {}).list("_barnabas") if not path.endswith(".json")
        ]


def avro_ids(landing: Landing) -> list[int]:
    found = []
    for name in landing.names():
        with (landing.place / name).open("rb") as file:
            found += [row["id"] for row in fastavro.reader(file)]
    return found


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path / "out", "avro")


def test_files_of_all_tasks_appear_in_the_order_of_the_tasks(landing: Landing) -> None:
    parts = [*landing.stage(0, rows(3), partition=1), *landing.stage(0, rows(1), rows(2))]
    landing.target.publish(BatchId(QUERY, 0), parts)
    assert avro_ids(landing) == [1, 2, 3]
    assert [path.name for path in (landing.place / "_barnabas" / QUERY).iterdir()] == ["0.json"]


def test_staged_files_are_not_seen_before_the_commit(landing: Landing) -> None:
    landing.stage(0, rows(1))
    assert landing.names() == []
    assert len(landing.staged()) == 1


def test_a_commit_that_is_repeated_lands_nothing(landing: Landing) -> None:
    landing.write(0, rows(1))
    landing.write(0, rows(1), rows(2))
    assert avro_ids(landing) == [1]
    assert landing.staged() == []


@pytest.mark.parametrize("moved", [0, 1])
def test_a_driver_that_dies_while_files_get_their_names_is_finished_by_the_next(
    landing: Landing, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = FileDirectory.move
    calls = []

    def die(self: FileDirectory, source: str, target: str) -> None:
        calls.append(source)
        if len(calls) > moved:
            raise KeyboardInterrupt
        original(self, source, target)

    parts = [*landing.stage(0, rows(1)), *landing.stage(0, rows(2), partition=1)]
    monkeypatch.setattr(FileDirectory, "move", die)
    with pytest.raises(KeyboardInterrupt):
        landing.target.publish(BatchId(QUERY, 0), parts)
    monkeypatch.undo()
    landing.write(0, rows(1), rows(2))  # in other tasks than before
    assert avro_ids(landing) == [1, 2]
    assert landing.staged() == []


def test_an_older_checkpoint_is_refused(landing: Landing) -> None:
    landing.write(5, rows(1))
    with pytest.raises(DeliveryError, match="ledger has micro-batch 5"):
        landing.write(4, rows(2))


def test_old_decisions_are_removed(landing: Landing) -> None:
    for batch in range(5):
        landing.write(batch, rows(batch))
    assert avro_ids(landing) == [0, 1, 2, 3, 4]
    decisions = [path.name for path in (landing.place / "_barnabas" / QUERY).iterdir() if path.suffix == ".json"]
    assert sorted(decisions) == ["3.json", "4.json"]


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("csv", b'"id","value"\n1,"v1"\n2,"v2"\n'),
        ("json", b'{"id":1,"value":"v1"}\n{"id":2,"value":"v2"}\n'),
        ("text", b"v1\nv2\n"),
    ],
)
def test_formats_are_written(tmp_path: Path, kind: str, content: bytes) -> None:
    landing = Landing(tmp_path / "out", kind)
    landing.write(0, rows(1, 2))
    (name,) = landing.names()
    assert (landing.place / name).read_bytes() == content


def test_bytes_are_in_a_csv_file_only_if_they_are_a_text() -> None:
    texts = pa.array([b"", None, "é".encode()], pa.binary())
    assert write_rows(pa.table({"v": texts}), FileFormat.CSV) == '"v"\n""\n\n"é"\n'.encode()
    with pytest.raises(FileWriteError, match=r"the column v has bytes that are no text.*0x00ff.*base64\(v\)"):
        write_rows(pa.table({"id": [1], "v": pa.array([b"\x00\xff"])}), FileFormat.CSV)
    with pytest.raises(FileWriteError, match=r"the column v is list<.*to_json\(v\)"):
        write_rows(pa.table({"v": [[1]]}), FileFormat.CSV)


def test_parquet_is_written(tmp_path: Path) -> None:
    landing = Landing(tmp_path / "out", "parquet")
    landing.write(0, rows(1, 2))
    assert pq.read_table(landing.place / landing.names()[0])["id"].to_pylist() == [1, 2]


def test_changes_by_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"there is no option insert\.mode"):
        parse_file_sink({"path": str(tmp_path), "file.format": "csv", "insert.mode": "upsert"})


# -- one file of lines -------------------------------------------------------------------------------------------------


@pytest.fixture
def line_file(tmp_path: Path) -> Landing:
    return Landing(tmp_path / "out.txt", None)


def test_lines_are_appended_in_the_order_of_the_tasks(line_file: Landing) -> None:
    line_file.write(0, rows(1))
    parts = [*line_file.stage(1, rows(3), partition=1), *line_file.stage(1, rows(2))]
    line_file.target.publish(BatchId(QUERY, 1), parts)
    assert line_file.place.read_text() == "v1\nv2\nv3\n"


def test_lines_of_a_repeated_commit_are_not_appended(line_file: Landing) -> None:
    line_file.write(0, rows(1))
    line_file.write(0, rows(1))
    assert line_file.place.read_text() == "v1\n"


@pytest.mark.parametrize("ledgers", [1, 2])
def test_lines_of_a_driver_that_died_while_it_appended_are_cut_off(
    line_file: Landing, ledgers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    line_file.write(0, rows(1))
    original = Path.replace
    calls = []

    def die(self: Path, target: Any) -> Any:
        calls.append(target)
        if len(calls) >= ledgers:
            raise KeyboardInterrupt
        return original(self, target)

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        line_file.write(1, rows(2))
    monkeypatch.undo()
    assert line_file.place.read_text() == ("v1\n" if ledgers == 1 else "v1\nv2\n")
    line_file.write(1, rows(2), rows(3))
    assert line_file.place.read_text() == "v1\nv2\nv3\n"


def test_a_text_file_needs_a_text(tmp_path: Path) -> None:
    landing = Landing(tmp_path / "out", "text")
    stage = landing.target.open_stage(AttemptId(QUERY, "run", 0, 0, 0))
    with pytest.raises(FileWriteError, match="needs the column value"):
        stage.add(TableRows(str(landing.place), pa.RecordBatch.from_pydict({"a": [1], "b": [2]}), (), None, None, 0))
        stage.finish()


# -- formats -----------------------------------------------------------------------------------------------------------

AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, datetime.UTC)
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "big": (pa.int64(), -(2**62), -(2**62)),
    "small": (pa.int16(), 7, 7),
    "flag": (pa.bool_(), False, False),
    "real": (pa.float64(), 0.1, 0.1),
    "text": (pa.string(), 'é"\n', 'é"\n'),
    "bytes": (pa.binary(), b"\x00\xff", "AP8="),
    "day": (pa.date32(), AT.date(), "2026-01-02"),
    "at": (pa.timestamp("us", "UTC"), AT, "2026-01-02T03:04:05.123456Z"),
    "local": (pa.timestamp("us"), AT.replace(tzinfo=None), "2026-01-02T03:04:05.123456"),
    "price": (pa.decimal128(9, 2), Decimal("-1.50"), "-1.50"),
}
"""A type, a value, and the value in JSON."""


def table_of(**more: Any) -> Any:
    arrays = {name: pa.array([value, None], kind) for name, (kind, value, _) in VALUES.items()}
    return pa.table({**arrays, **more})


def test_avro_files_are_read_by_another_implementation() -> None:
    nested = pa.array([{"x": [1, None], "y": {"k": 2}}, None], NESTED)
    content = write_rows(table_of(nested=nested), FileFormat.AVRO)
    first, second = fastavro.reader(io.BytesIO(content))
    assert first == {
        **{name: value for name, (_, value, _) in VALUES.items()},
        "local": AT.replace(tzinfo=None),
        "nested": {"x": [1, None], "y": {"k": 2}},
    }
    assert second == dict.fromkeys([*VALUES, "nested"])


NESTED = pa.struct([("x", pa.list_(pa.field("element", pa.int64()))), ("y", pa.map_(pa.string(), pa.int64()))])


def test_avro_files_of_many_rows_have_several_blocks() -> None:
    content = write_rows(pa.table({"id": range(25_000)}), FileFormat.AVRO)
    assert [row["id"] for row in fastavro.reader(io.BytesIO(content))] == list(range(25_000))
    assert len(list(fastavro.block_reader(io.BytesIO(content)))) == 3


def test_json_lines_have_no_nulls() -> None:
    first, second = write_rows(table_of(), FileFormat.JSON).splitlines()
    assert json.loads(first) == {name: shown for name, (_, _, shown) in VALUES.items()}
    assert second == b"{}"


def test_json_lines_may_be_nested() -> None:
    nested = pa.array([{"x": [1, None], "y": {"k": 2}}, None], NESTED)
    first, second = write_rows(pa.table({"n": nested}), FileFormat.JSON).splitlines()
    assert json.loads(first) == {"n": {"x": [1, None], "y": {"k": 2}}}
    assert second == b"{}"


def test_numbers_that_json_does_not_have_are_texts() -> None:
    """As Spark writes them; null, or a bare NaN, would be another value, or no JSON."""
    numbers = [float("nan"), float("-inf"), 1.5]
    flat = write_rows(pa.table({"v": numbers}), FileFormat.JSON).decode()
    assert [json.loads(line)["v"] for line in flat.splitlines()] == ["NaN", "-Infinity", 1.5]
    nested = write_rows(pa.table({"v": pa.array([numbers])}), FileFormat.JSON).decode()
    assert json.loads(nested, parse_constant=pytest.fail) == {"v": ["NaN", "-Infinity", 1.5]}
