"""Shell: an Iceberg table, through the `pyiceberg` package (no JVM).

Tasks write data files as pyiceberg writes them. The driver commits them in one transaction of the catalog, which also
sets a property of the table: the query's id, and the number of its last micro-batch. A catalog accepts a commit only if
the table has not changed since the driver read it. The driver then reads the table again, and looks for its micro-batch
first. So pyiceberg's own repetition of a commit, which would not look, is turned off.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import logging
import pickle
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.spark.connectors.lake.changes import check_required, nulls_of
from barnabas.spark.connectors.lake.columns import fit, lake_schema
from barnabas.spark.connectors.lake.errors import LakeConflictError, LakeError
from barnabas.spark.connectors.lake.iceberg_merge import kept_rows, upserted_rows
from barnabas.spark.connectors.lake.options import LakeOptions, PartitionField
from barnabas.spark.connectors.lake.ports import Changes, Commit, is_own_commit
from barnabas.spark.connectors.lake.storage import ArrowStorage
from barnabas.spark.connectors.sinking.ports import BatchId
from barnabas.spark.delivery.identity import LedgerEntry, Standing, decode_entry, encode_entry
from barnabas.spark.identities import Belonging, Marks, belonging

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

T = TypeVar("T")
log = logging.getLogger("barnabas.spark")

LEDGER: Final = "barnabas.ledger."
IDENTITY: Final = "barnabas.identity."
"""The starts of the table properties of a query: the number of its last micro-batch, and what identifies it."""
QUERY: Final = "barnabas.query"
BATCH: Final = "barnabas.batch"
ATTEMPTS: Final = "barnabas.attempts"
KEPT: Final = "barnabas.ledger"
"""The keys in a snapshot's summary: the query, its micro-batch, the attempts whose files the snapshot added, and what
identifies the micro-batch (`LedgerEntry`)."""
RETRIES: Final = 5
MERGE_MANIFESTS: Final = "commit.manifest-merge.enabled"
STREAM_PROPERTIES: Final = {
    MERGE_MANIFESTS: "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
"""Properties of a table that is created. A stream commits often: without them, each commit would leave a file of
metadata for ever, and read a list of all commits before it.
"""
KEYS_IN_FILTER: Final = 200
"""Up to this number of keys, the scan for files that an upsert changes looks for each key, otherwise for a range."""


class IcebergLakeTable:
    """A LakeTable in the Iceberg format."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.name = ".".join(table.name())
        self.storage = iceberg_storage(table)

    def schema(self) -> Any:
        return lake_schema(self._table.schema().as_arrow())

    def add_columns(self, columns: Sequence[Any]) -> None:
        import pyarrow as pa
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(RETRIES):
            self._table.refresh()
            names = set(self.schema().names)
            missing = [column for column in columns if column.name not in names]
            if not missing:
                return
            try:
                with self._table.update_schema() as update:
                    update.union_by_name(pa.schema(missing))
                return
            except CommitFailedException as error:
                if attempt == RETRIES - 1:
                    raise LakeConflictError(f"columns cannot be added to {self.name}: {error}") from error

    def write(self, rows: Any, attempt: str) -> list[str]:
        return [base64.b64encode(pickle.dumps(file)).decode() for file in self._write(rows, attempt)]

    def remove(self, files: Sequence[str]) -> None:
        for file in files:
            self._delete(_decoded(file).file_path)

    def committed_batch(self, query_id: str) -> LedgerEntry | None:
        self._table.refresh()
        return self._last_batch(query_id)

    def committed_attempts(self, batch: BatchId) -> frozenset[str] | None:
        found: set[str] = set()
        for snapshot in self._table.metadata.snapshots:
            summary = snapshot.summary
            if summary is not None and summary[QUERY] == batch.query_id and summary[BATCH] == str(batch.batch_id):
                found.update((summary[ATTEMPTS] or "").split(","))
        return frozenset(found) if found else None

    def append(self, files: Sequence[str], commit: Commit) -> bool:
        def add(transaction: Transaction, properties: dict[str, str]) -> None:
            update_snapshot = transaction.update_snapshot(snapshot_properties=properties)
            merges = self._table.metadata.properties.get(MERGE_MANIFESTS, "false").lower() == "true"
            with update_snapshot.merge_append() if merges else update_snapshot.fast_append() as update:
                for file in files:
                    update.append_data_file(_decoded(file))

        return self._commit(add, commit)

    def merge(self, changes: Changes, commit: Commit) -> bool:
        attempt = commit.attempts[0]
        written: list[DataFile] = []

        def change(transaction: Transaction, properties: dict[str, str]) -> None:
            for file in written:  # of a commit that another writer made impossible
                self._delete(file.file_path)
            written.clear()
            schema = self.schema()
            replaced, kept, old = self._changed_files(changes, schema)
            check_required(changes, nulls_of(old, changes), self.name)
            upserts = upserted_rows(changes, old, schema)
            for rows in (*kept, upserts):
                if rows.num_rows:
                    written.extend(self._write(rows, attempt))
            if not replaced and not written:
                return
            with transaction.update_snapshot(snapshot_properties=properties).overwrite() as update:
                for file in replaced:
                    update.delete_data_file(file)
                for file in written:
                    update.append_data_file(file)

        committed = self._commit(change, commit)
        if not committed:
            for file in written:
                self._delete(file.file_path)
        return committed

    def _changed_files(self, changes: Changes, schema: Any) -> tuple[list[DataFile], list[Any], Any]:
        """The data files that have a row of a changed key, the rows of each that stay, and the rows that change."""
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        keys = pa.concat_tables([changes.upserts.select(list(changes.keys)), changes.deletes])
        reader = ArrowScan(self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue())
        replaced, kept, changed = [], [], [schema.empty_table()]
        for task in self._table.scan(row_filter=_key_filter(keys)).plan_files():
            rows = fit(reader.to_table([task]), schema)
            stays, changes_here = kept_rows(rows, keys)
            if changes_here.num_rows:
                replaced.append(task.file)
                kept.append(stays)
                changed.append(changes_here)
        return replaced, kept, pa.concat_tables(changed)

    def _write(self, rows: Any, attempt: str) -> Iterable[DataFile]:
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        metadata = self._table.metadata
        columns = self._table.schema().as_arrow()
        try:
            return list(
                _dataframe_to_data_files(
                    table_metadata=metadata,
                    df=rows.cast(columns) if rows.schema.names == columns.names else rows,
                    io=self._table.io,
                    write_uuid=uuid.UUID(attempt),
                    counter=_file_numbers(),
                )
            )
        except ImportError as error:
            raise LakeError(
                f"{self.name} has partitions by a transform of a column, which pyiceberg computes with another"
                " package: pip install pyiceberg-core"
            ) from error

    def _commit(self, action: Callable[[Transaction, dict[str, str]], None], commit: Commit) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        for attempt in range(RETRIES):
            self._table.refresh()
            properties: dict[str, str] = {}
            if commit.batch is not None:
                if commit.batch.standing(self._last_batch, self.name) is Standing.PUBLISHED:
                    return attempt > 0 and is_own_commit(self, commit)
                properties = {
                    QUERY: commit.batch.query_id,
                    BATCH: str(commit.batch.batch_id),
                    ATTEMPTS: ",".join(sorted(commit.attempts)),
                    KEPT: encode_entry(commit.batch.entry(self.marks)),
                }
            # Only in this process: pyiceberg must not repeat the commit on another state of the table.
            self._table.metadata.properties["commit.retry.num-retries"] = "0"
            transaction = self._table.transaction()
            if commit.batch is not None:
                query_id, number = commit.batch.query_id, str(commit.batch.batch_id)
                transaction.set_properties({LEDGER + query_id: number, IDENTITY + query_id: properties[KEPT]})
            action(transaction, properties)
            try:
                transaction.commit_transaction()
                return True
            except CommitFailedException as error:
                if attempt == RETRIES - 1:
                    raise LakeConflictError(
                        f"{self.name}: the commit failed {RETRIES} times because of other writers: {error}."
                        " Start the query again with its checkpoint; nothing is lost"
                    ) from error
        raise AssertionError("the loop returns or raises")

    def _last_batch(self, query_id: str) -> LedgerEntry | None:
        """The newest micro-batch of the query. The properties alone do not say it: they stay as they are when the table
        is rolled back to an older snapshot."""
        properties = self._table.metadata.properties
        number = properties.get(LEDGER + query_id)
        found = decode_entry(properties.get(IDENTITY + query_id), None if number is None else int(number))
        if found is not None and belonging(found.marks, self.marks) is Belonging.REPLACED:
            return None
        own = [s for s in self._table.metadata.snapshots if s.summary is not None and s.summary[QUERY] == query_id]
        newest = {s.snapshot_id for s in own if s.summary is not None and s.summary[BATCH] == number}
        if not newest:
            return found  # the snapshot has expired, or the micro-batch changed nothing
        current = self._table.metadata.current_snapshot_id
        ancestors: set[int] = set()
        while current is not None and (snapshot := self._table.metadata.snapshot_by_id(current)) is not None:
            ancestors.add(current)
            current = snapshot.parent_snapshot_id
        if newest & ancestors:
            return found
        standing = [s.summary for s in own if s.snapshot_id in ancestors and s.summary is not None]
        return decode_entry(standing[-1][KEPT], int(standing[-1][BATCH] or 0)) if standing else None

    @property
    def marks(self) -> Marks:
        """What tells the table from another one of the same name."""
        return {"table": str(self._table.metadata.table_uuid)}

    def _delete(self, location: str) -> None:
        try:
            self._table.io.delete(location)
        except FileNotFoundError:
            return


