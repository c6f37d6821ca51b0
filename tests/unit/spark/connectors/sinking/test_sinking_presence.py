"""Values that their source did not send: how records and rows say so, and what sinks do with such rows."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from barnabas.spark.connectors.events.presence import UNAVAILABLE_HEADER
from barnabas.spark.connectors.files.opening import file_plan
from barnabas.spark.connectors.http.texts import record_texts, unsent_members
from barnabas.spark.connectors.lake.opening import delta_plan
from barnabas.spark.connectors.sinking.ports import AttemptId, BatchId
from barnabas.spark.connectors.sinking.presence import placeholders_in, unsent_in_columns, unsent_in_records
from barnabas.spark.connectors.sinking.writer import SinkPlan, stage_rows
from barnabas.spark.errors import SinkError

QUERY = "6f1e3c8a-0000-4000-8000-000000000001"
LOST = "__debezium_unavailable_value"
UPSERT = {"insert.mode": "upsert", "pk.fields": "id", "delete.enabled": "true"}
HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def write(plan: SinkPlan, number: int, *batches: Any) -> None:
    parts = stage_rows(iter(batches), plan, AttemptId(QUERY, "run", number, 0, 0)).parts
    plan.target.publish(BatchId(QUERY, number), parts)


def rows(*values: tuple[int, str | None, str, list[str] | None]) -> Any:
    """(id, note, __op, __unavailable)"""
    names = ("id", "note", "__op", "__unavailable")
    kinds = (pa.int64(), pa.string(), pa.string(), pa.list_(pa.string()))
    columns = zip(*values, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], list(names)
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), LOST),
        (pa.string(), base64.b64encode(LOST.encode()).decode()),
        (pa.string(), LOST.encode().hex()),
        (pa.string(), json.dumps({LOST: LOST}, separators=(",", ":"))),
        (pa.binary(), LOST.encode()),
        (pa.list_(pa.string()), [LOST]),
        (pa.list_(pa.binary()), [LOST.encode()]),
        (pa.list_(pa.string()), [str(uuid.UUID(bytes=hashlib.md5(LOST.encode()).digest(), version=3))]),
        (pa.list_(pa.int64()), list(LOST.encode())),
        (pa.map_(pa.string(), pa.string()), [(LOST, LOST)]),
    ],
)
def test_the_placeholder_is_found_in_each_form_that_debezium_gives_it(kind: Any, value: Any) -> None:
    found = placeholders_in(pa.array([None, value], kind), LOST)
    assert found.tolist() == [False, True]
    assert placeholders_in(pa.array([None, None], kind), LOST) is None


def test_other_values_are_no_placeholders() -> None:
    assert placeholders_in(pa.array([[LOST, "b"], []], pa.list_(pa.string())), LOST) is None
    assert placeholders_in(pa.array([[1, 2]], pa.list_(pa.int64())), LOST) is None
    assert placeholders_in(pa.array([1.5]), LOST) is None


def test_a_header_says_more_than_a_text_that_a_user_may_have_written() -> None:
    columns = {"note": pa.array([LOST, LOST, LOST, LOST]), "n": pa.array([None, 1, 2, 3])}

    def header(names: str) -> list[dict[str, Any]]:
        return [{"key": "a", "value": b"b"}, {"key": UNAVAILABLE_HEADER, "value": names.encode()}]

    headers = pa.array([header('["note","n"]'), header("[]"), [], header('["renamed"]')], HEADERS)
    batch = pa.RecordBatch.from_arrays([headers], ["headers"])
    found = {name: mask.to_pylist() for name, mask in unsent_in_records(batch, columns, LOST).items()}
    # The last header names a field that a transform has renamed, so that the text counts.
    assert found == {"note": [True, False, True, True], "n": [True, False, False, False]}
    without = pa.RecordBatch.from_arrays([columns["n"]], ["offset"])
    assert unsent_in_records(without, columns, LOST)["note"].to_pylist() == [True] * 4


def test_rows_name_the_columns_that_were_not_sent() -> None:
    batch = rows((1, LOST, "c", None), (2, None, "u", ["note"]))
    assert {name: mask.to_pylist() for name, mask in unsent_in_columns(batch, LOST).items()} == {"note": [False, True]}


def test_a_row_of_a_lake_table_keeps_a_value_that_was_not_sent_in_any_batch(tmp_path: Path) -> None:
    plan = delta_plan({**UPSERT, "path": str(tmp_path / "t")})
    write(plan, 0, rows((1, "a", "c", None), (2, "b", "c", None)))
    write(plan, 1, rows((1, None, "u", ["note"]), (3, "c", "c", None), (3, None, "u", ["note"])))
    write(plan, 2, rows((2, "b2", "u", None), (2, None, "u", ["note"])))

    def found() -> list[dict[str, Any]]:
        table = DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
        return sorted(table.to_pylist(), key=lambda row: int(row["id"]))

    wanted = [{"id": 1, "note": "a"}, {"id": 2, "note": "b2"}, {"id": 3, "note": "c"}]
    assert found() == wanted
    with pytest.raises(SinkError, match=r"the row with id=9 is new to the table, and its source did not send.*note"):
        write(plan, 3, rows((1, "z", "u", None), (9, None, "u", ["note"])))
    with pytest.raises(SinkError, match=r"the row with id=1 is new to the table"):
        write(plan, 3, rows((1, None, "d", None), (1, None, "c", ["note"])))
    assert found() == wanted


def test_rows_that_are_appended_must_be_whole(tmp_path: Path) -> None:
    partial = rows((1, None, "u", ["note"]))
    for plan in (
        delta_plan({"path": str(tmp_path / "t")}),
        file_plan({"path": str(tmp_path / "f"), "file.format": "json"}),
    ):
        with pytest.raises(SinkError, match=r"its unchanged value of note, and insert\.mode=insert adds"):
            write(plan, 0, partial)


def test_requests_have_no_member_for_a_value_that_was_not_sent() -> None:
    batch = rows((1, "a", "c", None), (2, None, "u", ["note"]))
    unsent = unsent_members(batch, LOST, are_records=False)
    texts = [json.loads(one.text) for one in record_texts(batch, "q", 0, None, unsent)]
    assert texts[1] == {"id": 2, "__op": "u"}
    field = pa.field("value", pa.string(), metadata={"barnabas.format": "json"})
    values = pa.RecordBatch.from_arrays(
        [pa.array(['{"id":1}', json.dumps({"id": 2, "note": LOST})])], schema=pa.schema([field])
    )
    unsent = unsent_members(values, LOST, are_records=True)
    assert [one.text for one in record_texts(values, "q", 0, None, unsent)] == [b'{"id":1}', b'{"id":2}']
