"""What is understood from Spark's texts: the tables in a plan, and the meaning of exceptions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import barnabas.spark
from barnabas.spark.pipelines.failures import FINAL, RETRIED, Cause, Failure, classify
from barnabas.spark.pipelines.interception import relations, renamed

TREE = """CTE [recent, other]
:  +- 'SubqueryAlias recent
:     +- 'Project [*]
:        +- 'UnresolvedRelation [raw, events], [], true
+- 'Join Inner
   :- 'UnresolvedRelation [recent], [], false
   +- 'Filter exists#1 []
      :  +- 'UnresolvedRelation [totals], [k=v], false
      +- 'UnresolvedRelation [raw, events], [], true
"""


def test_the_tables_of_a_parsed_plan() -> None:
    assert relations(TREE) == [("`raw`.`events`", True), ("`totals`", False)]


def test_a_name_of_several_parts_is_replaced_as_a_whole() -> None:
    query = "SELECT db.t.x, d FROM db . `T` JOIN adb.t JOIN db.tt"
    assert renamed(query, "`db`.`t`", "v") == "SELECT `v`.x, d FROM `v` JOIN adb.t JOIN db.tt"


STREAM_FAILED = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {}\n=== Streaming Query ===\nIdentifier: x"
)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (
            STREAM_FAILED.format(
                "There are [1] sources in the checkpoint offsets and now there are [2] sources requested by the query."
            ),
            ("its number of sources changed", True),
        ),
        (
            STREAM_FAILED.format("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not match existing"),
            ("the columns that it groups or joins by changed", True),
        ),
        (STREAM_FAILED.format("Job aborted. SQLSTATE: XXKST"), (None, False)),
        ("AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column cannot be resolved", (None, True)),
    ],
)
def test_failures_are_classified(text: str, failure: tuple[str | None, bool]) -> None:
    found = classify(text)
    assert (found.plan_change, found.is_final) == failure


def test_the_innermost_python_error_is_the_summary() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when "
        "latestOffset\nTraceback (most recent call last):\n  File x, line 1\n"
        "barnabas.client.errors.BrokerUnreachableError: no broker of 127.0.0.1:1 answers\n\n\tat org.apache.spark.X"
    )
    assert classify(text) == Failure("BrokerUnreachableError: no broker of 127.0.0.1:1 answers", Cause.OUTAGE)


def test_without_a_python_error_the_summary_is_sparks_inner_message() -> None:
    text = STREAM_FAILED.format("[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema differs")
    assert classify(text).summary == "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema differs"


def error_classes() -> set[str]:
    """The classes in barnabas.spark whose base classes lead to SparkSourceError or PipelineError."""
    bases: dict[str, list[str]] = {}
    for path in Path(barnabas.spark.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    found = {"SparkSourceError", "PipelineError"}
    while more := {name for name, of in bases.items() if name not in found and found & set(of)}:
        found |= more
    return found


def test_every_error_class_is_final_or_retried() -> None:
    assert not FINAL & RETRIED
    assert len(error_classes()) > 50
    undecided = error_classes() - FINAL - RETRIED
    assert not undecided, f"add {sorted(undecided)} to FINAL or RETRIED in pipelines/failures.py"


@pytest.mark.parametrize(
    ("text", "is_final"),
    [
        ("barnabas.spark.connectors.transforms.errors.TransformDataError: transforms.a cannot transform", True),
        ("TransformConfigError: transforms.a.feelds is unknown", True),
        ("ConverterConfigError: value.converter names no converter", True),
        ("ConverterDataError: row 1 is not JSON", True),
        ("RefusedRowsError: a value is too long", True),
        ("LakeError: there is no column", True),
        ("EventError: the event has no op", True),
        ("RecordError: a value cannot be read", True),
        ("CaptureError: the offset is not that of a capture query", True),
        ("DatabaseSinkError: the table has no column", True),
        ("PicklingError: Could not serialize object: SinkError: the topic cannot be created", True),
        ("DatabaseUnreachableError: the connection was lost", False),
        ("DatabaseConflictError: a deadlock", False),
        ("ServerBehindError: start the query again when it has caught up", False),
        ("ServerNotReadyError: the server is a standby", False),
        ("LakeConflictError: the commit failed because of other writers", False),
        ("HttpUnavailableError: the web service does not answer", False),
        ("ServerConnectionError: the server cannot be reached", False),
        ("ConnectionLostError: the server has ended the connection", False),
        ("RecoveryError: no micro-batch begins", False),
        ("SchemaChangedError: start the query again (schema.evolution=restart)", False),
        ("ValueError: nothing that is known", False),
    ],
)
def test_the_class_of_an_error_says_whether_it_is_final(text: str, is_final: bool) -> None:
    in_spark = f"[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):\n{text}\n\n\tat x"
    assert (classify(text).is_final, classify(in_spark).is_final) == (is_final, is_final)


def test_the_outermost_error_decides() -> None:
    text = "SinkError: refused\n\nThe above exception was the direct cause of the following exception:\n\n"
    assert not classify(f"{text}barnabas.x.DatabaseUnreachableError: lost").is_final
    inferring = "pyspark.errors.AnalysisException: [PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance"
    assert not classify(f"{inferring} infer schema: Traceback\nx.ConnectionLostError: no server").is_final
    assert classify(f"{inferring} infer schema: Traceback\nx.OptionError: no table").is_final
