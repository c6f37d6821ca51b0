"""Machine: what a table needs for the rows of a micro-batch, and the statements that apply the rows.

    check_rows      before rows are staged: whether the table can take them, with the statement to run if it cannot
    new_columns     the columns that the table does not have
    plan_changes    the statements of the transaction

Rows with different columns are applied in the order of their steps (`sinking/steps.py`), and in each step: deletes,
then one statement that inserts or changes. Steps are counted in each task, so tasks that may have the same keys are
applied one after the other. An upsert is two statements (change, then insert what is missing) if one
would not do: because the rows lack a column that must have a value, or because MySQL would also match other unique keys
than the one that the rows have. Rows whose source did not send a value only change rows that exist: a new row without
the value would have NULL, which the source does not have.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from barnabas.spark.connectors.sinking.options import InsertMode
from barnabas.spark.connectors.sinking.ports import StagedPart
from barnabas.spark.connectors.sinking.presence import has_no_column, is_new_without
from barnabas.spark.connectors.sql.dialects import Dialect, Statement, quote_for_display
from barnabas.spark.connectors.sql.sinks.column_types import common_field, created_column
from barnabas.spark.connectors.sql.sinks.errors import DatabaseSinkError
from barnabas.spark.connectors.sql.sinks.options import FILE_DIALECTS, SqlSinkOptions
from barnabas.spark.connectors.sql.sinks.ports import SqlTable, StageTable, TableColumn
from barnabas.spark.connectors.sql.sinks.statements import (
    KeyedChange,
    StagePart,
    add_column,
    create_table,
    display_path,
)


class StagedRowsPart(Struct, frozen=True):
    """A StagedPart with its stage (`StagedPart.place`)."""

    part: StagedPart
    stage: StageTable
    path: tuple[str, ...]


class Step(Struct, frozen=True):
    """A statement of the transaction. If it has a `refusal`, it is a query, and its first row is the key of a row that
    cannot be written: the refusal is the end of the message. If it has `kept`, it counts the rows that keep NULL in
    these columns, whose values were not sent.
    """

    statement: Statement
    refusal: str = ""
    kept: tuple[str, ...] = ()


def wanted_columns(
    dialect: Dialect, schemas: Sequence[Any], key: Sequence[str], collation: str = ""
) -> dict[str, TableColumn]:
    """The columns that rows of these Arrow schemas need, by their names, those of the key first. Columns that are null
    in all rows are left out. Raises DatabaseSinkError.
    """
    fields: dict[str, Any] = {}
    for schema in schemas:
        for field in schema:
            known = fields.get(field.name)
            fields[field.name] = field if known is None else common_field(known, field)
    names = [*key, *(name for name in fields if name not in key)]
    return {
        name: created_column(dialect, fields[name], is_key=name in key, collation=collation)
        for name in names
        if name in key or not pa.types.is_null(fields[name].type)
    }


def new_columns(options: SqlSinkOptions, table: SqlTable, wanted: Mapping[str, TableColumn]) -> list[TableColumn]:
    """The columns that the table does not have, as they are added. Raises DatabaseSinkError if they cannot be."""
    added = []
    lowered = {column.name.lower(): column.name for column in table.columns}
    shown = display_path(options.dialect, table.path)
    for name, column in wanted.items():
        if table.column(name) is not None:
            continue
        other = lowered.get(name.lower())
        if other is not None:
            raise DatabaseSinkError(
                f"the rows have the column {name}, and the table {shown} has {other}: they differ only in case. Rename"
                " one of them (transform ReplaceField, renames), or set quote.sql.identifiers=never if the table's"
                " names are in lower case"
            )
        statement = add_column(options.dialect, table.path, _nullable(column))
        if not column.nullable:
            raise DatabaseSinkError(
                f"the table {shown} has no column {name}, which is part of the key of the rows (pk.mode, pk.fields):"
                " add it with a unique key, or choose another key"
            )
        if not options.evolve:
            raise DatabaseSinkError(
                f"the table {shown} has no column {name}. Run: {statement}; or set auto.evolve=true, or leave the"
                " column out with fields.whitelist"
            )
        added.append(_nullable(column))
    return added


def check_rows(
    options: SqlSinkOptions,
    table: SqlTable,
    names: Sequence[str],
    key: Sequence[str],
    *,
    inserts: bool,
    unavailable: Sequence[str] = (),
) -> None:
    """Raise DatabaseSinkError if the table, as it is, cannot take rows with these columns. `inserts` is false if all
    rows only delete their keys. `unavailable` are the columns whose values were not sent.
    """
    shown = display_path(options.dialect, table.path)
    if table.problem:
        raise DatabaseSinkError(f"the table {shown} cannot be written: {table.problem}")
    mode = options.rows.insert_mode
    if not inserts:
        return
    absent = [name for name in unavailable if table.column(name) is None]
    if absent:
        raise DatabaseSinkError(f"the table {shown} {has_no_column(absent)}")
    if mode is InsertMode.INSERT and _required(table, names):
        column = _required(table, names)[0]
        raise DatabaseSinkError(
            f"the column {column} of the table {shown} is NOT NULL and has no default, and the rows do not have it."
            f" Run: {optional_column(options.dialect, table, column)}; or add the column to the rows"
        )
    if mode is InsertMode.UPSERT and not _is_unique(table, key):
        names_text = ", ".join(quote_for_display(options.dialect, name) for name in key)
        others = "; ".join(f"({', '.join(unique)})" for unique in table.unique_keys) or "none"
        reason = (
            "MySQL would change the rows that match another unique key"
            if options.dialect is Dialect.MYSQL
            else "without one, two rows can have the same key"
        )
        raise DatabaseSinkError(
            f"insert.mode=upsert needs a unique key on ({', '.join(key)}) of the table {shown}, which has {others}:"
            f" {reason}. Run: {_unique_key(options.dialect, table, names_text)}; or set pk.fields to one of its keys"
        )


def _unique_key(dialect: Dialect, table: SqlTable, names: str) -> str:
    """The statement that adds a unique key."""
    shown = display_path(dialect, table.path)
    if dialect in FILE_DIALECTS:
        return f"CREATE UNIQUE INDEX {quote_for_display(dialect, f'{table.path[-1]}_key')} ON {shown} ({names})"
    return f"ALTER TABLE {shown} ADD UNIQUE ({names})"


def missing_table(
    options: SqlSinkOptions, path: Sequence[str], columns: Mapping[str, TableColumn], key: Sequence[str]
) -> str:
    """The message for a table that does not exist and is not created."""
    statement = create_table(options.dialect, path, list(columns.values()), key)
    return (
        f"there is no table {display_path(options.dialect, path)}, or the user may not see it, and auto.create is"
        f" false. Run: {statement}; or set auto.create=true"
    )


def optional_column(dialect: Dialect, table: SqlTable, name: str) -> str:
    """The statement after which a column may be null."""
    column = table.column(name)
    shown, quoted = display_path(dialect, table.path), quote_for_display(dialect, name)
    if dialect is Dialect.MYSQL and column is not None:
        return f"ALTER TABLE {shown} MODIFY {quoted} {column.type} NULL"
    if dialect is Dialect.SQLITE:
        return (
            f"CREATE TABLE .. for a copy of {shown} in which {quoted} is not NOT NULL, as SQLite changes no constraint"
        )
    return f"ALTER TABLE {shown} ALTER COLUMN {quoted} DROP NOT NULL"


def plan_changes(options: SqlSinkOptions, table: SqlTable, parts: Sequence[StagedRowsPart]) -> list[Step]:
    """The steps that apply staged rows to a table that has all of their columns."""
    stages = [each.stage.name for each in parts]
    several = {name for name in stages if stages.count(name) > 1}
    planned: list[Step] = []
    is_ordered = options.rows.changes_keys and (len(_groups(table, parts)) > 1 or any(each.part.step for each in parts))
    for wave in _waves(parts) if is_ordered else [parts]:
        for step in sorted({each.part.step for each in wave}):
            groups = _groups(table, [each for each in wave if each.part.step == step])
            for group in sorted(groups.values(), key=_first):
                planned += _changes(options, table, group, several)
    return planned


def _groups(table: SqlTable, parts: Sequence[StagedRowsPart]) -> dict[Hashable, list[StagedRowsPart]]:
    """The parts that can be applied together, as far as their columns are concerned."""
    groups: dict[Hashable, list[StagedRowsPart]] = {}
    for each in parts:
        present = frozenset(name for name in each.stage.names if table.column(name) is not None)
        groups.setdefault((present, each.part.key, each.part.unavailable), []).append(each)
    return groups


def _waves(parts: Sequence[StagedRowsPart]) -> list[list[StagedRowsPart]]:
    """Parts that are applied one after the other: those of a wave are of one task, or of tasks that read other
    partitions, and so have other keys. A later task of a partition has later records.
    """
    tasks: dict[int, list[StagedRowsPart]] = {}
    for each in parts:
        tasks.setdefault(each.part.partition, []).append(each)
    waves: list[list[StagedRowsPart]] = []
    last: dict[str, int] = {}  # the newest wave with records of a partition
    floor = 0  # the first wave that a task may be in: after all tasks of unknown partitions
    for _, found in sorted(tasks.items()):
        origins = found[0].part.origins
        at = len(waves) if origins is None else max([floor, *(last[name] + 1 for name in origins if name in last)])
        if origins is None:
            floor = at + 1
        else:
            last |= dict.fromkeys(origins, at)
        waves += [[] for _ in range(at + 1 - len(waves))]
        waves[at] += found
    return waves


def _first(group: Sequence[StagedRowsPart]) -> tuple[int, int]:
    """Where the rows of a group begin. Rows without a key are inserted in about their order."""
    return min((each.part.partition, each.part.first_order) for each in group)


def _changes(
    options: SqlSinkOptions, table: SqlTable, group: Sequence[StagedRowsPart], several: set[str]
) -> list[Step]:
    key = group[0].part.key
    names = tuple(name for name in group[0].stage.names if table.column(name) is not None)
    columns = [table.column(name) for name in names]
    change = KeyedChange(
        options.dialect,
        table.path,
        key,
        names,
        tuple(
            StagePart(
                each.stage, each.path, each.part.partition, each.part.step if each.stage.name in several else None
            )
            for each in sorted(group, key=lambda each: (each.part.partition, each.stage.name))
        ),
        tuple(column.type for column in columns if column is not None) if options.dialect is Dialect.POSTGRES else (),
    )
    deletes = sum(each.part.deletes for each in group)
    planned = [Step(change.delete())] if deletes else []
    if deletes == sum(each.part.rows for each in group):
        return planned
    mode = options.rows.insert_mode
    unavailable = group[0].part.unavailable
    if mode is InsertMode.INSERT:
        return [*planned, Step(change.insert(deletes=deletes > 0))]
    if mode is InsertMode.UPSERT and not unavailable and _is_safe_upsert(options.dialect, table, names, key):
        return [*planned, Step(change.upsert(deletes=deletes > 0))]
    update = change.update()
    if update is not None:
        planned.append(Step(update))
    if mode is InsertMode.UPSERT:
        required = _required(table, names)
        if unavailable:
            planned.append(Step(change.missing(), is_new_without(unavailable)))
            planned.append(Step(change.kept_nulls(unavailable), kept=unavailable))
        elif required:
            planned.append(Step(change.missing(), _lacks(options.dialect, table, required[0])))
        else:
            planned.append(Step(change.insert_missing()))
    return planned


def _lacks(dialect: Dialect, table: SqlTable, name: str) -> str:
    return (
        f"is new, and has no value for the column {name}, which is NOT NULL and has no default. Run:"
        f" {optional_column(dialect, table, name)}; or give the rows the column"
    )


def _is_safe_upsert(dialect: Dialect, table: SqlTable, names: Sequence[str], key: Sequence[str]) -> bool:
    """Whether one statement that inserts or changes does what it should."""
    if _required(table, names):
        return False
    return dialect is not Dialect.MYSQL or all(set(unique) == set(key) for unique in table.unique_keys)


def _required(table: SqlTable, names: Sequence[str]) -> list[str]:
    """The columns that a row to be inserted must have, and rows with these columns do not have."""
    return [
        column.name
        for column in table.columns
        if not column.nullable and not column.has_default and column.name not in names
    ]


def _is_unique(table: SqlTable, key: Sequence[str]) -> bool:
    return any(set(unique) == set(key) for unique in table.unique_keys)


def _nullable(column: TableColumn) -> TableColumn:
    return replace(column, nullable=True)