def open_iceberg(options: LakeOptions, name: str, schema: Any | None) -> IcebergLakeTable | None:
    """Open a table. One that does not exist is created for rows of this schema; without a schema, it is None. Raises
    LakeError.
    """
    catalog = open_catalog(options.catalog)
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

    try:
        return IcebergLakeTable(catalog.load_table(name))
    except NoSuchTableError:
        if schema is None:
            return None
    if not options.create:
        raise LakeError(
            f"there is no Iceberg table {name} in the catalog, and auto.create is false: create the table, or set"
            " auto.create=true"
        )
    with contextlib.suppress(TableAlreadyExistsError, CommitFailedException):  # another task was faster
        _create(catalog, name, lake_schema(schema), options.partitions)
    return IcebergLakeTable(catalog.load_table(name))


def _create(catalog: Catalog, name: str, columns: Any, partitions: Sequence[PartitionField]) -> None:
    for field in partitions:
        if columns.get_field_index(field.column) < 0:
            raise LakeError(
                f"partition.by names {field.column}, which is no column; there are {', '.join(columns.names)}"
            )
    _while_busy(lambda: catalog.create_namespace_if_not_exists(name.rpartition(".")[0]))
    with (
        catalog.create_table_transaction(name, columns, properties=dict(STREAM_PROPERTIES)) as transaction,
        transaction.update_spec() as spec,
    ):
        for field in partitions:
            spec.add_field(field.column, _transform(field), _partition_name(field))


