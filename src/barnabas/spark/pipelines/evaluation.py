"""Shell: calls the queries of flows on a classic session, and makes available what they read.

A query is called twice. The first time every table of the pipeline is a temporary view that has only the table's
columns, so that the whole pipeline is checked before anything is written (`dry-run` ends there). The second time,
when the flow starts, the tables are real. A temporary view of the pipeline is evaluated again for each flow that
reads it, so that each flow has sources, and a consumer group, of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, ParseException

from barnabas.spark.pipelines.cdc.merging import is_hidden
from barnabas.spark.pipelines.errors import GraphError
from barnabas.spark.pipelines.graph import FlowNode, OutputKind, OutputNode, PipelineGraph, Resolution, ResolvedFlow
from barnabas.spark.pipelines.interception import intercepted, working_directory
from barnabas.spark.pipelines.links import TopicsRead, link_by_topics, topics_read
from barnabas.spark.pipelines.spec import PipelineSpec
from barnabas.spark.pipelines.sql import quoted_name


class Evaluator:
    """Evaluates the flows of one pipeline."""

    def __init__(self, spark: Any, spec: PipelineSpec, directory: Path, graph: PipelineGraph) -> None:
        self._spark = spark
        self._directory = directory
        self._spec = spec
        self._graph = graph
        self._resolution = Resolution(graph)
        self._schemas: dict[str, Any] = {}
        self._placeholders: set[str] = set()
        self._checking = True
        self._is_intercepting = False
        self.open_merged: Callable[[OutputNode], Any] | None = None
        """Returns the rows of a table of change events, which is not in Spark's catalog."""

    def resolve(self) -> dict[str, ResolvedFlow]:
        """Call every query, and return the flows with what is known about them, sources first. Raises PipelineError."""
        try:
            for flow in self._graph.flows:
                self._resolve_flow(flow)
        finally:
            for name in sorted(self._placeholders):
                self._spark.catalog.dropTempView(name)
            self._placeholders.clear()
            self._checking = False
        reads = {name: self.topics_read(flow.flow) for name, flow in self._resolution.resolved.items()}
        return link_by_topics(self._resolution.resolved, reads)

    def schema(self, output: OutputNode) -> Any:
        """The columns of a table of the pipeline, as a StructType."""
        return self._schemas[self._graph.key(output.name)]

    def evaluate(self, resolved: ResolvedFlow) -> Any:
        """Call the query of a resolved flow again, with the real tables. Returns its DataFrame."""
        return self._call(resolved.flow)

    def topic_sources(self, flow: FlowNode) -> list[Mapping[str, str]]:
        """The options of the sources of topics that a flow reads, in lower case."""
        return self._resolution.topic_sources.get(flow.name, [])

    def topics_read(self, flow: FlowNode) -> list[TopicsRead]:
        """The topics that a flow reads."""
        found = map(topics_read, self.topic_sources(flow))
        return [read for read in found if read is not None]

    def servers(self, flow: FlowNode) -> str | None:
        """The bootstrap servers of the topics that a flow reads; None if they differ, or need credentials."""
        options = [
            {key.removeprefix("kafka."): value for key, value in given.items()} for given in self.topic_sources(flow)
        ]
        if any(key.startswith(("security.", "sasl.", "ssl.")) for given in options for key in given):
            return None
        found = {given.get("bootstrap.servers", "") for given in options}
        return found.pop() or None if len(found) == 1 else None

    @contextmanager
    def configured(self, conf: Mapping[str, str]) -> Iterator[None]:
        """Set the Spark configuration of a flow, and restore it afterwards."""
        before = {key: self._spark.conf.get(key, None) for key in conf}
        try:
            for key, value in conf.items():
                self._spark.conf.set(key, value)
            yield
        finally:
            for key, value in before.items():
                self._spark.conf.unset(key) if value is None else self._spark.conf.set(key, value)

    # -- the first call ----------------------------------------------------------------------------------------------

    def _resolve_flow(self, flow: FlowNode) -> None:
        target = self._graph.output(flow.target)
        assert target is not None
        is_known = target.kind is OutputKind.TEMPORARY_VIEW and self._graph.key(target.name) in self._schemas
        if flow.name not in self._resolution.resolved and not is_known:
            self._merge_schema(flow, target, self._call(flow).schema)

    def _merge_schema(self, flow: FlowNode, target: OutputNode, schema: Any) -> None:
        """All flows into a table must agree on the types of their columns."""
        from pyspark.sql.types import StructType

        key = self._graph.key(target.name)
        declared = target.schema
        if isinstance(declared, str):
            declared = StructType.fromDDL(declared)
        known = self._schemas.setdefault(key, declared if declared is not None else StructType([]))
        types = {field.name.lower(): field for field in known.fields}
        merged = [*known.fields]
        for field in schema.fields:
            if flow.changes is not None and is_hidden(field.name):
                continue
            other = types.get(field.name.lower())
            if other is None and declared is None:
                merged.append(field)
            elif other is None:
                raise GraphError(f"{flow.place}: the table {target.name} has no column {field.name}")
            elif other.dataType.simpleString() != field.dataType.simpleString() and target.kind.is_table:
                raise GraphError(
                    f"{flow.place}: the column {field.name} of {flow.name} is {field.dataType.simpleString()}, but the "
                    f"table {target.name} has {other.dataType.simpleString()}; cast it"
                )
        self._schemas[key] = StructType(merged)

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, flow: FlowNode) -> Any:
        """Call the query of a flow or of a temporary view. Raises PipelineError."""
        self._resolution.begin(flow)
        try:
            with self._intercepting(flow), self.configured(flow.spark_conf):
                frame = flow.query()
        except BaseException as error:  # the query is the user's code, which may raise anything
            self._resolution.abandon()
            if isinstance(error, (AnalysisException, ParseException)):
                raise GraphError(f"{flow.place}: {flow.name}: {self._explained(error)}") from error
            raise
        if not hasattr(frame, "isStreaming"):
            self._resolution.abandon()
            raise GraphError(f"{flow.place}: {flow.name} returned {type(frame).__name__}; a query returns a DataFrame")
        self._resolution.finish(flow, is_streaming=bool(frame.isStreaming))
        return frame

    @contextmanager
    def _intercepting(self, flow: FlowNode) -> Iterator[None]:
        """Views that a flow reads are evaluated inside the interception of the flow."""
        if self._is_intercepting:
            yield
            return
        self._is_intercepting = True
        group, on_source = self._group_of(flow), self._resolution.read_topics
        try:
            with working_directory(self._directory), intercepted(self._spark, self._provide, group, on_source):
                yield
        finally:
            self._is_intercepting = False

    def _provide(self, name: str, streaming: bool) -> str | None:
        """Make an output of the pipeline readable, before a query reads it. Returns the name under which it is readable
        if that is another name.
        """
        output = self._resolution.require(name, streaming=streaming)
        if output is None:
            return None
        if output.kind is OutputKind.TEMPORARY_VIEW:
            (flow,) = self._graph.flows_into(output)
            frame = self._call(flow)
            self._merge_schema(flow, output, frame.schema)
            frame.createOrReplaceTempView(_view_name(output.name))
        elif self._checking:
            for flow in self._graph.flows_into(output):
                self._resolve_flow(flow)
            self._place(output, streaming)
        elif self._graph.is_merged(output):
            assert self.open_merged is not None
            self.open_merged(output).createOrReplaceTempView(_view_name(output.name))
        else:
            return None
        return _view_name(output.name)

    def _place(self, output: OutputNode, streaming: bool) -> None:
        """A temporary view with the columns of a table and no rows."""
        schema = self.schema(output)
        if streaming:
            from pyspark.sql import functions as sf

            columns = [sf.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
            frame = self._spark.readStream.format("rate").load().select(*columns)
        else:
            frame = self._spark.createDataFrame([], schema)
        name = _view_name(output.name)
        frame.createOrReplaceTempView(name)
        self._placeholders.add(name)

    def _group_of(self, flow: FlowNode) -> str:
        return self._spec.settings.group_id.format(pipeline=self._spec.name, flow=flow.name)

    def _explained(self, error: AnalysisException) -> str:
        text = str(error).split("\n\nJVM stacktrace")[0].strip()
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            name = (error.getMessageParameters() or {}).get("relationName", "")
            return f"there is no table or view {name}" + self._graph.suggest(name)
        return text


def _view_name(name: str) -> str:
    """Temporary views have names without a schema."""
    return quoted_name(name)[-1]
