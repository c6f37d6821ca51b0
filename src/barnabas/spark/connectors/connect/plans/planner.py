"""Shell: the `ConnectorPlanner` of a worker: plans whose queries Spark runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from barnabas.core.telemetry import get_logger
from barnabas.spark.connectors.connect.cluster.ports import (
    ConfigDefinition,
    ConfigFinding,
    ConnectorPlaces,
    ConnectPlugin,
)
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectorKind
from barnabas.spark.connectors.connect.plans.file_directories import refused_file
from barnabas.spark.connectors.connect.plans.jdbc import SPARK_JDBC
from barnabas.spark.connectors.connect.plans.queries import (
    PlannedQuery,
    definitions_of,
    findings_of,
    plan_query,
    with_defaults,
)
from barnabas.spark.connectors.connect.plans.table import CONNECTORS, find_connector
from barnabas.spark.connectors.converters.making import CLASSES
from barnabas.spark.connectors.transforms.definitions import (
    PREDICATES,
    PREDICATES_PACKAGE,
    TRANSFORMS,
    TRANSFORMS_PACKAGE,
    Definition,
)
from barnabas.spark.errors import OptionError

log = get_logger("barnabas.connect")


class SparkQueryPlan:
    """A connector that is one streaming query."""

    queries = 1

    def __init__(self, planned: PlannedQuery, version: str) -> None:
        self.planned = planned
        self.version = version
        self.topics: Sequence[str] = planned.topics

    def start(self, number: int, spark: Any, places: ConnectorPlaces) -> Any:
        planned = self.planned
        is_source = planned.kind is ConnectorKind.SOURCE
        staging = {"stagingLocation": places.staging} if planned.is_staged and is_source else {}
        given = {name.lower(): text for name, text in planned.read_options.items()}
        read_options = {**{name.lower(): text for name, text in staging.items()}, **given}
        rows = spark.readStream.format(planned.read_format).options(**read_options).load()
        if planned.select is not None:
            rows = spark.sql(f"SELECT {planned.select} FROM {{rows}}", rows=rows)
        if is_source:
            rows = rows.select(*[name for name in RECORD_COLUMNS if name in rows.columns])
        elif planned.select is None:
            rows = _columns_of_values(rows, deletes=planned.deletes)
        if planned.write_format == SPARK_JDBC:
            writer = rows.writeStream.foreachBatch(_jdbc_writer(planned.write_options))
        else:
            staged = {"stagingLocation": places.staging} if planned.is_staged and not is_source else {}
            writer = rows.writeStream.format(planned.write_format).options(**planned.write_options, **staged)
        return (
            writer.option("checkpointLocation", places.checkpoint)
            .trigger(processingTime=f"{planned.trigger_ms} milliseconds")
            .start()
        )


def _jdbc_writer(options: Mapping[str, str]) -> Callable[[Any, int], None]:
    """Adds the rows of a micro-batch to a table with Spark's own JDBC writer, at least once."""
    log.warning(
        "this database has no sink of its own: Spark's JDBC writer writes rows at least once, so a failure may repeat"
        " the rows of a micro-batch",
        table=options["dbtable"],
    )

    def write(rows: Any, batch: int) -> None:
        rows.write.format(SPARK_JDBC).options(**options).mode("append").save()

    return write


RECORD_COLUMNS = ("topic", "partition", "key", "value", "headers", "timestamp")
"""The columns that `format("barnabas")` writes."""


class WorkerPlanner:
    """Plans for all connectors of `table.py`. `client` has the settings of the worker's Kafka clients, `converters` the
    worker's converters, `file_directories` the directories in which connectors may use files; None allows every file.
    """

    def __init__(
        self,
        client: Mapping[str, str],
        converters: Mapping[str, str] | None = None,
        file_directories: Sequence[str] | None = None,
    ) -> None:
        from barnabas import __version__

        self._client = dict(client)
        self._converters = dict(converters or {})
        self._version = __version__
        self._file_directories = file_directories

    def plugins(self) -> Sequence[ConnectPlugin]:
        rows = [(name, row.kind.value) for row in CONNECTORS for name in (row.name, *row.aliases)]
        rows += [(name, "converter") for name in CLASSES.values()]
        rows += [(TRANSFORMS_PACKAGE + name, "transformation") for name in _names(TRANSFORMS)]
        rows += [(PREDICATES_PACKAGE + name, "predicate") for name in _names(PREDICATES)]
        return [ConnectPlugin(name, kind, self._version) for name, kind in rows]

    def kind(self, config: ConnectorConfig) -> ConnectorKind:
        try:
            return find_connector(config.get("connector.class", "")).kind
        except LookupError:
            return ConnectorKind.UNKNOWN

    def definitions(self, plugin: str) -> Sequence[ConfigDefinition]:
        return definitions_of(find_connector(plugin))

    def findings(self, config: ConnectorConfig) -> Sequence[ConfigFinding]:
        found = findings_of(with_defaults(config, self._converters))
        refused = self._refused_file(config)
        if refused is None:
            return found
        name, error = refused
        return [replace(each, errors=(*each.errors, error)) if each.name == name else each for each in found]

    def plan(self, config: ConnectorConfig) -> SparkQueryPlan:
        refused = self._refused_file(config)
        if refused is not None:
            raise OptionError(refused[1])
        return SparkQueryPlan(plan_query(with_defaults(config, self._converters), self._client), self._version)

    def _refused_file(self, config: ConnectorConfig) -> tuple[str, str] | None:
        return None if self._file_directories is None else refused_file(config, self._file_directories)


def _columns_of_values(rows: Any, *, deletes: bool) -> Any:
    """The fields of typed values as columns; rows whose values are bytes or text stay as they are.

    A tombstone is a row with `__deleted` and the fields of its key if rows may be deleted, else an error.
    """
    values = rows.schema["value"].dataType
    if values.typeName() != "struct":
        return rows
    if not deletes:
        return rows.where(_NO_TOMBSTONES).select("value.*")
    keys = rows.schema["key"].dataType
    if keys.typeName() != "struct":
        raise OptionError("delete.enabled needs the fields of the keys: give keyFormat")
    fields = [
        f"coalesce(value.`{name}`, key.`{name}`) AS `{name}`" if name in keys.names else f"value.`{name}`"
        for name in values.names
    ]
    missing = [f"key.`{name}`" for name in keys.names if name not in values.names]
    return rows.selectExpr(*fields, *missing, "value IS NULL AS __deleted")


def _names(definitions: Sequence[Definition]) -> list[str]:
    """The names of transforms or predicates; those with variants are named once for keys and once for values."""
    variants = [(d.name, ("$Key", "$Value") if d.variants else ("",)) for d in definitions]
    return [name + variant for name, found in variants for variant in found]


_NO_TOMBSTONES = (
    "CASE WHEN value IS NULL THEN CAST(raise_error(concat('the record at offset ', offset, ' of ', topic, '-',"
    " partition, ' has no value: set delete.enabled=true with insert.mode=upsert to delete its key')) AS BOOLEAN)"
    " ELSE true END"
)
