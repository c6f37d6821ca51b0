"""Machine: checks a history for every anomaly of the catalogue and builds the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.testing.histories import groups, order, writes
from barnabas.testing.histories.anomalies import Anomaly
from barnabas.testing.histories.cycles import cycles
from barnabas.testing.histories.facts import HistoryFacts, collect
from barnabas.testing.histories.history import ClientHistory
from barnabas.testing.histories.lag import worst_realtime_lag
from barnabas.testing.histories.report import AnomalyFinding, Report


@dataclass(frozen=True, slots=True)
class HistoryRules:
    """The guarantees that the workload had. The checker searches only for violations of these guarantees."""

    idempotent: bool = True
    """Producers were idempotent: no duplicates, and order within a partition."""
    read_committed: bool = True
    """Consumers read with isolation.level=read_committed."""
    healed: bool = True
    """Every partition was polled to its end after the last fault, so every acknowledged record must have been seen."""
    catching_up: frozenset[str] = frozenset()
    """Processes that read old records on purpose; their lag is ignored."""


def check(history: ClientHistory, rules: HistoryRules | None = None) -> Report:
    """Searches for every anomaly of the catalogue. Raises ValueError if a value was sent twice."""
    rules = rules or HistoryRules()
    facts = collect(history)
    lag = worst_realtime_lag(facts, rules.catching_up)
    ends = Counter(operation.outcome.value for operation in history.operations)
    return Report(
        findings=tuple(_findings(facts, rules)),
        operations={outcome: ends[outcome] for outcome in ("ok", "fail", "info")},
        sent=len(facts.writes),
        acknowledged=sum(facts.stands(write) for write in facts.writes.values()),
        seen=len(facts.seen_values),
        worst_realtime_lag_ms=lag.ms,
        worst_realtime_lag=lag.where,
    )


def _findings(facts: HistoryFacts, rules: HistoryRules) -> Iterator[AnomalyFinding]:
    yield from writes.inconsistent_offsets(facts)
    yield from writes.phantoms(facts)
    if rules.idempotent:
        yield from writes.duplicates(facts)
    if rules.read_committed:
        yield from writes.aborted_reads(facts)
        yield from writes.precommitted_reads(facts)
    yield from writes.missing_writes(facts, healed=rules.healed)
    yield from order.polls(facts)
    yield from (
        finding for finding in order.sends(facts) if rules.idempotent or finding.anomaly is Anomaly.INT_SEND_SKIP
    )
    yield from groups.processing(facts)
    yield from cycles(facts)
