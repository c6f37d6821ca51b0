"""Shell: a Delta table, through the `deltalake` package (Rust, no JVM).

Tasks write Parquet files with PyArrow. A commit adds them, and carries the micro-batch as an application transaction
(the action `txn` of the Delta protocol): the query's id and the number of the micro-batch. What identifies the
micro-batch is in the commit's metadata. A commit is refused if another one with the same application id came in
between, so two drivers of one query cannot both commit.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import operator
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from barnabas.spark.connectors.lake.changes import check_required, lacking_keys, nulls_of
from barnabas.spark.connectors.lake.columns import lake_schema
from barnabas.spark.connectors.lake.delta_files import (
    column_statistics,
    file_batches,
    partition_directory,
    partition_slices,
)
from barnabas.spark.connectors.lake.errors import LakeConflictError, LakeError, LakeUnavailableError
from barnabas.spark.connectors.lake.options import LakeOptions
from barnabas.spark.connectors.lake.ports import Changes, Commit, is_own_commit
from barnabas.spark.connectors.lake.storage import ArrowStorage, DeltaObjectStorage
from barnabas.spark.connectors.sinking.ports import BatchId
from barnabas.spark.delivery.identity import LedgerEntry, Standing, decode_entry, encode_entry
from barnabas.spark.identities import Belonging, Marks, belonging

if TYPE_CHECKING:
    from deltalake import CommitProperties

QUERY: Final = "barnabas.query"
BATCH: Final = "barnabas.batch"
ATTEMPTS: Final = "barnabas.attempts"
LEDGER: Final = "barnabas.ledger"
"""The keys in a commit's metadata: the query, its micro-batch, the attempts whose files the commit added, and what
identifies the micro-batch (`LedgerEntry`)."""
HISTORY_MAX: Final = 1000
HISTORY_FIRST: Final = (4, 64)
"""So many of the newest commits are read first: one of them is nearly always that of the query."""
RETRIES: Final = 5
SCANNED_KEYS: Final = 100_000
"""Keys of the table that are in memory at once, to find the files that have some."""
SCANNED_ROWS: Final = 1_000
"""Rows of the table whose large values are in memory at once, to find out which are null."""
_DELETED: Final = "__barnabas_deleted"


class DeltaFile(msgspec.Struct, frozen=True):
    """A data file that a task wrote: what the action `add` says of it."""

    path: str
    size: int
    modification_time: int
    partition_values: Mapping[str, str | None]
    statistics: str


class DeltaLakeTable:
    """A LakeTable in the Delta format."""

    def __init__(self, location: str, storage: Mapping[str, str]) -> None:
        deltalake = require_deltalake()
        self.name = location
        self._table = deltalake.DeltaTable(location, storage_options=dict(storage))
        self.storage = delta_storage(location, storage)

    def schema(self) -> Any:
        import pyarrow as pa

        return lake_schema(pa.schema(self._table.schema().to_arrow()))

    def add_columns(self, columns: Sequence[Any]) -> None:
        import pyarrow as pa
        from deltalake import Schema
        from deltalake.exceptions import DeltaError

        for attempt in range(RETRIES):
            self._table.update_incremental()
            names = set(self.schema().names)
            missing = [column for column in columns if column.name not in names]
            if not missing:
                return
            try:
                self._table.alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))
                return
            except DeltaError as error:
                if attempt == RETRIES - 1:
                    raise LakeConflictError(f"columns cannot be added to {self.name}: {error}") from error

    def write(self, rows: Any, attempt: str) -> list[str]:
        partitions = self._partitions()
        if len(partitions) == rows.num_columns:
            raise LakeError(
                f"the table {self.name} is partitioned by all of its columns, and a data file needs at least one"
                " other column: create the table with fewer columns in partition.by"
            )
        files = []
        for values, part in partition_slices(rows, partitions):
            path = f"{partition_directory(values)}part-{attempt}-{uuid.uuid4().hex[:8]}.zstd.parquet"
            metadata = self.storage.write_parquet(path, part)
            statistics = msgspec.json.encode(column_statistics(metadata, part.schema)).decode()
            size = self.storage.size(path)
            files.append(DeltaFile(path, size, int(time.time() * 1000), values, statistics))
        return [msgspec.json.encode(file).decode() for file in files]

    def remove(self, files: Sequence[str]) -> None:
        self.storage.delete([msgspec.json.decode(file, type=DeltaFile).path for file in files])

    def committed_batch(self, query_id: str) -> LedgerEntry | None:
        self._table.update_incremental()
        return self._last_batch(query_id)

    def _last_batch(self, query_id: str) -> LedgerEntry | None:
        """The newest micro-batch of the query. The action `txn` alone does not say it: it stays in a table that was
        restored to an older version, and in one that was replaced."""
        number: int | None = self._table.transaction_version(query_id)
        if number is None:
            return None
        for limit in (*HISTORY_FIRST, HISTORY_MAX):
            history = self._table.history(limit)
            for commit in standing_commits(history):
                if commit.get(QUERY) == query_id:
                    found = decode_entry(commit.get(LEDGER), int(commit[BATCH]))
                    is_other = found is not None and belonging(found.marks, self.marks) is Belonging.REPLACED
                    return None if is_other else found
        return None if any(commit.get(QUERY) == query_id for commit in history) else LedgerEntry(number)

    @property
    def marks(self) -> Marks:
        """What tells the table from another one at the same place."""
        return {"table": str(self._table.metadata().id)}

    def _commits(self, batch: BatchId, limit: int) -> list[dict[str, Any]]:
        """The commits of micro-batches with this number, the newest first."""
        return [
            commit
            for commit in self._table.history(limit)
            if commit.get(QUERY) == batch.query_id and str(commit.get(BATCH)) == str(batch.batch_id)
        ]

    def committed_attempts(self, batch: BatchId) -> frozenset[str] | None:
        found = self._commits(batch, HISTORY_MAX)
        return frozenset(a for commit in found for a in str(commit.get(ATTEMPTS, "")).split(",")) if found else None

    def append(self, files: Sequence[str], commit: Commit) -> bool:
        from deltalake.transaction import AddAction

        decoded = [msgspec.json.decode(file, type=DeltaFile) for file in files]
        actions: Any = [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=dict(file.partition_values),
                modification_time=file.modification_time,
                data_change=True,
                stats=file.statistics,
            )
            for file in decoded
        ]

        def add(properties: CommitProperties | None) -> None:
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), self._partitions(), commit_properties=properties
            )

        return self._commit(add, commit)

    def merge(self, changes: Changes, commit: Commit) -> bool:
        return self._commit(lambda properties: self._merge(changes, properties), commit)

    def _known_rows(self, changes: Changes) -> Any:
        """What `check_required` needs of the rows whose keys are among the changes that lack values. The values of the
        table are large ones: they are read of files that have such rows, and a few rows at a time.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        dataset, names = self._table.to_pyarrow_dataset(), list(changes.keys)
        keys = lacking_keys(changes).select(names)
        keys = keys.cast(pa.schema([dataset.schema.field(name) for name in names]))
        values = {name: keys[name].combine_chunks() for name in names}

        def chosen(rows: Any) -> Any:
            masks = (pc.is_in(rows[name], values[name]) for name in names)
            return rows.filter(functools.reduce(pc.and_, masks))

        # A merge writes texts as string_view, which PyArrow 26 does not compare with the statistics of the files.
        conditions = [ds.field(name).isin(values[name]) for name in names if not _is_text(values[name].type)]
        known = [nulls_of(dataset.schema.empty_table(), changes)]
        for fragment in dataset.get_fragments(functools.reduce(operator.and_, conditions) if conditions else None):
            if any(chosen(batch).num_rows for batch in file_batches(fragment, dataset.schema, names, SCANNED_KEYS)):
                columns = [*names, *changes.required]
                batches = file_batches(fragment, dataset.schema, columns, SCANNED_ROWS)
                known += [chosen(nulls_of(batch, changes)) for batch in batches]
        # A row may have parts of the keys of several others.
        return pa.concat_tables(known).join(keys, names, join_type="left semi")

    def _merge(self, changes: Changes, properties: CommitProperties | None) -> None:
        import pyarrow as pa

        if changes.required:
            check_required(changes, self._known_rows(changes), self.name)
        upserts, deletes = changes.upserts, changes.deletes
        flags = {name: f"__barnabas_has_{index}" for index, name in enumerate(changes.received)}
        for name, flag in flags.items():
            upserts = upserts.append_column(flag, changes.received[name])
        upserts = upserts.append_column(_DELETED, pa.repeat(False, upserts.num_rows))
        deletes = deletes.append_column(_DELETED, pa.repeat(True, deletes.num_rows))
        merger = self._table.merge(
            pa.concat_tables([upserts, deletes], promote_options="default"),
            " AND ".join(f"target.{quoted(key)} = source.{quoted(key)}" for key in changes.keys),
            source_alias="source",
            target_alias="target",
            streamed_exec=False,  # files whose statistics exclude the keys of the rows are not read
            commit_properties=properties,
        )
        given = {quoted(name): f"source.{quoted(name)}" for name in changes.upserts.column_names}
        kept = {
            quoted(name): f"CASE WHEN source.{flag} THEN source.{quoted(name)} ELSE target.{quoted(name)} END"
            for name, flag in flags.items()
        }
        merger.when_matched_delete(f"source.{_DELETED}")
        merger.when_matched_update({**given, **kept}, f"NOT source.{_DELETED}")
        if changes.inserts:
            merger.when_not_matched_insert(given, f"NOT source.{_DELETED}")
        merger.execute()

    def _partitions(self) -> list[str]:
        return list(self._table.metadata().partition_columns)

    def _commit(self, action: Callable[[CommitProperties | None], None], commit: Commit) -> bool:
        """Call `action` with the properties of the commit, unless the table has the micro-batch."""
        from deltalake.exceptions import CommitFailedError

        for attempt in range(RETRIES):
            self._table.update_incremental()
            if commit.batch is not None and commit.batch.standing(self._last_batch, self.name) is Standing.PUBLISHED:
                return attempt > 0 and is_own_commit(self, commit)
            try:
                action(_properties(commit, self.marks))
                return True
            except CommitFailedError as error:  # another writer was faster; nothing is committed
                if attempt == RETRIES - 1:
                    raise LakeConflictError(
                        f"{self.name}: the commit failed {RETRIES} times because of other writers: {error}."
                        " Start the query again with its checkpoint; nothing is lost"
                    ) from error
        raise AssertionError("the loop returns or raises")


