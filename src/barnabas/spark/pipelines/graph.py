"""Machine: the datasets and flows of a pipeline, and the order in which the flows can run.

Flows are functions, so their sources are known only when they are called. `Resolution` is therefore driven from
outside: `begin` a flow, `require` each name that its query reads, `finish` it with what the query turned out to be.

    output              written by                           its queries
    streaming table     any number of flows                  streaming
    materialized view   one flow, which has its name         batch
    temporary view      one flow; part of its readers        either
    sink                any number of flows                  streaming
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from typing import Any

from barnabas.core.reprs import repr_without
from barnabas.spark.pipelines.cdc.merging import ChangeRules
from barnabas.spark.pipelines.errors import GraphError
from barnabas.spark.pipelines.sql import quoted_name


class OutputKind(Enum):
    """What a flow writes to."""

    STREAMING_TABLE = "streaming table"
    MATERIALIZED_VIEW = "materialized view"
    TEMPORARY_VIEW = "temporary view"
    SINK = "sink"

    @property
    def is_table(self) -> bool:
        return self in (OutputKind.STREAMING_TABLE, OutputKind.MATERIALIZED_VIEW)


@dataclass(frozen=True, slots=True)
class OutputNode:
    """One output. `schema` is Spark's StructType or DDL text, or None; `place` is the file and line."""

    name: str
    kind: OutputKind
    place: str
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    schema: Any = None
    partition_columns: tuple[str, ...] = ()
    cluster_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    __repr__ = repr_without("options")


@dataclass(frozen=True, slots=True)
class FlowNode:
    """One flow. `query` returns a DataFrame: rows to append, or with `changes` events to merge into the target."""

    name: str
    target: str
    place: str
    query: Callable[[], Any]
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    changes: ChangeRules | None = None


@dataclass(frozen=True, slots=True)
class ResolvedFlow:
    """A flow, whether its query is a stream, and the outputs that the query reads, in the order of first use."""

    flow: FlowNode
    target: OutputNode
    is_streaming: bool
    sources: tuple[str, ...]
    upstream: frozenset[str]
    """The names of the flows that write the tables and topics which this flow reads."""
    perhaps_upstream: frozenset[str] = frozenset()
    """The names of the flows whose rows name the topics to which they are sent, in the cluster whose topics this flow
    reads: they may write them."""


class PipelineGraph:
    """All outputs and flows. Names are compared without regard to case, and without the default catalog and schema."""

    def __init__(self, catalog: str = "spark_catalog", database: str = "default") -> None:
        self.catalog = catalog
        self.database = database
        self._outputs: dict[str, OutputNode] = {}
        self._flows: dict[str, FlowNode] = {}

    @property
    def outputs(self) -> list[OutputNode]:
        return list(self._outputs.values())

    @property
    def flows(self) -> list[FlowNode]:
        return list(self._flows.values())

    def key(self, name: str) -> str:
        """The form of a name in which two names of one output are equal."""
        parts = [part.lower() for part in quoted_name(name)]
        if len(parts) == 3 and parts[0] == self.catalog.lower():
            parts = parts[1:]
        if len(parts) == 2 and parts[0] == self.database.lower():
            parts = parts[1:]
        return ".".join(parts)

    def add_output(self, output: OutputNode) -> None:
        """Raises GraphError if an output of that name exists."""
        other = self._outputs.setdefault(self.key(output.name), output)
        if other is not output:
            raise GraphError(
                f"{output.place}: the {output.kind.value} {output.name} has the name of the {other.kind.value} that is "
                f"defined in {other.place}"
            )

    def add_flow(self, flow: FlowNode) -> None:
        """Raises GraphError if a flow of that name exists."""
        other = self._flows.setdefault(self.key(flow.name), flow)
        if other is not flow:
            raise GraphError(f"{flow.place}: there is a flow {flow.name} already, in {other.place}; give it a name")

    def output(self, name: str) -> OutputNode | None:
        """The output of that name, or None: then the name belongs to a table outside of the pipeline."""
        return self._outputs.get(self.key(name))

    def flows_into(self, output: OutputNode) -> list[FlowNode]:
        return [flow for flow in self._flows.values() if self.key(flow.target) == self.key(output.name)]

    def is_merged(self, output: OutputNode) -> bool:
        """Whether a flow merges change events into the output: its rows change, and are not only added."""
        return any(flow.changes is not None for flow in self.flows_into(output))

    def check(self) -> None:
        """Check what can be checked before a flow is called. Raises GraphError."""
        if not self._flows:
            raise GraphError("the pipeline has no flow: check `libraries` in its spec")
        for flow in self._flows.values():
            target = self.output(flow.target)
            if target is None:
                hint = self.suggest(flow.target)
                raise GraphError(f"{flow.place}: the flow {flow.name} writes to {flow.target}, which is missing{hint}")
            alone = target.kind in (OutputKind.MATERIALIZED_VIEW, OutputKind.TEMPORARY_VIEW)
            if alone and self.key(flow.name) != self.key(target.name):
                raise GraphError(
                    f"{flow.place}: the flow {flow.name} cannot append to the {target.kind.value} {target.name}; "
                    "append to a streaming table or to a sink"
                )
            if flow.changes is not None:
                self._check_changes(flow, target)
        for output in self._outputs.values():
            if not self.flows_into(output):
                raise GraphError(
                    f"{output.place}: no flow writes to the {output.kind.value} {output.name}; define one with "
                    f"append_flow(target={output.name!r}), or remove it"
                )

    def _check_changes(self, flow: FlowNode, target: OutputNode) -> None:
        if target.kind is not OutputKind.STREAMING_TABLE:
            raise GraphError(
                f"{flow.place}: {flow.name} merges changes into the {target.kind.value} {target.name}; define the "
                f"target with create_streaming_table({target.name!r}, format='delta')"
            )
        if (target.format or "").lower() != "delta":
            files = target.format or "parquet"
            raise GraphError(
                f"{target.place}: {flow.name} replaces and deletes rows of {target.name}, which {files} files do not "
                f"allow; write create_streaming_table({target.name!r}, format='delta')"
            )
        others = [other.name for other in self.flows_into(target) if other is not flow]
        if others:
            raise GraphError(
                f"{flow.place}: {flow.name} merges changes into {target.name}, to which {others[0]} writes too; a "
                "table of create_auto_cdc_flow has one flow: unite the sources in a temporary view"
            )

    def suggest(self, name: str) -> str:
        """`: did you mean X?` with the nearest name of an output, or an empty string."""
        near = get_close_matches(self.key(name), list(self._outputs), n=1, cutoff=0.6)
        return f": did you mean {self._outputs[near[0]].name}?" if near else ""


