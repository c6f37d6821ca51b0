"""Lines of a growing text file, and files of a growing directory, each read once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.connectors.files.errors import FileReadError
from barnabas.spark.connectors.files.formats import avro_columns
from barnabas.spark.connectors.files.options import parse_file_source
from barnabas.spark.connectors.files.planning import (
    LINE_COLUMNS,
    AvroOffset,
    DirectoryFile,
    files_after,
    line_batches,
    line_records,
    next_files,
)
from barnabas.spark.connectors.files.source import FileStreamReader, file_schema
from barnabas.spark.connectors.files.textfile import TextFile
from barnabas.spark.errors import OptionError

LINES = pa.schema([("value", pa.string()), ("topic", pa.string()), ("file", pa.string()), ("position", pa.int64())])


def test_only_complete_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    file = TextFile(str(path))
    assert file.end_of_lines(0) == 0
    path.write_bytes(b"one\ntwo\nthr")
    assert file.end_of_lines(0) == 8
    path.write_bytes(b"one\ntwo\nthree\n")
    assert file.end_of_lines(8) == 14


def test_a_micro_batch_ends_with_a_line_within_its_limit_or_after_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"one\ntwo\n" + b"x" * 50 + b"\nend\n")
    file = TextFile(str(path))
    assert [file.end_of_lines(start, 9) for start in (0, 8, 59)] == [8, 59, 63]


def test_a_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"a\n")
    with pytest.raises(FileReadError, match="has 2 bytes, and 10 were read"):
        TextFile(str(path)).end_of_lines(10)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))), st.integers(1, 9))
def test_lines_come_back_with_their_positions(texts: list[str], size: int) -> None:
    content = "".join(f"{text}\n" for text in texts).encode()
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    rows = [row for batch in line_batches(chunks, 0, "f", "t", LINES) for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == texts
    assert all(content[row["position"] :].startswith(row["value"].encode()) for row in rows)


def test_bytes_that_are_no_text_are_an_error() -> None:
    with pytest.raises(FileReadError, match="f has a line at 3 that is no UTF-8"):
        list(line_batches([b"ok\n\xff\n"], 0, "f", None, LINES))


# -- directories -------------------------------------------------------------------------------------------------------


def files(*times: int) -> list[DirectoryFile]:
    return sorted(DirectoryFile(time, f"f{index}", 10) for index, time in enumerate(times))


@given(st.lists(st.integers(0, 4), max_size=8), st.lists(st.integers(5, 9), max_size=5), st.integers(1, 40))
def test_every_file_is_in_one_micro_batch(first: list[int], later: list[int], limit: int) -> None:
    read: list[str] = []
    offset = AvroOffset()
    for listed in (files(*first), files(*first, *later)):
        while True:
            end = next_files(listed, offset, limit)
            if end == offset:
                break
            read += [file.path for file in files_after(listed, offset, end)]
            offset = AvroOffset.from_json(json.loads(json.dumps(end.to_json())))
    assert sorted(read) == sorted(file.path for file in files(*first, *later))


def test_another_file_of_the_name_stops_the_query_wherever_its_lines_end(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"old {number}\n" for number in range(1000)))
    texts = {"file": str(path)}
    reader = FileStreamReader(parse_file_source(texts), LINES)
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert len(reader.partitions(reader.initialOffset(), first)) == 1
    assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first
    adopted = {"position": first["position"]}  # of an earlier release
    assert reader.latestOffset(adopted, reader.getDefaultReadLimit()) == adopted
    with path.open("a") as file:
        file.write("more\n")
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert second == reader.latestOffset(adopted, reader.getDefaultReadLimit())
    path.rename(tmp_path / "lines.txt.1")
    path.write_text("".join(f"new {number}\n" for number in range(2000)))
    for replan in (
        lambda: reader.latestOffset(first, reader.getDefaultReadLimit()),
        lambda: reader.partitions(first, second),
    ):
        with pytest.raises(FileReadError, match=r"lines.txt was replaced: its content before the position"):
            replan()


def test_a_file_with_an_old_time_stops_the_query() -> None:
    end = next_files(files(5, 6), AvroOffset(), None)
    with pytest.raises(FileReadError, match="1 files have appeared with times of modification before"):
        next_files(files(5, 6, 3), end, None)


def test_a_file_that_was_removed_does_not_hide_one_with_an_old_time() -> None:
    end = next_files(files(5, 6), AvroOffset(), None)
    shorter = [file for file in files(5, 6, 7) if file.time_ns != 5]
    end = next_files(shorter, end, None)
    with pytest.raises(FileReadError, match="have appeared"):
        next_files([DirectoryFile(1, "late", 10), *shorter], end, None)


def test_files_that_take_the_places_of_others_stop_the_query() -> None:
    end = next_files(files(5, 6), AvroOffset(), None)
    for replaced in ([DirectoryFile(4, "f0", 10)], [DirectoryFile(5, "f0", 11)], [DirectoryFile(3, "other", 10)]):
        with pytest.raises(FileReadError, match="have been replaced by others"):
            next_files([*replaced, DirectoryFile(6, "f1", 10)], end, None)
    again = AvroOffset.from_json({**end.to_json(), "time": 6, "sum": None})  # of an earlier release
    assert next_files(files(5, 6), again, None) == again
    assert next_files(files(5, 6, 7), again, None) == next_files(files(5, 6, 7), end, None)


def write_avro(path: Path, rows: list[dict[str, Any]], time_ns: int) -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows)
    os.utime(path, ns=(time_ns, time_ns))


def test_avro_files_are_read_in_micro_batches(tmp_path: Path) -> None:
    import datetime
    from decimal import Decimal

    now = datetime.datetime(2026, 11, 23, 10, 0, 0, 5000, datetime.UTC)
    row = {"at": now, "price": Decimal("1.50")}
    write_avro(tmp_path / "a.avro", [{"id": 1, **row}, {"id": 2, **row, "at": None}], 10)
    (tmp_path / "_hidden.avro").write_bytes(b"no Avro")
    given = {"path": str(tmp_path), "file.format": "avro"}
    assert file_schema(given) == "`id` bigint, `at` timestamp, `price` decimal(9,2)"
    options = parse_file_source(given)
    with (tmp_path / "a.avro").open("rb") as file:
        columns = avro_columns(fastavro.reader(file).writer_schema)
    reader = FileStreamReader(options, columns)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    write_avro(tmp_path / "b.avro", [{"id": 3, **row}], 20)
    (task,) = reader.partitions(start, end)
    found = [each for batch in reader.read(task) for each in batch.to_pylist()]
    assert found == [{"id": 1, **row}, {"id": 2, **row, "at": None}]
    (task,) = reader.partitions(end, reader.latestOffset(end, reader.getDefaultReadLimit()))
    assert [each["id"] for batch in reader.read(task) for each in batch.to_pylist()] == [3]


def test_a_file_that_is_no_avro_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.avro").write_bytes(b"no Avro")
    with pytest.raises(FileReadError, match=r"x\.avro is no Avro file"):
        file_schema({"path": str(tmp_path), "file.format": "avro"})


def test_lines_are_records_with_converters_and_transforms() -> None:
    texts = {
        "file": "/f",
        "topic": "lines",
        "value.converter": "JsonConverter",
        "transforms": "hoist,route,no",
        "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoist.field": "line",
        "transforms.route.type": "RegexRouter",
        "transforms.route.regex": "(.*)",
        "transforms.route.replacement": "all-$1",
        "transforms.no.type": "Filter",
        "transforms.no.predicate": "tomb",
        "predicates": "tomb",
        "predicates.tomb.type": "RecordIsTombstone",
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
    }
    options = parse_file_source(texts)
    assert options.records is not None
    lines = line_batches([b"a\nb\n"], 0, "f", options.topic, LINE_COLUMNS)
    found = [row for batch in line_records(lines, options.records) for row in batch.to_pylist()]
    assert found == [
        {"topic": "all-lines", "key": None, "value": value, "headers": [], "timestamp": None}
        for value in (b'{"line":"a"}', b'{"line":"b"}')
    ]


def test_a_line_is_the_text_that_connects_source_has() -> None:
    lines = line_batches([b"a\n"], 0, "f", "t", LINE_COLUMNS)
    (batch,) = line_records(lines, {"value.converter": "JsonConverter"})
    assert batch.to_pylist()[0]["value"] == b'{"schema":{"type":"string","optional":false},"payload":"a"}'


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"file": "/f", "value.converter": "StringConverter"}, "topic must be given"),
        ({"file": "/f", "topic": "t", "value.converter": "Mine"}, "names no converter"),
        ({"file": "/f", "topic": "t", "errors.tolerance": "some"}, "none or all"),
        ({"path": "/d", "file.format": "avro", "topic": "t", "transforms": "a"}, "one text file"),
    ],
)
def test_wrong_options_of_records_are_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_file_source(texts)
