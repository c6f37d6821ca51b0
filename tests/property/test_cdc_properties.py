"""Change events in any order and any batches, with repeats and crashes, leave the table that their sequences imply."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

import barnabas.spark.pipelines.cdc.delta as delta
from barnabas.spark.pipelines.cdc.merging import DELETED, SEQUENCE

_directories = itertools.count()
SCHEMA = StructType([StructField("id", IntegerType()), StructField("v", LongType()), StructField(SEQUENCE, LongType())])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[dict[int, tuple[int, bool]], bool]]:
    """Batches of the newest event by key: its sequence, and whether it deletes; and whether the driver dies between the
    two merges of the batch, and repeats it. Each sequence of a key is one event, so that every order has one result.
    """
    kinds = {(key, n): draw(st.booleans()) for key in range(3) for n in range(5)}
    events = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=12))
    size = draw(st.integers(1, 4))
    batches = []
    for start in range(0, len(events), size):
        newest: dict[int, tuple[int, bool]] = {}
        for key, n in events[start : start + size]:
            newest[key] = max(newest.get(key, (-1, False)), (n, kinds[key, n]))
        batches.append((newest, draw(st.booleans())))
    return batches


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories())
def test_the_newest_event_of_each_key_decides(tmp_path: Path, history: Any) -> None:
    table = delta.DeltaChangeTable(str(tmp_path / str(next(_directories)) / "t"), ("id",), (SEQUENCE,))
    table.create(SCHEMA)
    newest: dict[int, tuple[int, bool]] = {}
    for events, dies in history:
        arrow = pa.table(
            {
                "id": pa.array(list(events), pa.int32()),
                "v": pa.array([n for n, _ in events.values()], pa.int64()),
                SEQUENCE: pa.array([n for n, _ in events.values()], pa.int64()),
                DELETED: [deletes for _, deletes in events.values()],
            }
        )
        if dies:
            _apply_until_the_table(table, arrow)
        table.apply(arrow)
        for key, event in events.items():
            newest[key] = max(newest.get(key, event), event)
    from deltalake import DeltaTable

    found = {row["id"]: row["v"] for row in DeltaTable(table.location).to_pyarrow_table().to_pylist()}
    assert found == {key: n for key, (n, deletes) in newest.items() if not deletes}


def _apply_until_the_table(table: delta.DeltaChangeTable, events: pa.Table) -> None:
    """The first merge happens, the second does not."""
    merge = delta._merge

    def dying(location: str, *more: Any) -> None:
        if location != table.location:
            merge(location, *more)

    delta._merge = dying
    try:
        table.apply(events)
    finally:
        delta._merge = merge
