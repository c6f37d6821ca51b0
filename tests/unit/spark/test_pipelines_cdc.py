"""Change events: which win, how they are merged, and what `create_auto_cdc_flow` refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from barnabas.spark.pipelines.cdc.arguments import ChangeFlow, change_rules
from barnabas.spark.pipelines.cdc.delta import DeltaChangeTable, tombstones_location
from barnabas.spark.pipelines.cdc.events import check_values
from barnabas.spark.pipelines.cdc.merging import (
    DELETED,
    ChangeRules,
    MergeClauses,
    check_type,
    current_events,
    sequence_columns,
    spelled,
    table_clauses,
    table_columns,
    tombstone_clauses,
)
from barnabas.spark.pipelines.errors import ChangeEventError, DefinitionError, GraphError

S = "__autocdc_sequence"


def test_the_conditions_of_the_merges() -> None:
    newer = f"source.`{S}` > target.`{S}`"
    assert table_clauses(["id", "shop"], [S]) == MergeClauses(
        on="target.`id` = source.`id` AND target.`shop` = source.`shop`",
        delete=f"source.`{DELETED}` AND {newer}",
        update=f"NOT source.`{DELETED}` AND {newer}",
        insert=f"NOT source.`{DELETED}`",
    )
    assert tombstone_clauses(["id"], [S]) == MergeClauses(
        on="target.`id` = source.`id`",
        delete=f"NOT source.`{DELETED}` AND source.`{S}` >= target.`{S}`",
        update=f"source.`{DELETED}` AND {newer}",
        insert=f"source.`{DELETED}`",
    )


def test_a_sequence_of_several_fields_is_compared_field_by_field() -> None:
    a, b = sequence_columns(2)
    assert (sequence_columns(0), a, b) == ((S,), f"{S}_0", f"{S}_1")
    condition = table_clauses(["id"], [a, b]).delete.removeprefix(f"source.`{DELETED}` AND ")
    assert condition == (
        f"(source.`{a}` > target.`{a}` OR (source.`{a}` = target.`{a}` AND source.`{b}` > target.`{b}`))"
    )


def test_an_event_older_than_the_tombstone_of_its_key_is_dropped() -> None:
    keys, sequences = [(1,), (1,), (1,), (2,)], [(4,), (5,), (6,), (1,)]
    assert current_events(keys, sequences, {(1,): (5,)}) == [False, True, True, True]


def test_the_columns_of_the_table() -> None:
    available = ["id", "Name", "op"]
    assert table_columns(available, ChangeRules(("ID",), "n")) == ["id", "Name", "op"]
    assert table_columns(available, ChangeRules(("id",), "n", columns=("name", "id"))) == ["id", "Name"]
    assert table_columns(available, ChangeRules(("id",), "n", except_columns=("OP",))) == ["id", "Name"]
    assert spelled(("ID", "name"), available) == ("id", "Name")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (ChangeRules(("idd",), "n"), "the source has no column idd: did you mean id?"),
        (ChangeRules(("id",), "n", columns=("zzz",)), "the source has no column zzz: there are id, __autocdc_x"),
        (ChangeRules(("id",), "n", except_columns=("id",)), "the name of the column __autocdc_x is reserved"),
    ],
)
def test_columns_that_do_not_fit(rules: ChangeRules, message: str) -> None:
    with pytest.raises(GraphError, match=message.replace("?", r"\?")):
        table_columns(["id", "__autocdc_x"], rules)


def test_a_key_that_the_table_lacks_and_a_type_without_an_order() -> None:
    with pytest.raises(GraphError, match="the key id is not among the columns"):
        table_columns(["id", "n"], ChangeRules(("id",), "n", columns=("n",)))
    with pytest.raises(GraphError, match="sequence_by is of the type map, which has no order"):
        check_type("sequence_by", "map")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "history": ({"stored_as_scd_type": "2"}, "stored_as_scd_type=2 keeps the history of each row"),
    "an unknown type": ({"stored_as_scd_type": 3}, "stored_as_scd_type must be 1 or 2, not 3"),
    "tracked columns": ({"track_history_column_list": ["a"]}, "only be given with stored_as_scd_type=2"),
    "both lists": ({"column_list": ["a"], "except_column_list": ["b"]}, "not both"),
    "no key": ({"keys": []}, "keys must have at least one column"),
    "a key alone": ({"keys": "id"}, "keys must be a list of columns, not 'id'"),
    "a qualified key": ({"keys": ["t.id"]}, "keys must have names of columns such as 'id', not 't.id'"),
    "no order": ({"sequence_by": None}, "sequence_by must be an expression"),
    "a source that is no name": ({"source": 3}, "source must be the name of a table, not int"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_arguments_that_are_refused(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(DefinitionError) as caught:
        change_rules(ChangeFlow(**{"target": "t", "source": "s", "keys": ["id"], "sequence_by": "n", **given}))
    assert message in str(caught.value)


def test_arguments_have_the_names_of_pyspark() -> None:
    assert change_rules(ChangeFlow.of("t", "s", ["id"], "n", "op = 'D'", except_column_list=["op"])) == ChangeRules(
        ("id",), "n", "op = 'D'", except_columns=("op",)
    )
    with pytest.raises(TypeError, match="create_auto_cdc_flow"):
        ChangeFlow.of("t", "s", ["id"], "n", ignore_null_updates=True)


def test_the_arguments_are_those_of_pyspark() -> None:
    import inspect

    from pyspark.pipelines import create_auto_cdc_flow

    assert list(inspect.signature(create_auto_cdc_flow).parameters) == list(inspect.signature(ChangeFlow).parameters)


# -- merged into a real table ----------------------------------------------------------------------------------------

Event = tuple[int, str, int, bool]
"""The key, a value, the sequence, and whether the event deletes."""

COLUMNS = [StructField("id", IntegerType()), StructField("name", StringType()), StructField(S, LongType())]


@pytest.fixture
def customers(tmp_path: Path) -> DeltaChangeTable:
    table = DeltaChangeTable(str(tmp_path / "customers"), ("id",), (S,))
    table.create(StructType(COLUMNS))
    return table


def batch(*events: Event) -> Any:
    """The newest event of each key, as Spark leaves them."""
    import pyarrow as pa

    newest: dict[int, Event] = {}
    for event in events:
        if event[0] not in newest or (event[2], not event[3]) > (newest[event[0]][2], not newest[event[0]][3]):
            newest[event[0]] = event
    ids, names, sequences, deletes = zip(*newest.values(), strict=True)
    return pa.table(
        {"id": pa.array(ids, pa.int32()), "name": names, S: pa.array(sequences, pa.int64()), DELETED: deletes}
    )


def rows(location: str) -> list[tuple[Any, ...]]:
    from deltalake import DeltaTable

    found = DeltaTable(location).to_pyarrow_table().to_pylist()
    return sorted(tuple(value for name, value in row.items() if name != S) for row in found)


def version(location: str) -> int:
    from deltalake import DeltaTable

    return DeltaTable(location).version()


def test_events_are_inserted_replaced_and_deleted(customers: DeltaChangeTable) -> None:
    customers.apply(batch((1, "alice", 1, False), (2, "bob", 1, False)))
    customers.apply(batch((1, "alicia", 2, False), (2, "bob", 2, True), (3, "carol", 1, False), (1, "alice", 1, False)))
    assert rows(customers.location) == [(1, "alicia"), (3, "carol")]
    assert rows(customers.tombstones) == [(2,)]


def test_a_late_event_neither_replaces_a_row_nor_brings_a_deleted_one_back(customers: DeltaChangeTable) -> None:
    customers.apply(batch((1, "new", 5, False), (2, "", 5, True)))
    customers.apply(batch((1, "old", 4, False), (2, "old", 4, False)))
    assert (rows(customers.location), rows(customers.tombstones)) == ([(1, "new")], [(2,)])
    customers.apply(batch((1, "", 4, True)))
    assert rows(customers.location) == [(1, "new")]
    customers.apply(batch((2, "back", 6, False)))
    assert (rows(customers.location), rows(customers.tombstones)) == ([(1, "new"), (2, "back")], [(1,)])


def test_a_repeated_micro_batch_changes_nothing(customers: DeltaChangeTable) -> None:
    customers.apply(batch((1, "a", 1, False), (2, "b", 1, False)))
    events = batch((1, "", 2, True), (2, "c", 2, False))
    customers.apply(events)
    before = rows(customers.location), rows(customers.tombstones)
    customers.apply(events)
    assert (rows(customers.location), rows(customers.tombstones)) == before == ([(2, "c")], [(1,)])


@pytest.mark.parametrize("deleted_first", [True, False])
def test_a_driver_that_dies_between_the_two_tables(
    customers: DeltaChangeTable, monkeypatch: pytest.MonkeyPatch, deleted_first: bool
) -> None:
    import barnabas.spark.pipelines.cdc.delta as delta

    customers.apply(batch((1, "a", 1, False), (2, "", 1, True)))
    events = batch((1, "", 2, True), (2, "b", 2, False)) if deleted_first else batch((2, "b", 2, False))
    merge: Callable[..., object] = delta._merge

    def dying(location: str, *more: Any) -> None:
        if location == customers.location:
            raise ConnectionError("the driver dies")
        merge(location, *more)

    with monkeypatch.context() as patch:
        patch.setattr(delta, "_merge", dying)
        with pytest.raises(ConnectionError):
            customers.apply(events)
    assert rows(customers.location) == [(1, "a")]
    customers.apply(events)
    expected = [(2, "b")] if deleted_first else [(1, "a"), (2, "b")]
    assert rows(customers.location) == expected
    assert rows(customers.tombstones) == ([(1,)] if deleted_first else [])


def test_a_batch_of_old_events_writes_no_version(customers: DeltaChangeTable) -> None:
    customers.apply(batch((1, "", 5, True)))
    before = version(customers.location)
    customers.apply(batch((1, "old", 4, False)))
    assert version(customers.location) == before


def test_columns_that_are_added_later_are_null_in_older_rows(customers: DeltaChangeTable) -> None:
    customers.apply(batch((1, "a", 1, False)))
    customers.add_columns([StructField("vip", BooleanType())])
    assert customers.schema().names == ["id", "name", S, "vip"]
    customers.apply(batch((2, "b", 1, False)))
    assert rows(customers.location) == [(1, "a", None), (2, "b", None)]


def test_an_event_without_a_value_that_its_source_has_is_refused() -> None:
    """The newest event of a key would hide the value that an older event has, perhaps in this micro-batch."""
    lost = "__debezium_unavailable_value"

    def events(note: str, deleted: bool) -> Any:
        return pa.table({"id": [1, 2], "note": ["a", note], "__autocdc_deleted": [False, deleted]})

    check_values(events("b", False), "f", 7)
    check_values(events(lost, True), "f", 7)
    with pytest.raises(ChangeEventError, match=r"micro-batch 7 of f has events without the value of note.*reselect"):
        check_values(events(lost, False), "f", 7)


def test_where_tombstones_are() -> None:
    assert tombstones_location("s3://lake/db.db/customers") == "s3://lake/db.db/__autocdc_customers"


def test_files_without_keys_of_the_micro_batch_are_not_read(customers: DeltaChangeTable) -> None:
    import barnabas.spark.pipelines.cdc.delta as delta

    for start in (0, 10, 20):
        customers.apply(batch(*((key, "a", 1, False) for key in range(start, start + 10))))
    metrics = delta._merge(customers.location, batch((15, "b", 2, False)), table_clauses(["id"], [S]))
    assert (metrics["num_target_files_scanned"], metrics["num_target_files_skipped_during_scan"]) == (1, 2)
