"""What is understood from Spark's texts: the tables in a plan, and the meaning of exceptions."""

from __future__ import annotations

import pytest

from barnabas.spark.pipelines.failures import Failure, classify
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
    assert classify(text) == Failure("BrokerUnreachableError: no broker of 127.0.0.1:1 answers", is_final=False)


def test_without_a_python_error_the_summary_is_sparks_inner_message() -> None:
    text = STREAM_FAILED.format("[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema differs")
    assert classify(text).summary == "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema differs"
