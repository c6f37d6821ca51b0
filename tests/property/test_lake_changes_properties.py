"""The changes of one micro-batch folded into one for each key, compared with a model that applies them one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.connectors.lake.changes import KeyedRows, fold
from barnabas.spark.connectors.lake.iceberg_merge import kept_rows, upserted_rows

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.string())])
values = {"a": st.one_of(st.none(), st.integers(0, 9)), "b": st.one_of(st.none(), st.sampled_from("xyz"))}
change = st.one_of(
    st.fixed_dictionaries({"k": st.integers(0, 4)}, optional=values),
    st.builds(lambda key: {"k": key, "deleted": True}, st.integers(0, 4)),
)
old_row = st.fixed_dictionaries({"k": st.integers(0, 4), **values})


def parts_of(changes: list[dict[str, Any]]) -> list[KeyedRows]:
    """Rows with the same columns together, as they are staged; deleted rows are with the first ones."""
    found: dict[tuple[str, ...], list[tuple[int, dict[str, Any]]]] = {}
    for order, row in enumerate(changes):
        names = tuple(name for name in SCHEMA.names if name in row)
        found.setdefault(names, []).append((order, row))
    return [
        KeyedRows(
            pa.table({name: pa.array([row[name] for _, row in rows], SCHEMA.field(name).type) for name in names}),
            pa.array(["deleted" in row for _, row in rows]),
            pa.array([order for order, _ in rows], pa.int64()),
        )
        for names, rows in found.items()
    ]


@given(st.lists(old_row, max_size=5, unique_by=lambda row: row["k"]), st.lists(change, min_size=1, max_size=12))
def test_folded_changes_have_the_effect_of_all_changes(
    old: list[dict[str, Any]], changes: list[dict[str, Any]]
) -> None:
    model = {row["k"]: dict(row) for row in old}
    for row in changes:
        if "deleted" in row:
            model.pop(row["k"], None)
        else:
            model[row["k"]] = {"a": None, "b": None, **model.get(row["k"], {}), **row}
    folded = fold(parts_of(changes), ("k",), SCHEMA)
    before = pa.Table.from_pylist(old, SCHEMA)
    keys = pa.concat_tables([folded.upserts.select(["k"]), folded.deletes])
    kept, changed = kept_rows(before, keys)
    after = pa.concat_tables([kept, upserted_rows(folded, changed, SCHEMA)])
    assert sorted(after.to_pylist(), key=lambda row: row["k"]) == sorted(model.values(), key=lambda row: row["k"])
