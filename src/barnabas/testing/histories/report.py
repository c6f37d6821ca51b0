"""Value: the findings of a check, and their text for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from barnabas.testing.histories.anomalies import Anomaly

EXAMPLES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class AnomalyFinding:
    """One occurrence of one anomaly. `text` names the values, offsets and operations."""

    anomaly: Anomaly
    text: str

    def __str__(self) -> str:
        return f"{self.anomaly.title}: {self.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, and counts that show how much the history contains."""

    findings: tuple[AnomalyFinding, ...]
    operations: dict[str, int]
    """How many operations ended ok, fail and info."""
    sent: int
    acknowledged: int
    seen: int
    worst_realtime_lag_ms: float
    worst_realtime_lag: str

    @property
    def forbidden(self) -> tuple[AnomalyFinding, ...]:
        """The findings that a correct broker never causes."""
        return tuple(finding for finding in self.findings if not finding.anomaly.legal)

    @property
    def anomalies(self) -> frozenset[Anomaly]:
        """The anomalies that were found, legal ones included."""
        return frozenset(finding.anomaly for finding in self.findings)

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {outcome}" for outcome, count in self.operations.items())
        lines = [
            f"{'FORBIDDEN ANOMALIES' if self.forbidden else 'no forbidden anomaly'} in {ends} operations",
            f"{self.sent} values sent, {self.acknowledged} acknowledged, {self.seen} seen",
            f"worst realtime lag: {self.worst_realtime_lag_ms:.0f} ms{self.worst_realtime_lag}",
        ]
        for anomaly, count in Counter(finding.anomaly for finding in self.findings).items():
            lines.append(f"{anomaly.title} x {count}{' (legal)' if anomaly.legal else ''}: {anomaly.meaning}")
            if anomaly.legal:
                continue
            examples = [finding.text for finding in self.findings if finding.anomaly is anomaly]
            lines += [f"    {text}" for text in examples[:EXAMPLES_SHOWN]]
            if count > EXAMPLES_SHOWN:
                lines.append(f"    ... and {count - EXAMPLES_SHOWN} more")
        return "\n".join(lines)
