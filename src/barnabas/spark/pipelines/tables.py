"""Shell: the tables of a pipeline in Spark's catalog, their data, and the checkpoints of the flows.

Checkpoints are where Spark's own command has them, so that both can continue each other's work:
`_checkpoints/<catalog>/<schema>/<table>/<flow>/<n>` and `_checkpoints/<sink>/<flow>/<n>`, below the storage directory.
A flow that begins anew gets the next number.

Spark's default catalog forgets its tables when the session ends. With this catalog, tables have a fixed location, and
are declared again at every start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from barnabas.spark.delivery.checkpoints import CheckpointHistory
from barnabas.spark.identities import Belonging, belonging, replaced
from barnabas.spark.pipelines.cdc.delta import DeltaChangeTable, local_or_uri, tombstones_location
from barnabas.spark.pipelines.cdc.events import ChangeWriter, sequences_of
from barnabas.spark.pipelines.cdc.merging import spelled
from barnabas.spark.pipelines.errors import GraphError, PlanChangedError
from barnabas.spark.pipelines.files import HadoopFiles
from barnabas.spark.pipelines.graph import OutputKind, OutputNode, PipelineGraph, ResolvedFlow
from barnabas.spark.pipelines.sql import quoted_name
from barnabas.spark.pipelines.versions import ViewVersions

FILE_FORMATS: Final = frozenset({"parquet", "orc", "json", "csv", "text", "avro"})
CONNECTOR_FORMATS: Final = frozenset({"delta", "iceberg", "hudi"})
"""Formats that Spark has no part of."""


class PipelineTables:
    """The catalog objects and directories of one pipeline. Paths are Hadoop paths: storage need not be local."""

    def __init__(self, spark: Any, graph: PipelineGraph, storage: str) -> None:
        self._spark = spark
        self._graph = graph
        self._storage = storage.rstrip("/")
        self._files = HadoopFiles(spark)
        self._forgets = (
            spark.conf.get("spark.sql.catalogImplementation") == "in-memory" and graph.catalog == "spark_catalog"
        )

    # -- tables ------------------------------------------------------------------------------------------------------

    def prepare(self, output: OutputNode, schema: Any) -> None:
        """Create a streaming table, or add the columns that it lacks. Raises PlanChangedError."""
        name = self.identifier(output)
        if not self._spark.catalog.tableExists(name):
            self._spark.sql(self._create_statement(output, schema))
            return
        new = _new_columns(output, self._spark.table(name).schema, schema)
        if new:
            self._spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({self._ddl(new)})")

    def replace(self, output: OutputNode, frame: Any) -> int:
        """Write a materialized view: readers see the old rows or the new ones. Returns the number of rows."""
        name = self.identifier(output)
        if self._is_of_files(output):
            self._replace_files(output, frame)
        else:
            writer = frame.write.mode("overwrite")
            if output.format:
                writer = writer.format(output.format)
            if output.partition_columns:
                writer = writer.partitionBy(*output.partition_columns)
            writer.saveAsTable(name)  # one commit of the table's format
        if output.comment:
            self._spark.sql(f"COMMENT ON TABLE {name} IS {_literal(output.comment)}")
        return int(self._spark.table(name).count())

    def drop(self, output: OutputNode) -> None:
        """Remove the table and its data."""
        self._spark.sql(f"DROP TABLE IF EXISTS {self.identifier(output)}")
        if output.kind is OutputKind.MATERIALIZED_VIEW and self._is_of_files(output):
            self._versions(output).delete()
        elif self._graph.is_merged(output):
            self._files.delete(self._location(output))
            self._files.delete(tombstones_location(self._location(output)))
        elif self._forgets:
            self._files.delete(self._location(output))

    def _replace_files(self, output: OutputNode, frame: Any) -> None:
        """Write the files of a new version, and then publish them."""
        versions = self._versions(output)
        path = versions.begin()
        writer = frame.write.mode("overwrite").format(self._format(output))
        if output.partition_columns:
            writer = writer.partitionBy(*output.partition_columns)
        writer.save(path)
        name = self.identifier(output)
        if not self._spark.catalog.tableExists(name) or output.partition_columns or self._differs(name, frame.schema):
            self._spark.sql(f"DROP TABLE IF EXISTS {name}")
            self._spark.sql(self._create_statement(dataclasses.replace(output, cluster_columns=()), frame.schema, path))
            if output.partition_columns:
                self._spark.catalog.recoverPartitions(name)
        else:
            self._spark.sql(f"ALTER TABLE {name} SET LOCATION {_literal(path)}")
        versions.publish(path)

    def _differs(self, name: str, schema: Any) -> bool:
        """Whether the table has other columns."""
        return _columns(self._spark.table(name).schema) != _columns(schema)

    # -- tables of change events -------------------------------------------------------------------------------------

    def change_writer(self, resolved: ResolvedFlow, events: Any, schema: Any) -> ChangeWriter:
        """Create the table of a flow of change events if it does not exist, and return what writes its micro-batches.
        `schema` has the columns of the table, `events` also the hidden ones. Raises PlanChangedError.
        """
        from pyspark.sql.types import StructType

        output, rules = resolved.target, resolved.flow.changes
        assert rules is not None
        sequences = sequences_of(events)
        table = DeltaChangeTable(local_or_uri(self._location(output)), spelled(rules.keys, events.columns), sequences)
        stored = StructType([*schema.fields, *(events.schema[name] for name in sequences)])
        history = CheckpointHistory(self.checkpoint(resolved))
        self._check_merged(resolved, table, history)
        table.create(stored, output.partition_columns, output.comment)
        history.confirm(table.location, table.marks() or {})
        new = _new_columns(output, table.schema(), stored)
        if any(field.name in sequences for field in new):
            raise PlanChangedError(
                f"{output.place}: sequence_by of {output.name} had another type; undo the change, or reset the flow "
                f"{resolved.flow.name}"
            )
        if new:
            table.add_columns(new)
        return ChangeWriter(resolved.flow.name, table)

    def _check_merged(self, resolved: ResolvedFlow, table: DeltaChangeTable, history: CheckpointHistory) -> None:
        """Refuse a table that is not the one into which the flow has merged. Raises PlanChangedError."""
        confirmed, found = history.published(table.location), table.marks()
        if history.newest() is None:
            return
        if found is None:
            problem = f"the table {resolved.target.name} was removed"
        elif belonging(confirmed.marks if confirmed else {}, found) is Belonging.REPLACED:
            assert confirmed is not None
            problem = replaced(f"the table {resolved.target.name}", confirmed.marks, found)
        else:
            return
        raise PlanChangedError(
            f"{resolved.target.place}: {problem}, and the flow {resolved.flow.name} would only merge new events into"
            f" it. Restore the table, or let it begin anew with: barnabas pipelines reset PIPELINE {resolved.flow.name}"
        )

    def open_merged(self, output: OutputNode) -> Any:
        """The rows of a table of change events, as a DataFrame."""
        return DeltaChangeTable(local_or_uri(self._location(output)), (), ()).read(self._spark)

    # -- statements --------------------------------------------------------------------------------------------------

    def identifier(self, output: OutputNode) -> str:
        """The whole quoted name."""
        return ".".join(f"`{part}`" for part in self._parts(output))

    def _create_statement(self, output: OutputNode, schema: Any, location: str | None = None) -> str:
        clauses = [f"CREATE TABLE {self.identifier(output)} ({self._ddl(schema.fields)})"]
        clauses.append(f"USING {self._format(output)}")
        if output.partition_columns:
            clauses.append(f"PARTITIONED BY ({', '.join(f'`{name}`' for name in output.partition_columns)})")
        if output.cluster_columns:
            clauses.append(f"CLUSTER BY ({', '.join(f'`{name}`' for name in output.cluster_columns)})")
        if location is not None or self._forgets:
            clauses.append(f"LOCATION {_literal(location or self._location(output))}")
        if output.comment:
            clauses.append(f"COMMENT {_literal(output.comment)}")
        if output.properties:
            pairs = ", ".join(f"{_literal(key)} = {_literal(str(value))}" for key, value in output.properties.items())
            clauses.append(f"TBLPROPERTIES ({pairs})")
        return " ".join(clauses)

    def _format(self, output: OutputNode) -> str:
        return output.format or str(self._spark.conf.get("spark.sql.sources.default"))

    def _is_of_files(self, output: OutputNode) -> bool:
        """Whether the table is a directory of files, without a log that makes a new version visible in one step."""
        return self._parts(output)[0] == "spark_catalog" and self._format(output).lower() in FILE_FORMATS

    def _versions(self, output: OutputNode) -> ViewVersions:
        return ViewVersions(self._location(output), self._files)

    def _ddl(self, fields: Sequence[Any]) -> str:
        from pyspark.sql.types import StructType

        nullable = StructType([type(field)(field.name, field.dataType, True) for field in fields])
        return str(self._spark._jsparkSession.parseDataType(nullable.json()).toDDL())

    def _location(self, output: OutputNode) -> str:
        *_, database, table = self._parts(output)
        warehouse = str(self._spark.conf.get("spark.sql.warehouse.dir")).rstrip("/")
        return f"{warehouse}/{table}" if database == "default" else f"{warehouse}/{database}.db/{table}"

    def _parts(self, output: OutputNode) -> tuple[str, ...]:
        parts = quoted_name(output.name)
        return (self._graph.catalog, self._graph.database, *parts)[-3:] if len(parts) < 3 else parts

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def checkpoint(self, resolved: ResolvedFlow) -> str:
        """The newest checkpoint directory of a flow, which need not exist yet."""
        root = self._checkpoints(resolved)
        return f"{root}/{max(self._files.numbers(root), default=0)}"

    def begin_anew(self, resolved: ResolvedFlow) -> None:
        """Let the flow start without its checkpoint. The old checkpoint stays where it is."""
        root = self._checkpoints(resolved)
        numbers = self._files.numbers(root)
        if numbers:
            self._files.make_directory(f"{root}/{max(numbers) + 1}")

    def check_numbers(self, resolved: ResolvedFlow) -> None:
        """Refuse a checkpoint that is older than the table of files, and one that is newer. Spark's file sink knows
        micro-batches by their numbers only, and passes over each that is not above the newest one in `_spark_metadata`:
        rows that an old checkpoint plans anew would be lost without an error. A table that is behind the checkpoint was
        removed or restored, and does not have rows that were written. Raises PlanChangedError.
        """
        if not self._is_of_files(resolved.target):
            return
        written = max(self._files.numbers(f"{self._location(resolved.target)}/_spark_metadata"), default=-1)
        checkpoint = self.checkpoint(resolved)
        planned = max(self._files.numbers(f"{checkpoint}/offsets"), default=-1)
        committed = max(self._files.numbers(f"{checkpoint}/commits"), default=-1)
        if written < committed:
            raise PlanChangedError(
                f"{resolved.target.place}: the table {resolved.target.name} has the micro-batches up to {written}, and"
                f" the checkpoint {checkpoint} of the flow {resolved.flow.name} those up to {committed}: the table was"
                " removed or restored from a backup, and rows are missing. Restore it, or let it begin anew with:"
                f" barnabas pipelines reset PIPELINE {resolved.flow.name}"
            )
        if planned < written:
            table = resolved.target.name
            raise PlanChangedError(
                f"{resolved.target.place}: the flow {resolved.flow.name} would not write its next rows: the table"
                f" {table} has the micro-batches up to {written}, and the checkpoint {checkpoint} those up to"
                f" {planned}. The checkpoint was restored from a backup, or removed. Restore the newest one; or let the"
                f" table begin anew with: barnabas pipelines reset PIPELINE {resolved.flow.name}"
            )

    def _checkpoints(self, resolved: ResolvedFlow) -> str:
        target = resolved.target
        parts = (target.name,) if target.kind is OutputKind.SINK else self._parts(target)
        return "/".join([self._storage, "_checkpoints", *parts, quoted_name(resolved.flow.name)[-1]])


def check_writers(graph: PipelineGraph) -> None:
    """Refuse several flows into one table of files. Spark's file sink numbers the micro-batches of a table, not of a
    flow: the second flow's micro-batch 0 counts as written already, and its rows are lost without an error.
    Raises GraphError.
    """
    for output in graph.outputs:
        flows = graph.flows_into(output)
        if output.kind is OutputKind.STREAMING_TABLE and len(flows) > 1 and (output.format or "parquet") != "delta":
            names = " and ".join(flow.name for flow in flows)
            raise GraphError(
                f"{output.place}: the flows {names} write to the table {output.name}, and Spark's files allow only one "
                "(it would silently skip rows of the others): make one flow of them with union, or let them write to "
                "one topic and read that into the table"
            )


def check_formats(graph: PipelineGraph, spark: Any) -> None:
    """Refuse tables of a format whose connector is a jar that the session lacks. Raises GraphError."""
    lookup = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource
    for output in graph.outputs:
        named = (output.format or "").lower()
        if named not in CONNECTOR_FORMATS or graph.is_merged(output):
            continue
        try:
            lookup(named, spark._jsparkSession.sessionState().conf())
        except Exception as error:  # Py4J raises the JVM's exception as one of several kinds
            raise GraphError(
                f"{output.place}: {output.name} has the format {named}, whose connector this session lacks: name it in "
                "spark.jars.packages in the spec's configuration. Without it, only create_auto_cdc_flow writes Delta "
                "tables"
            ) from error


def _new_columns(output: OutputNode, existing: Any, schema: Any) -> list[Any]:
    """The fields of `schema` that the table lacks. Raises PlanChangedError if a column has another type."""
    known = {field.name.lower(): field for field in existing.fields}
    new = []
    for field in schema.fields:
        other = known.get(field.name.lower())
        if other is None:
            new.append(field)
        elif other.dataType.simpleString() != field.dataType.simpleString():
            raise PlanChangedError(
                f"{output.place}: the column {field.name} of {output.name} was {other.dataType.simpleString()} and "
                f"is {field.dataType.simpleString()} now; cast it, or reset the flows into {output.name}"
            )
    return new


def _columns(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _literal(text: str) -> str:
    """A string in Spark's SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
