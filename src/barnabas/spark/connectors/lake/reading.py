"""Shell: the readers of lake tables that Spark calls: one version of a table, a task for each group of data files.

Python reads the files, so no jar is needed. Spark's own Parquet reader is faster, and reads local Delta tables with
`spark.read.parquet(*DeltaTable(path).file_uris())`, if the table has no partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from barnabas.spark import option_parsers as parse_as
from barnabas.spark.connectors.lake.columns import lake_schema
from barnabas.spark.connectors.lake.delta import require_deltalake
from barnabas.spark.connectors.lake.errors import LakeReadError
from barnabas.spark.connectors.lake.iceberg import open_catalog
from barnabas.spark.connectors.lake.options import PREFIXES, LakeKind, below, catalog_options, table_target
from barnabas.spark.connectors.option_rows import ConnectorOption, ConnectorOptions
from barnabas.spark.heap import freeze_heap
from barnabas.spark.records.types import conform, spark_ddl
from barnabas.spark.reporting import readable_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

READ_OPTIONS: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption("path", "Delta: the table's directory or URI.", parse_as.name),
    ConnectorOption("table", "Iceberg: the table in the catalog, such as shop.orders.", parse_as.name),
    ConnectorOption("versionAsOf", "Delta: the version to read; the newest by default.", parse_as.timestamp_ms),
    ConnectorOption("snapshot-id", "Iceberg: the snapshot to read; the newest by default.", parse_as.positive),
)


class LakeFiles(InputPartition):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The data files that one task reads, and the version of the table."""

    def __init__(self, version: int | None, paths: tuple[str, ...]) -> None:
        super().__init__(None)
        self.version = version
        self.paths = paths


@readable_errors
def lake_columns(kind: LakeKind, texts: Mapping[str, str]) -> str:
    """The columns of a table, as DDL. Raises OptionError and LakeReadError."""
    schema = _reading(kind, texts).schema()
    return ", ".join(f"`{field.name.replace('`', '``')}` {spark_ddl(field.type)}" for field in schema)


@readable_errors
def lake_reader(kind: LakeKind, texts: Mapping[str, str], schema: StructType) -> LakeReader:
    """The reader of a batch query. Raises OptionError and LakeReadError."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return LakeReader(kind, dict(texts), to_arrow_schema(schema, timezone="UTC"))


class LakeReader(DataSourceReader):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The reader of `spark.read`."""

    def __init__(self, kind: LakeKind, texts: dict[str, str], columns: Any) -> None:
        self._kind = kind
        self._texts = texts
        self._columns = columns

    @readable_errors
    def partitions(self) -> list[LakeFiles]:
        return _reading(self._kind, self._texts).tasks()

    @readable_errors
    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        # If there is nothing to read, Spark still calls `read` once, with a partition object of its own.
        if not isinstance(partition, LakeFiles):
            return
        freeze_heap()
        for batch in _reading(self._kind, self._texts, partition.version).batches(partition.paths):
            arrays = [conform(batch.column(field.name), field.type) for field in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._columns)


def _reading(kind: LakeKind, texts: Mapping[str, str], version: int | None = None) -> DeltaReading | IcebergReading:
    given = ConnectorOptions(texts, READ_OPTIONS, prefixes=PREFIXES)
    given.check_names()
    target = table_target(kind, given)
    if kind is LakeKind.DELTA:
        wanted = version if version is not None else given.get("versionAsOf")
        return DeltaReading(target, below(given, "storage."), wanted)
    wanted = version if version is not None else given.get("snapshot-id")
    return IcebergReading(target, catalog_options(kind, given), wanted)


class DeltaReading:
    """One version of a Delta table."""

    def __init__(self, location: str, storage: Mapping[str, str], version: int | None) -> None:
        deltalake = require_deltalake()
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            self._table = deltalake.DeltaTable(location, version=version, storage_options=dict(storage))
        except TableNotFoundError as error:
            raise LakeReadError(f"there is no Delta table at {location}: correct path") from error
        except DeltaError as error:
            raise LakeReadError(f"the Delta table {location} cannot be read: {error}") from error
        try:
            self._dataset = self._table.to_pyarrow_dataset()
        except DeltaError as error:
            raise LakeReadError(
                f"the Delta table {location} has features that the package deltalake cannot read: {error}. Upgrade"
                " deltalake, or read the table with Delta's connector for Spark"
            ) from error

    def schema(self) -> Any:
        return lake_schema(self._dataset.schema)

    def tasks(self) -> list[LakeFiles]:
        version = self._table.version()
        return [LakeFiles(version, (fragment.path,)) for fragment in self._dataset.get_fragments()]

    def batches(self, paths: tuple[str, ...]) -> Iterator[Any]:
        for fragment in self._dataset.get_fragments():
            if fragment.path in paths:
                yield from fragment.to_batches(schema=self._dataset.schema)


class IcebergReading:
    """One snapshot of an Iceberg table."""

    def __init__(self, name: str, catalog: Mapping[str, str], snapshot: int | None) -> None:
        opened = open_catalog(catalog)
        from pyiceberg.exceptions import NoSuchTableError

        try:
            self._table = opened.load_table(name)
        except NoSuchTableError as error:
            raise LakeReadError(f"there is no Iceberg table {name} in the catalog: correct table") from error
        current = self._table.current_snapshot()
        self._snapshot = snapshot if snapshot is not None or current is None else current.snapshot_id
        if snapshot is not None and self._table.snapshot_by_id(snapshot) is None:
            raise LakeReadError(
                f"the Iceberg table {name} has no snapshot {snapshot}: it was expired, or belongs to another table."
                " Correct snapshot-id, or leave it out to read the newest snapshot"
            )

    def schema(self) -> Any:
        return lake_schema(self._scan().projection().as_arrow())

    def tasks(self) -> list[LakeFiles]:
        return [LakeFiles(self._snapshot, (task.file.file_path,)) for task in self._scan().plan_files()]

    def batches(self, paths: tuple[str, ...]) -> Iterator[Any]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan = self._scan()
        reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), AlwaysTrue())
        yield from reader.to_record_batches([task for task in scan.plan_files() if task.file.file_path in paths])

    def _scan(self) -> Any:
        return self._table.scan(snapshot_id=self._snapshot)
