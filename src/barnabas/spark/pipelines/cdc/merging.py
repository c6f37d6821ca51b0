"""Machine: which change events win, and the MERGE conditions that apply the winners (`create_auto_cdc_flow`).

The rules are those of Spark's AUTO CDC with SCD type 1. For each key, the event with the greatest sequence decides: the
table has its row, or no row if the event is a delete. Events may come late and twice, in one micro-batch or in several:

    a row of the table    keeps the sequence of its event, in hidden columns
    a deleted key         keeps the sequence of its delete as a row of a second table, the tombstones

A micro-batch is applied in three steps, each of which may be repeated:

    1  drop the events that are older than the tombstone of their key
    2  MERGE into the tombstones: a newer delete replaces the tombstone, an upsert that is not older removes it
    3  MERGE into the table: a newer delete removes the row, a newer upsert replaces it, else the upsert is inserted

If the driver dies between 2 and 3, the repeated micro-batch finds in step 1 only tombstones of its own deletes, which
are not newer than their events, and applies step 3. If it dies after 3, no event is newer than its row.

A sequence that is a struct is kept as one column for each field, and compared field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from barnabas.spark.pipelines.errors import GraphError

RESERVED_PREFIX: Final = "__autocdc_"
"""Columns and tables with this prefix belong to AUTO CDC."""
SEQUENCE: Final = f"{RESERVED_PREFIX}sequence"
DELETED: Final = f"{RESERVED_PREFIX}deleted"
ORDERABLE_TYPES: Final = frozenset(
    {
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "decimal",
        "string",
        "binary",
        "boolean",
        "date",
        "timestamp",
        "timestamp_ntz",
    }
)
"""Spark's names of the types that keys and sequences may have."""


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """The rules of a flow. `sequence_by` and `apply_as_deletes` are SQL text or Spark's Column."""

    keys: tuple[str, ...]
    sequence_by: Any
    apply_as_deletes: Any = None
    columns: tuple[str, ...] = ()
    except_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeClauses:
    """The conditions of a MERGE of events (`source`) into a table (`target`), as SQL."""

    on: str
    delete: str
    update: str
    insert: str


def is_hidden(column: str) -> bool:
    return column.lower().startswith(RESERVED_PREFIX)


def sequence_columns(fields: int) -> tuple[str, ...]:
    """The names of the columns that keep a sequence, which is a struct of so many fields; 0 if it is not a struct."""
    return tuple(f"{SEQUENCE}_{number}" for number in range(fields)) or (SEQUENCE,)


def spelled(names: Iterable[str], available: Iterable[str]) -> tuple[str, ...]:
    """The names as the source spells them: Spark compares names without regard to case."""
    known = {name.lower(): name for name in available}
    return tuple(known[name.lower()] for name in names)


def table_columns(available: Sequence[str], rules: ChangeRules) -> list[str]:
    """The columns of the source that the table has, in the order of the source. Raises GraphError."""
    known = {name.lower(): name for name in available}
    for name in (*rules.keys, *rules.columns, *rules.except_columns):
        if name.lower() not in known:
            near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
            hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(available)}"
            raise GraphError(f"the source has no column {name}: {hint}")
    reserved = [name for name in available if is_hidden(name)]
    if reserved:
        raise GraphError(f"the name of the column {reserved[0]} is reserved: rename it in the source")
    chosen = {name.lower() for name in rules.columns or available} - {name.lower() for name in rules.except_columns}
    missing = [key for key in rules.keys if key.lower() not in chosen]
    if missing:
        raise GraphError(f"the key {missing[0]} is not among the columns of the table, which needs it to find its rows")
    return [name for name in available if name.lower() in chosen]


def check_type(what: str, type_name: str) -> None:
    """Raise GraphError if values of the type cannot be compared."""
    if type_name not in ORDERABLE_TYPES:
        raise GraphError(f"{what} is of the type {type_name}, which has no order; use a number, text, a date or a time")


def table_clauses(keys: Iterable[str], sequences: Sequence[str]) -> MergeClauses:
    """How events are merged into the table (step 3)."""
    newer, deleted = _newer(sequences), f"source.`{DELETED}`"
    return MergeClauses(
        on=_same(keys),
        delete=f"{deleted} AND {newer}",
        update=f"NOT {deleted} AND {newer}",
        insert=f"NOT {deleted}",
    )


def tombstone_clauses(keys: Iterable[str], sequences: Sequence[str]) -> MergeClauses:
    """How events are merged into the tombstones (step 2). An upsert wins over a delete of the same sequence."""
    deleted = f"source.`{DELETED}`"
    return MergeClauses(
        on=_same(keys),
        delete=f"NOT {deleted} AND {_newer(sequences, or_equal=True)}",
        update=f"{deleted} AND {_newer(sequences)}",
        insert=deleted,
    )


def current_events(
    keys: Sequence[tuple[Any, ...]],
    sequences: Sequence[tuple[Any, ...]],
    tombstones: Mapping[tuple[Any, ...], tuple[Any, ...]],
) -> list[bool]:
    """For each event, given by its key and its sequence: whether it is not older than the tombstone of its key (step
    1). `tombstones` has the sequences of deletes by key.
    """
    return [key not in tombstones or sequence >= tombstones[key] for key, sequence in zip(keys, sequences, strict=True)]


def _same(keys: Iterable[str]) -> str:
    return " AND ".join(f"target.`{key}` = source.`{key}`" for key in keys)


def _newer(sequences: Sequence[str], *, or_equal: bool = False) -> str:
    """Whether the event is newer than the row: the first field that differs decides."""
    *before, last = sequences
    condition = f"source.`{last}` {'>=' if or_equal else '>'} target.`{last}`"
    for name in reversed(before):
        left, right = f"source.`{name}`", f"target.`{name}`"
        condition = f"({left} > {right} OR ({left} = {right} AND {condition}))"
    return condition