def open_catalog(given: Mapping[str, str]) -> Catalog:
    """The catalog. A SQLite catalog is created when first opened. Raises LakeError if pyiceberg is not installed."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise LakeError("barnabas.iceberg needs the package pyiceberg: pip install 'barnabas[iceberg]'") from error
    properties = dict(given)
    if properties.get("uri", "").startswith("sqlite:///"):
        Path(properties["uri"].removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    name = properties.pop("name")
    return _while_busy(lambda: load_catalog(name, **properties))


def _while_busy(action: Callable[[], T]) -> T:
    """Call `action` again if tasks create the tables of a SQL catalog, or a row in them, at the same time. A REST
    catalog needs no sqlalchemy.
    """
    try:
        from sqlalchemy.exc import IntegrityError, OperationalError
    except ImportError:
        return action()
    for _ in range(RETRIES - 1):
        try:
            return action()
        except (IntegrityError, OperationalError) as error:
            log.info("the catalog is busy: %s", error)
            time.sleep(0.1)
    return action()


def iceberg_storage(table: Table) -> ArrowStorage:
    """The files below a table's location, in the file system that pyiceberg opens for it."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = table.io
    if not isinstance(io, PyArrowFileIO):
        io = PyArrowFileIO(table.io.properties)
    scheme, host, path = PyArrowFileIO.parse_location(table.location(), io.properties)
    return ArrowStorage(io.fs_by_scheme(scheme, host), path)


def _transform(field: PartitionField) -> str:
    return field.transform if field.number is None else f"{field.transform}[{field.number}]"


def _partition_name(field: PartitionField) -> str:
    return field.column if field.transform == "identity" else f"{field.column}_{field.transform}"


def _key_filter(keys: Any) -> Any:
    """An expression that holds for every row with one of the keys, by which files are found."""
    import pyarrow.compute as pc
    from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, In, LessThanOrEqual

    found: Any = AlwaysTrue()
    if not keys.num_rows:
        return found
    for name in keys.column_names:
        column = keys[name]
        distinct = pc.unique(column)
        if len(distinct) <= KEYS_IN_FILTER:
            found = And(found, In(name, distinct.to_pylist()))
        else:
            bounds = pc.min_max(column).as_py()
            found = And(found, GreaterThanOrEqual(name, bounds["min"]), LessThanOrEqual(name, bounds["max"]))
    return found


def _file_numbers() -> Any:
    """Numbers for the names of data files that several calls for one attempt do not repeat."""
    return itertools.count(uuid.uuid4().int >> 96)


def _decoded(file: str) -> DataFile:
    found: DataFile = pickle.loads(base64.b64decode(file))
    return found
