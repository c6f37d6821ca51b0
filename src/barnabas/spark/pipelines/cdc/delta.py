"""Shell: a Delta table into which change events are merged, with the `deltalake` package (Rust, no JVM).

    <warehouse>/customers              the table: its columns, and the hidden columns of the sequence
    <warehouse>/__autocdc_customers    the tombstones: the keys, and the hidden columns of the sequence

Spark's own Delta connector is a jar from Maven, and Spark's own AUTO CDC does not take it. Therefore the MERGE runs in
the driver. Spark reads the table as the Parquet files of its newest version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.identities import Marks
from barnabas.spark.pipelines.cdc.merging import (
    DELETED,
    RESERVED_PREFIX,
    MergeClauses,
    current_events,
    table_clauses,
    tombstone_clauses,
)
from barnabas.spark.pipelines.errors import DefinitionError
from barnabas.spark.pipelines.files import local_path

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DeltaChangeTable:
    """The table at `location`, a directory or the URI of an object store, and its tombstones. The table is created by
    `create`, and has one writer.
    """

    location: str
    keys: tuple[str, ...]
    sequences: tuple[str, ...]

    @property
    def tombstones(self) -> str:
        return tombstones_location(self.location)

    def create(self, schema: Any, partition_columns: Sequence[str] = (), comment: str | None = None) -> None:
        """Create both tables if they do not exist. `schema`: Spark's StructType with the hidden columns."""
        from deltalake import DeltaTable, Schema
        from pyspark.sql.types import StructType

        hidden = StructType([field for field in schema.fields if field.name in (*self.keys, *self.sequences)])
        for location, columns, partitions in (
            (self.location, schema, partition_columns),
            (self.tombstones, hidden, ()),
        ):
            if not DeltaTable.is_deltatable(location):
                DeltaTable.create(
                    location,
                    Schema.from_json(_nullable(columns).json()),
                    partition_by=list(partitions),
                    description=comment,
                )

    def marks(self) -> Marks | None:
        """What tells the table from another one at this place; None if there is no table."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.location):
            return None
        return {"table": str(DeltaTable(self.location).metadata().id)}

    def schema(self) -> Any:
        """The columns of the table, with the hidden ones, as Spark's StructType."""
        from deltalake import DeltaTable
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(DeltaTable(self.location).schema().to_json()))

    def add_columns(self, columns: Sequence[Any]) -> None:
        """Add columns, given as Spark's StructFields, to the table."""
        from deltalake import DeltaTable, Schema
        from pyspark.sql.types import StructType

        DeltaTable(self.location).alter.add_columns(
            list(Schema.from_json(_nullable(StructType(list(columns))).json()).fields)
        )

    def apply(self, events: pa.Table) -> None:
        """Apply the newest event of each key of a micro-batch: the columns of the table, the hidden ones, and DELETED.
        May be repeated with the same events.
        """
        tombstones = self._tombstones_of(events)
        if tombstones:
            keys, sequences = _rows(events, self.keys), _rows(events, self.sequences)
            events = events.filter(current_events(keys, sequences, tombstones))
        if tombstones or True in events[DELETED].to_pylist():
            own = events.select([*self.keys, *self.sequences, DELETED])
            _merge(self.tombstones, own, tombstone_clauses(self.keys, self.sequences))
        if events.num_rows:
            _merge(self.location, events, table_clauses(self.keys, self.sequences))

    def read(self, spark: Any) -> Any:
        """The rows of the newest version, without the hidden columns, as a DataFrame."""
        from deltalake import DeltaTable
        from pyspark.sql.types import StructType

        table = DeltaTable(self.location)
        schema = self.schema()
        files = table.file_uris()
        if files:
            frame = spark.read.schema(schema).option("basePath", self.location).parquet(*files)
        else:
            frame = spark.createDataFrame([], schema)
        shown = StructType([field for field in schema.fields if not field.name.startswith(RESERVED_PREFIX)])
        return frame.select(*(f"`{name}`" for name in shown.names))

    def _tombstones_of(self, events: pa.Table) -> Mapping[tuple[Any, ...], tuple[Any, ...]]:
        """The tombstones of the events' keys. The scan keeps only rows that can match."""
        import pyarrow.dataset as ds
        from deltalake import DeltaTable

        dataset = DeltaTable(self.tombstones).to_pyarrow_dataset()
        condition = None
        for key in self.keys:
            found = ds.field(key).isin(events[key].combine_chunks().cast(dataset.schema.field(key).type))
            condition = found if condition is None else condition & found
        rows = dataset.to_table(columns=[*self.keys, *self.sequences], filter=condition)
        return dict(zip(_rows(rows, self.keys), _rows(rows, self.sequences), strict=True))


def local_or_uri(location: str) -> str:
    """The form in which deltalake takes a location of Spark: `file:` URIs become paths."""
    local = local_path(location)
    return location if local is None else str(local)


def tombstones_location(location: str) -> str:
    directory, _, name = location.rstrip("/").rpartition("/")
    return f"{directory}/{RESERVED_PREFIX}{name}"


def require_deltalake(place: str) -> None:
    """Raise DefinitionError if the package is not installed."""
    try:
        import deltalake  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise DefinitionError(
            f"{place}: create_auto_cdc_flow needs the package deltalake: pip install 'barnabas[delta]'"
        ) from error


def _merge(location: str, events: pa.Table, clauses: MergeClauses) -> Mapping[str, int]:
    """Merge, and return the counts of rows and files."""
    import pyarrow as pa
    from deltalake import DeltaTable

    table = DeltaTable(location)
    known = pa.schema(table.schema().to_arrow())
    types = pa.schema([field if field.name == DELETED else known.field(field.name) for field in events.schema])
    # Without streamed_exec, files whose statistics exclude the keys of the events are not read.
    merger = table.merge(
        events.cast(types), clauses.on, source_alias="source", target_alias="target", streamed_exec=False
    )
    merger.when_matched_delete(clauses.delete)
    merger.when_matched_update_all(clauses.update, except_cols=[DELETED])
    merger.when_not_matched_insert_all(clauses.insert, except_cols=[DELETED])
    metrics: Mapping[str, int] = merger.execute()
    return metrics


def _rows(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def _nullable(schema: Any) -> Any:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, field.dataType, True) for field in schema.fields])
