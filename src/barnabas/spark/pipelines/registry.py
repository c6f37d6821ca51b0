"""Shell: the registry that `pyspark.pipelines`' decorators call, and the loading of a pipeline's files."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark.pipelines
import pyspark.pipelines.api
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable, TemporaryView
from pyspark.pipelines.source_code_location import get_caller_source_code_location

from barnabas.spark.pipelines.cdc.arguments import ChangeFlow, change_rules
from barnabas.spark.pipelines.cdc.delta import require_deltalake
from barnabas.spark.pipelines.cdc.events import change_events
from barnabas.spark.pipelines.errors import DefinitionError, GraphError, PipelineError
from barnabas.spark.pipelines.graph import FlowNode, OutputKind, OutputNode, PipelineGraph
from barnabas.spark.pipelines.interception import replaced, working_directory
from barnabas.spark.pipelines.spec import PipelineSpec
from barnabas.spark.pipelines.sql import SqlChangeFlow, SqlDataset, SqlFlow, SqlSetting, parse_statements

_KINDS: Mapping[type[Output], OutputKind] = {
    StreamingTable: OutputKind.STREAMING_TABLE,
    MaterializedView: OutputKind.MATERIALIZED_VIEW,
    TemporaryView: OutputKind.TEMPORARY_VIEW,
    Sink: OutputKind.SINK,
}
_SQL_KINDS: Mapping[str, OutputKind] = {kind.value: kind for kind in OutputKind}


class ClassicGraphRegistry(GraphElementRegistry):  # type: ignore[misc]  # pyspark is not followed by mypy
    """Collects what the files define in a `PipelineGraph`. Queries are called later, on a classic session."""

    def __init__(self, spark: Any, graph: PipelineGraph, directory: Path) -> None:
        self._spark = spark
        self._graph = graph
        self._directory = directory

    def register_output(self, output: Output) -> None:
        kind = _KINDS.get(type(output))
        if kind is None:
            raise DefinitionError(f"outputs of the kind {type(output).__name__} are not supported")
        self._graph.add_output(
            OutputNode(
                name=output.name,
                kind=kind,
                place=self.place_of(output.source_code_location),
                format=getattr(output, "format", None),
                options=dict(getattr(output, "options", {})),
                comment=output.comment,
                schema=getattr(output, "schema", None),
                partition_columns=tuple(getattr(output, "partition_cols", None) or ()),
                cluster_columns=tuple(getattr(output, "cluster_by", None) or ()),
                properties=dict(getattr(output, "table_properties", {})),
            )
        )

    def register_flow(self, flow: Any) -> None:
        place = self.place_of(flow.source_code_location)
        self._graph.add_flow(FlowNode(flow.name, flow.target, place, flow.func, dict(flow.spark_conf)))

    def register_auto_cdc_flow(self, flow: Any) -> None:
        """Called by Spark's own create_auto_cdc_flow, whose columns belong to Spark Connect."""
        raise DefinitionError("import create_auto_cdc_flow from pyspark.pipelines")

    def add_change_flow(self, flow: ChangeFlow, place: str) -> None:
        """Add the flow of create_auto_cdc_flow, or of AUTO CDC INTO, at `place`. Raises DefinitionError."""
        try:
            rules = change_rules(flow)
        except DefinitionError as error:
            raise DefinitionError(f"{place}: {error}") from error
        require_deltalake(place)
        spark, source, name = self._spark, flow.source, flow.name or flow.target

        def query() -> Any:
            frame = spark.readStream.table(source)
            try:
                return change_events(frame, rules)
            except GraphError as error:
                raise GraphError(f"{place}: {name}: {error}") from error

        self._graph.add_flow(FlowNode(name, flow.target, place, query, dict(flow.spark_conf), rules))

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        settings: dict[str, str] = {}
        for statement in parse_statements(sql_text, str(file_path)):
            match statement:
                case SqlSetting():
                    settings[statement.key] = statement.value
                case SqlFlow():
                    self._sql_flow(
                        statement.name, statement.target, statement.query, f"{file_path}:{statement.line}", settings
                    )
                case SqlChangeFlow():
                    self.add_change_flow(
                        ChangeFlow(**statement.arguments, spark_conf=dict(settings)), f"{file_path}:{statement.line}"
                    )
                case SqlDataset():
                    self._sql_dataset(statement, f"{file_path}:{statement.line}", settings)

    def _sql_dataset(self, statement: SqlDataset, place: str, settings: Mapping[str, str]) -> None:
        self._graph.add_output(
            OutputNode(
                name=statement.name,
                kind=_SQL_KINDS[statement.kind],
                place=place,
                format=statement.format,
                comment=statement.comment,
                schema=statement.columns,
                partition_columns=statement.partition_columns,
                cluster_columns=statement.cluster_columns,
                properties=statement.properties,
            )
        )
        if statement.query is not None:
            self._sql_flow(statement.name, statement.name, statement.query, place, settings)

    def _sql_flow(self, name: str, target: str, query: str, place: str, settings: Mapping[str, str]) -> None:
        spark = self._spark
        self._graph.add_flow(FlowNode(name, target, place, lambda: spark.sql(query), dict(settings)))

    def place_of(self, location: Any) -> str:
        path = Path(location.filename)
        shown = path.relative_to(self._directory) if path.is_relative_to(self._directory) else path
        return f"{shown}:{location.line_number}"