def open_delta(options: LakeOptions, location: str, schema: Any | None) -> DeltaLakeTable | None:
    """Open a table. One that does not exist is created for rows of this schema; without a schema, it is None. Raises
    LakeError.
    """
    deltalake = require_deltalake()
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaLakeTable(location, options.storage)
    except TableNotFoundError:
        if schema is None:
            return None
    except OSError as error:
        raise LakeUnavailableError(f"{location} cannot be read; check the options storage.*: {error}") from error
    if not options.create:
        raise LakeError(
            f"there is no Delta table at {location}, and auto.create is false: create it, or set auto.create=true"
        )
    columns = lake_schema(schema)
    partitions = [field.column for field in options.partitions]
    for name in partitions:
        if columns.get_field_index(name) < 0:
            raise LakeError(f"partition.by names {name}, which is no column; there are {', '.join(columns.names)}")
    try:
        deltalake.DeltaTable.create(
            location,
            deltalake.Schema.from_arrow(columns),
            mode="ignore",
            partition_by=partitions,
            storage_options=dict(options.storage),
        )
    except DeltaError as error:
        if not deltalake.DeltaTable.is_deltatable(location, dict(options.storage)):
            raise LakeUnavailableError(f"a Delta table cannot be created at {location}: {error}") from error
        # Otherwise another task has created the table meanwhile.
    return DeltaLakeTable(location, options.storage)


