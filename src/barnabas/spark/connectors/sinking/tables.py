"""Machine: the rows of a DataFrame -> rows of tables: which table, which key, which columns, and what is deleted.

A field of a record that is missing (JSON without a schema), or whose value the source did not send (`presence.py`), is
a column that was not received: rows are divided by the columns that they have, and the others are not written. Rows
that cannot become rows of a table are returned with the reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from barnabas.spark.connectors.sinking.fields import Fields, read_fields, read_key_fields
from barnabas.spark.connectors.sinking.options import KAFKA_KEY, InsertMode, PrimaryKeyMode, RowOptions
from barnabas.spark.connectors.sinking.ports import Problem, TableRows
from barnabas.spark.connectors.sinking.presence import UNAVAILABLE, unsent_in_columns, unsent_in_records
from barnabas.spark.connectors.sinking.steps import Steps
from barnabas.spark.errors import SinkError

OP: Final = "__op"
DELETED: Final = "__deleted"
META_COLUMNS: Final = (OP, DELETED, "__source_ts_ms", "__position", UNAVAILABLE)
"""Columns that captured rows have besides those of their table, written only if `fields.include` names them."""
_OPS: Final = ("c", "r", "u", "d")
WHOLE_ROWS: Final = (
    "insert.mode=insert adds whole rows: set insert.mode=upsert or update, or let the source send the value"
    " (unavailable.value.handling.mode=reselect; PostgreSQL: REPLICA IDENTITY FULL)"
)
ROWS_BITS: Final = 40
"""The order of rows without offsets: the number of the task, and the number of the row in the task in these bits."""


class Divided(Struct, frozen=True):
    """What became of a batch."""

    tables: list[TableRows]
    problems: list[Problem]


class _Columns(Struct, frozen=True):
    """The columns of rows of one table before they are divided by what each row received.

    `names` begin with the key. `absent` says for each column (by its name) in which rows it was not received, and
    `unsent` in which of them its value exists, but was not sent by the source. `source` has the row of the batch for
    each row, and `metadata` what the fields of some columns say besides their types.
    """

    table: str
    names: tuple[str, ...]
    arrays: tuple[Any, ...]
    key: tuple[str, ...]
    deleted: Any
    order: Any
    absent: Mapping[str, Any]
    unsent: Mapping[str, Any]
    source: Any
    metadata: Mapping[str, Any] = {}

    @property
    def received(self) -> Any:
        """Which rows (numpy, bool) have all of the values that their source has."""
        whole = np.ones(len(self.order), np.bool_)
        for mask in self.unsent.values():
            whole &= ~np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool)
        return whole


def table_of_topic(table_format: str, topic: str) -> str:
    """The table, or the place of the table, of the records of a topic. Raises SinkError for a topic, which a transform
    or a query may have named, that would lead out of its folder."""
    if "${topic" in table_format and ("/" in topic or "\\" in topic or topic in (".", "..")):
        raise SinkError(f"{table_format} has ${{topic}}, and a record has the topic {topic!r}: a topic has no slashes")
    return table_format.replace("${topic}", topic).replace("${topic_}", topic.replace(".", "_"))


class TableDivider:
    """Rows of one task attempt -> rows of tables. It remembers the order of keys whose columns change."""

    keeps_json: ClassVar[bool] = False
    """Whether an object, or a list with objects, in JSON without a schema becomes a JSON column, in which each cell
    keeps its text. Otherwise it becomes a struct, which has the members of all rows.
    """

    def __init__(self, options: RowOptions, partition: int) -> None:
        self._options = options
        self._next_order = partition << ROWS_BITS
        self._steps: dict[str, Steps] = {}
        self._origins: set[str] | None = set()

    @property
    def origins(self) -> frozenset[str] | None:
        """The partitions of topics whose records were divided, or None if that is not known (`StagedPart.origins`)."""
        return None if self._origins is None else frozenset(self._origins)

    def divide_columns(self, batch: Any) -> list[TableRows]:
        """The rows of a batch with the columns of a table. Raises SinkError for a row that cannot be written."""
        options = self._options
        self._origins = None
        names = [name for name in batch.schema.names if name not in META_COLUMNS or name in (options.fields or ())]
        missing = [name for name in (*options.key_fields, *(options.fields or ())) if name not in batch.schema.names]
        if missing:
            raise SinkError(
                f"the rows have no column {missing[0]}, which pk.fields or fields.include names; their columns are"
                f" {', '.join(batch.schema.names)}"
            )
        key = options.key_fields
        chosen = [name for name in names if name not in key and (options.fields is None or name in options.fields)]
        deleted = self._deleted(batch)
        for name in key:
            if batch.column(name).null_count:
                raise SinkError(f"the key column {name} is null in a row: exclude such rows, or change pk.fields")
        ordered = (*key, *chosen)
        columns = _Columns(
            self._options.table_format,
            ordered,
            tuple(batch.column(name) for name in ordered),
            key,
            deleted,
            self._order(batch),
            {},
            {name: mask for name, mask in unsent_in_columns(batch, options.unavailable).items() if name in chosen},
            _numbers(batch.num_rows),
            {field.name: field.metadata for field in batch.schema if field.metadata},
        )
        for _, reason in self._partial(columns):
            raise SinkError(f"a row cannot be written: {reason}")
        return list(self._parts(columns))

    def divide_records(self, batch: Any) -> Divided:
        """The rows of a records batch: structs, or JSON objects, in the columns key and value."""
        tables: list[TableRows] = []
        problems: list[Problem] = []
        order = self._order(batch)
        topics = batch.column("topic")
        names = pc.unique(topics).to_pylist()
        for topic in names:
            rows = None if len(names) == 1 else pc.indices_nonzero(pc.equal(topics, topic)).cast(pa.int64())
            one = batch if rows is None else batch.take(rows)
            where = _numbers(batch.num_rows) if rows is None else rows
            self._note_origins(topic, one)
            columns, bad = self._record_columns(topic, one, order if rows is None else order.take(rows), where)
            problems += [Problem(where[each.row].as_py(), each.reason) for each in bad]
            tables += self._parts(columns)
        return Divided(tables, problems)

    def _note_origins(self, topic: str, batch: Any) -> None:
        if self._origins is None or not {"partition", "offset"} <= set(batch.schema.names):
            self._origins = None
            return
        self._origins |= {f"{topic}-{partition}" for partition in pc.unique(batch.column("partition")).to_pylist()}

    # -- columns -----------------------------------------------------------------------------------------------------

    def _deleted(self, batch: Any) -> Any:
        """Which rows delete their key, by __op and __deleted; None if no row does."""
        names = batch.schema.names
        deleted = None
        if OP in names:
            op = batch.column(OP)
            unknown = set(pc.unique(op).to_pylist()) - {*_OPS, None}
            if unknown:
                raise SinkError(f"__op is {unknown.pop()!r} in a row: it is c, r, u or d")
            deleted = pc.fill_null(pc.equal(op, "d"), False)
        if DELETED in names:
            marks = batch.column(DELETED)
            flags = pc.equal(marks, "true") if pa.types.is_string(marks.type) else marks
            flags = pc.fill_null(flags, False)
            deleted = flags if deleted is None else pc.or_(deleted, flags)
        if deleted is None or not pc.any(deleted).as_py():
            return None
        if not self._options.delete_enabled:
            raise SinkError(
                "a row has __op=d or __deleted=true, and delete.enabled is false: set delete.enabled=true to delete its"
                " key, or exclude such rows from the DataFrame"
            )
        return deleted

    def _order(self, batch: Any) -> Any:
        """A number for each row that is larger for later changes."""
        count = batch.num_rows
        if self._options.input.value == "records" and "offset" in batch.schema.names:
            offsets = batch.column("offset")
            if not offsets.null_count:
                return offsets.cast(pa.int64())
        start = self._next_order
        self._next_order += count
        return pa.array(np.arange(start, start + count, dtype=np.int64))

    # -- records -----------------------------------------------------------------------------------------------------

    def _record_columns(self, topic: str, batch: Any, order: Any, source: Any) -> tuple[_Columns, list[Problem]]:
        """The columns of the records of one topic that can be written, and the records that cannot. `source` are their
        rows in the batch that was read."""
        options = self._options
        table = table_of_topic(options.table_format, topic)
        empty = batch.column("value").is_null()
        value = read_fields(batch, "value", keeps_json=self.keeps_json)
        fields, absent = value.columns, value.absent
        key, of_key, bad = self._key(topic, batch, value)
        reasons: dict[int, str] = dict(bad)
        deletes = None
        if pc.any(empty).as_py():
            if options.delete_enabled:
                deletes = empty
            else:
                for row in pc.indices_nonzero(empty).to_pylist():
                    reasons.setdefault(
                        row,
                        "it has no value, and delete.enabled is false: set delete.enabled=true and pk.mode=record_key"
                        " to delete its key, or leave such records out with the transform Filter",
                    )
        values = {
            name: array
            for name, array in fields.items()
            if name not in key and (options.fields is None or name in options.fields)
        }
        names = (*key, *values)
        arrays = (*key.values(), *values.values())
        kept = {name: mask for name, mask in absent.items() if name in values}
        unsent = unsent_in_records(batch, fields, options.unavailable)
        unsent = {name: mask for name, mask in unsent.items() if name in values}
        metadata = {name: found for name, found in value.metadata.items() if name not in key}
        metadata |= {name: found for name, found in of_key.items() if name in key}
        columns = _Columns(table, names, arrays, tuple(key), deletes, order, kept, unsent, source, metadata)
        for row, reason in self._partial(columns):
            reasons.setdefault(row, reason)
        if reasons:
            columns = _take(columns, [row for row in range(batch.num_rows) if row not in reasons])
        return columns, [Problem(row, reason) for row, reason in sorted(reasons.items())]

    def _key(
        self, topic: str, batch: Any, value: Fields
    ) -> tuple[dict[str, Any], Mapping[str, Any], list[tuple[int, str]]]:
        """The key columns by their names, what their fields say besides their types, and the rows without a key."""
        options = self._options
        match options.key_mode:
            case PrimaryKeyMode.NONE:
                return {}, {}, []
            case PrimaryKeyMode.KAFKA:
                names = options.key_fields or KAFKA_KEY
                absent = [name for name in ("partition", "offset") if name not in batch.schema.names]
                if absent:
                    raise SinkError(f"pk.mode=kafka needs the column {absent[0]} of the records: select it, too")
                topics = pa.array([topic] * batch.num_rows, pa.string())
                kafka = (topics, batch.column("partition"), batch.column("offset"))
                return dict(zip(names, kafka, strict=True)), {}, []
            case PrimaryKeyMode.RECORD_KEY:
                fields, part = read_key_fields(batch, options.key_fields, keeps_json=self.keeps_json), "key"
            case PrimaryKeyMode.RECORD_VALUE:
                fields, part = value, "value"
        found = fields.columns
        wanted = options.key_fields or tuple(found)
        if not wanted and not batch.column(part).null_count:
            raise SinkError(f"the {part} of the records of {topic} has no fields: set pk.fields")
        lacking = [name for name in wanted if name not in found]
        if lacking and batch.column(part).null_count < batch.num_rows:
            raise SinkError(
                f"the {part} of the records of {topic} has no field {lacking[0]}, which pk.fields names; its fields are"
                f" {', '.join(found) or 'none'}"
            )
        key = {name: found[name] if name in found else pa.nulls(batch.num_rows) for name in wanted}
        bad: list[tuple[int, str]] = []
        for name, array in key.items():
            if array.null_count:
                bad += [
                    (row, f"its key field {name} is null") for row in pc.indices_nonzero(array.is_null()).to_pylist()
                ]
        if not wanted:
            bad = [(row, f"its {part} is null, and has the key") for row in range(batch.num_rows)]
        return key, fields.metadata, bad

    # -- both --------------------------------------------------------------------------------------------------------

    def _partial(self, columns: _Columns) -> list[tuple[int, str]]:
        """The rows that cannot be added as they are, since their source did not send a value, and why."""
        if self._options.insert_mode is not InsertMode.INSERT or not columns.unsent:
            return []
        whole = columns.received
        if columns.deleted is not None:
            whole |= columns.deleted.to_numpy(zero_copy_only=False)
        found = []
        for row in np.flatnonzero(~whole).tolist():
            lacking = ", ".join(name for name, mask in columns.unsent.items() if mask[row].as_py())
            found.append((row, f"the source did not send its unchanged value of {lacking}, and {WHOLE_ROWS}"))
        return found

    def _parts(self, columns: _Columns) -> Iterator[TableRows]:
        """Divide rows by the columns that they received, and by steps."""
        if not len(columns.order):
            return
        if len(set(columns.names)) != len(columns.names):
            raise SinkError(f"a row for {columns.table} has two columns of one name: {', '.join(columns.names)}")
        steps = self._steps.setdefault(columns.table, Steps())
        for received, rows in _by_columns(columns):
            chosen = columns if rows is None else _take(columns, rows)
            yield from self._stepped(chosen, received, steps)

    def _stepped(self, columns: _Columns, received: _Received, steps: Steps) -> Iterator[TableRows]:
        schema = tuple((name, array.type) for name, array in zip(columns.names, columns.arrays, strict=True))
        chosen = (tuple((name, str(type_)) for name, type_ in schema if name in received.names), received.unsent)
        if steps.is_simple(chosen) or not self._options.changes_keys:
            yield _rows(columns, received, 0)
            return
        keys = _key_values(columns)
        found = np.asarray(steps.next_steps(keys, chosen))
        for step in np.unique(found).tolist():
            yield _rows(_take(columns, np.flatnonzero(found == step)), received, step)


class JsonTextDivider(TableDivider):
    """For tables that have columns of JSON, such as those of databases."""

    keeps_json = True


class _Received(Struct, frozen=True):
    """The columns that rows received, and those whose values their source did not send."""

    names: tuple[str, ...]
    unsent: tuple[str, ...] = ()


def _rows(columns: _Columns, received: _Received, step: int) -> TableRows:
    names = received.names
    arrays = dict(zip(columns.names, columns.arrays, strict=True))
    fields = [pa.field(name, arrays[name].type, name not in columns.key, columns.metadata.get(name)) for name in names]
    batch = pa.RecordBatch.from_arrays([arrays[name] for name in names], schema=pa.schema(fields))
    deleted = columns.deleted if columns.deleted is not None and pc.any(columns.deleted).as_py() else None
    return TableRows(columns.table, batch, columns.key, deleted, columns.order, step, columns.source, received.unsent)


def _numbers(count: int) -> Any:
    return pa.array(np.arange(count, dtype=np.int64))


def _take(columns: _Columns, rows: Sequence[int] | Any) -> _Columns:
    """The same columns with these rows."""
    indices = pa.array(rows, pa.int64())
    return _Columns(
        columns.table,
        columns.names,
        tuple(array.take(indices) for array in columns.arrays),
        columns.key,
        None if columns.deleted is None else columns.deleted.take(indices),
        columns.order.take(indices),
        {name: mask.take(indices) for name, mask in columns.absent.items()},
        {name: mask.take(indices) for name, mask in columns.unsent.items()},
        columns.source.take(indices),
        columns.metadata,
    )


def _by_columns(columns: _Columns) -> Iterator[tuple[_Received, Any]]:
    """The sets of columns that rows have, with their rows (None: all), in runs if a key may occur in several sets.

    A row that deletes its key has no other columns, and goes with the rows before it.
    """
    if not columns.absent and not columns.unsent:
        yield _Received(columns.names), None
        return
    of_both = [(name, mask, False) for name, mask in columns.absent.items()]
    of_both += [(name, mask, True) for name, mask in columns.unsent.items()]
    masks = [np.asarray(mask.to_numpy(zero_copy_only=False), dtype=bool) for _, mask, _ in of_both]
    kinds = np.zeros(len(columns.order), dtype=np.int64)
    patterns: dict[tuple[bool, ...], int] = {}
    for row, pattern in enumerate(zip(*(mask.tolist() for mask in masks), strict=True)):
        kinds[row] = patterns.setdefault(pattern, len(patterns))
    by_kind = {kind: pattern for pattern, kind in patterns.items()}
    runs = (
        _runs(kinds)
        if columns.key and _has_repeated_keys(columns)
        else [(kind, np.flatnonzero(kinds == kind)) for kind in sorted(by_kind)]
    )
    for kind, rows in runs:
        pairs = list(zip(of_both, by_kind[kind], strict=True))
        lacking = {name for (name, _, _), is_absent in pairs if is_absent}
        unsent = tuple(name for (name, _, is_unsent), is_absent in pairs if is_absent and is_unsent)
        yield _Received(tuple(name for name in columns.names if name not in lacking), unsent), rows


def _runs(kinds: Any) -> list[tuple[int, Any]]:
    """(kind, rows) of each run of equal kinds."""
    ends = np.flatnonzero(np.diff(kinds)) + 1
    return [(int(kinds[rows[0]]), rows) for rows in np.split(np.arange(len(kinds)), ends)]


def _has_repeated_keys(columns: _Columns) -> bool:
    keys = _key_values(columns)
    return len(set(keys)) < len(keys)


def _key_values(columns: _Columns) -> list[Hashable]:
    """The key of each row as a value that can be compared and hashed."""
    arrays = dict(zip(columns.names, columns.arrays, strict=True))
    if len(columns.key) == 1:
        found: list[Hashable] = arrays[columns.key[0]].to_pylist()
        return found
    return list(zip(*(arrays[name].to_pylist() for name in columns.key), strict=True))