def load_definitions(spec: PipelineSpec, spec_path: Path, spark: Any, graph: PipelineGraph) -> None:
    """Import the Python files and parse the SQL files of the pipeline. Raises PipelineError."""
    directory = spec_path.parent.resolve()
    registry = ClassicGraphRegistry(spark, graph, directory)
    with working_directory(directory), graph_element_registration_context(registry), _classic_cdc(registry):
        for pattern in spec.libraries:
            files = sorted(p for p in directory.glob(pattern) if p.is_file() and "__pycache__" not in p.parts)
            for file in files:
                _load_file(file, directory, spark, registry)
    graph.check()


def _load_file(file: Path, directory: Path, spark: Any, registry: ClassicGraphRegistry) -> None:
    if file.suffix == ".sql":
        registry.register_sql(file.read_text(encoding="utf-8"), file.relative_to(directory))
    elif file.suffix == ".py":
        _import_file(file, directory, spark)
    else:
        raise DefinitionError(
            f"{file.relative_to(directory)} is neither a .py nor a .sql file; move it, or name files one by one"
        )


def _import_file(file: Path, directory: Path, spark: Any) -> None:
    module_spec = importlib.util.spec_from_file_location(file.stem, file)
    assert module_spec is not None and module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    module.__dict__["spark"] = spark  # as Spark's own command does
    try:
        module_spec.loader.exec_module(module)
    except PipelineError:
        raise
    except Exception as error:  # the user's code in the file may raise anything; the message names the file
        line = _line_in(error, file)
        where = f"{file.relative_to(directory)}" + (f", line {line}" if line else "")
        raise DefinitionError(f"{where}: {type(error).__name__}: {error}") from error


def _line_in(error: BaseException, file: Path) -> int | None:
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@contextmanager
def _classic_cdc(registry: ClassicGraphRegistry) -> Iterator[None]:
    """Replace create_auto_cdc_flow while the files are loaded: Spark's own fails without grpc."""

    def create_auto_cdc_flow(*given: Any, **named: Any) -> None:
        place = registry.place_of(get_caller_source_code_location(stacklevel=1))
        registry.add_change_flow(ChangeFlow.of(*given, **named), place)

    with ExitStack() as stack:
        for module in (pyspark.pipelines, pyspark.pipelines.api):
            if hasattr(module, "create_auto_cdc_flow"):
                stack.enter_context(replaced(module, "create_auto_cdc_flow", create_auto_cdc_flow))
        yield