class Resolution:
    """Calls are nested: between the `begin` and the `finish` of a flow or view, others may begin and finish."""

    def __init__(self, graph: PipelineGraph) -> None:
        self._graph = graph
        self._open: list[_Open] = []
        self.resolved: dict[str, ResolvedFlow] = {}
        self.topic_sources: dict[str, list[Mapping[str, str]]] = {}
        """The options of the sources of topics that each flow reads, in lower case."""

    def begin(self, flow: FlowNode) -> None:
        """The query of this flow is about to be called. Raises GraphError if it is being called already."""
        names = [entry.flow.name for entry in self._open]
        if flow.name in names:
            circle = [*names[names.index(flow.name) :], flow.name]
            raise GraphError(f"{flow.place}: {flow.name} reads itself: {' ← '.join(circle)}")
        self._open.append(_Open(flow))

    def require(self, name: str, *, streaming: bool) -> OutputNode | None:
        """The query reads `name`, as a stream if `streaming`. Returns the output, or None if the name belongs to a
        table outside of the pipeline. Raises GraphError.
        """
        output = self._graph.output(name)
        if output is None or not self._open:
            return output
        flow = self._open[-1].flow
        if output.kind is OutputKind.SINK:
            raise GraphError(f"{flow.place}: {flow.name} reads the sink {output.name}; a sink can only be written")
        if streaming and output.kind is OutputKind.MATERIALIZED_VIEW:
            raise GraphError(
                f"{flow.place}: {flow.name} reads the materialized view {output.name} as a stream, but the view is "
                "computed anew each time; read it with spark.read.table, or make it a streaming table"
            )
        if streaming and self._graph.is_merged(output):
            raise GraphError(
                f"{flow.place}: {flow.name} reads {output.name} as a stream, but its rows are replaced and deleted by "
                "create_auto_cdc_flow; read it with spark.read.table, or read the change events themselves"
            )
        for entry in self._readers():
            entry.sources.setdefault(output.name)
        return output

    def read_topics(self, options: Mapping[str, str]) -> None:
        """The query reads topics; `options` are those of the source, in lower case."""
        for entry in self._readers():
            entry.topic_sources.append(dict(options))

    def _readers(self) -> list[_Open]:
        """The flows that read what the query reads that is being called: what a view reads, its readers read; what a
        table's flow reads, only the table's flow reads."""
        readers = []
        for entry in reversed(self._open):
            readers.append(entry)
            target = self._graph.output(entry.flow.target)
            if target is None or target.kind is not OutputKind.TEMPORARY_VIEW:
                break
        return readers

    def finish(self, flow: FlowNode, *, is_streaming: bool) -> None:
        """The query of the flow that began last has returned. Raises GraphError if the target needs another query."""
        entry = self._open.pop()
        assert entry.flow is flow
        target = self._graph.output(flow.target)
        assert target is not None
        if target.kind is OutputKind.TEMPORARY_VIEW:
            return
        if is_streaming and target.kind is OutputKind.MATERIALIZED_VIEW:
            raise GraphError(
                f"{flow.place}: the query of the materialized view {target.name} is a stream; read its sources with "
                "spark.read, or define a streaming table with @table"
            )
        if not is_streaming and target.kind is not OutputKind.MATERIALIZED_VIEW:
            raise GraphError(
                f"{flow.place}: the query of the flow {flow.name} is not a stream, but the {target.kind.value} "
                f"{target.name} needs one; read its sources with spark.readStream, or define a materialized_view"
            )
        self.topic_sources[flow.name] = entry.topic_sources
        sources = tuple(entry.sources)
        self.resolved[flow.name] = ResolvedFlow(flow, target, is_streaming, sources, self._writers(sources))

    def abandon(self) -> None:
        """The query of the flow that began last has raised an exception."""
        self._open.pop()

    def _writers(self, sources: Iterable[str]) -> frozenset[str]:
        outputs = [self._graph.output(name) for name in sources]
        tables = [output for output in outputs if output is not None and output.kind.is_table]
        return frozenset(flow.name for table in tables for flow in self._graph.flows_into(table))


@dataclass(slots=True)
class _Open:
    flow: FlowNode
    sources: dict[str, None] = field(default_factory=dict)
    topic_sources: list[Mapping[str, str]] = field(default_factory=list)