def delta_storage(location: str, options: Mapping[str, str]) -> ArrowStorage:
    """The files below a table's location. Local files are opened by PyArrow, others by deltalake's own object store."""
    from pyarrow.fs import LocalFileSystem

    if "://" not in location:
        return ArrowStorage(LocalFileSystem(), location)
    return DeltaObjectStorage(location, options)


def require_deltalake() -> Any:
    """The package. Raises LakeError if it is not installed."""
    try:
        import deltalake
    except ImportError as error:
        raise LakeError("barnabas.delta needs the package deltalake: pip install 'barnabas[delta]'") from error
    return deltalake


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def quoted(name: str) -> str:
    """A column's name in an expression of deltalake."""
    return "`" + name.replace("`", "``") + "`"


def standing_commits(history: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The commits, the newest first, without those that a RESTORE of the table to an older version has undone."""
    version: int | None = None
    before_ms: int | None = None
    for commit in history:
        undone = version is not None and int(commit["version"]) > version
        if undone or (before_ms is not None and int(commit["timestamp"]) > before_ms):
            continue
        if str(commit.get("operation", "")).upper() == "RESTORE":
            given = commit.get("operationParameters", {})
            if given.get("version") is not None:
                version = int(given["version"])
            else:
                before_ms = _milliseconds(str(given.get("datetime") or given.get("timestamp")))
        yield commit


def _milliseconds(text: str) -> int | None:
    """A time of a RESTORE: in milliseconds (deltalake), or as a timestamp (Spark); None if it is of another form."""
    with contextlib.suppress(ValueError):
        return int(text) if text.isdecimal() else int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    return None


def _properties(commit: Commit, marks: Mapping[str, str]) -> CommitProperties | None:
    from deltalake import CommitProperties, Transaction

    if commit.batch is None:
        return None
    return CommitProperties(
        custom_metadata={
            QUERY: commit.batch.query_id,
            BATCH: str(commit.batch.batch_id),
            ATTEMPTS: ",".join(sorted(commit.attempts)),
            LEDGER: encode_entry(commit.batch.entry(marks)),
        },
        app_transactions=[Transaction(commit.batch.query_id, commit.batch.batch_id)],
    )
