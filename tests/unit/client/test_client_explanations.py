"""Sentences about partitions, and about what a failover drill has found."""

from __future__ import annotations

import pytest

from barnabas.client.admin.maintenance import MaintenanceReport, RetentionFacts
from barnabas.client.explanations.partition import compact_outcome, retention, retention_outcome
from barnabas.client.links.drill import _difference
from barnabas.client.links.verifying import Comparison
from barnabas.core.ids import TopicPartition
from barnabas.server.storage.cleaner.cleanable import CleaningVerdict
from barnabas.server.storage.retention import RetentionVerdict

TP = TopicPartition("t", 0)


def report(verdict: str) -> MaintenanceReport:
    fields = dict.fromkeys(MaintenanceReport.__dataclass_fields__, 0)
    return MaintenanceReport(**{**fields, "verdict": verdict, "done": False})  # type: ignore[arg-type]


@pytest.mark.parametrize("verdict", [verdict.name for verdict in RetentionVerdict])
def test_each_verdict_of_retention_has_a_sentence(verdict: str) -> None:
    facts = RetentionFacts(verdict, 1, 1, False, 0, 10, 100, False, 0, -1, 0, 1)
    assert verdict not in " ".join(retention(facts, 100, 0))
    assert retention_outcome(report(verdict)) != verdict


@pytest.mark.parametrize("verdict", [verdict.name for verdict in CleaningVerdict])
def test_each_verdict_of_the_cleaner_has_an_outcome(verdict: str) -> None:
    assert compact_outcome(report(verdict)) != verdict


def test_a_comparison_that_failed_names_no_offset() -> None:
    failed = Comparison(TP, -1, -1, 0, 0, -1, error="The source does not answer.")
    assert _difference(failed) == "t-0 could not be compared with the source: The source does not answer."
    assert _difference(Comparison(TP, 0, 9, 2, 80, 0, differs_at=3)) == "t-0 differs from the source at offset 3."


@pytest.mark.parametrize("verdict", ["UNLIMITED", "TOO_OLD", "TOO_MUCH", "WITHIN_LIMITS"])
def test_sentences_about_a_tiered_log_name_the_local_limits(verdict: str) -> None:
    def sentences(*, is_local: bool) -> str:
        return " ".join(retention(RetentionFacts(verdict, 1, 1, is_local, 0, 10, 100, False, 0, 5, 0, 1), 100, 0))

    assert "local.retention" in sentences(is_local=True)
    assert "local.retention" not in sentences(is_local=False)
