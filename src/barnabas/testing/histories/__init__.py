"""What clients saw, written down and judged: `Recorder` keeps a history, `check` names the anomalies in it.

    recorder = Recorder()
    operation = recorder.invoke("producer-1", OperationKind.SEND, [SendAction("orders-0", 17)], now_ms)
    recorder.ok(operation, [SendAction("orders-0", 17, offset=4)], now_ms)
    report = check(recorder.history())
    assert not report.forbidden, report

No broker, no client, no clock: whoever runs a workload, by whatever client, tells the recorder what happened.
"""

from __future__ import annotations

from barnabas.testing.histories.anomalies import Anomaly
from barnabas.testing.histories.checker import HistoryRules, check
from barnabas.testing.histories.history import (
    Action,
    ClientHistory,
    ClientOperation,
    OperationKind,
    OperationOutcome,
    PollAction,
    SendAction,
)
from barnabas.testing.histories.recorder import Recorder
from barnabas.testing.histories.report import Finding, Report

__all__ = [
    "Action",
    "Anomaly",
    "ClientHistory",
    "ClientOperation",
    "Finding",
    "HistoryRules",
    "OperationKind",
    "OperationOutcome",
    "PollAction",
    "Recorder",
    "Report",
    "SendAction",
    "check",
]
