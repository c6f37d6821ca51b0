"""Histories of what clients saw: `Recorder` records a history, `check` finds the anomalies in it.

    recorder = Recorder()
    operation = recorder.invoke("producer-1", OperationKind.SEND, [SendAction("orders-0", 17)], now_ms)
    recorder.ok(operation, [SendAction("orders-0", 17, offset=4)], now_ms)
    operation = recorder.invoke("consumer-1", OperationKind.POLL, [], now_ms)
    recorder.ok(operation, [PollAction("orders-0", 17, offset=4)], now_ms)
    report = check(recorder.history())
    assert not report.forbidden, report

The package uses no broker, no client and no clock. The program that runs a workload calls the recorder before and after
each client operation.
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
from barnabas.testing.histories.report import AnomalyFinding, Report

__all__ = [
    "Action",
    "Anomaly",
    "AnomalyFinding",
    "ClientHistory",
    "ClientOperation",
    "HistoryRules",
    "OperationKind",
    "OperationOutcome",
    "PollAction",
    "Recorder",
    "Report",
    "SendAction",
    "check",
]
