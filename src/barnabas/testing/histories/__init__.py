"""What clients saw, written down and judged: `Recorder` keeps a history, `check` names the anomalies in it.

    recorder = Recorder()
    operation = recorder.invoke("producer-1", Kind.SEND, [Send("orders-0", 17)], now_ms)
    recorder.ok(operation, [Send("orders-0", 17, offset=4)], now_ms)
    report = check(recorder.history())
    assert not report.forbidden, report

No broker, no client, no clock: whoever runs a workload, by whatever client, tells the recorder what happened.
"""

from __future__ import annotations

from barnabas.testing.histories.anomalies import Anomaly
from barnabas.testing.histories.checker import Rules, check
from barnabas.testing.histories.history import Action, History, Kind, Operation, Outcome, Poll, Send
from barnabas.testing.histories.recorder import Recorder
from barnabas.testing.histories.report import Finding, Report

__all__ = [
    "Action",
    "Anomaly",
    "Finding",
    "History",
    "Kind",
    "Operation",
    "Outcome",
    "Poll",
    "Recorder",
    "Report",
    "Rules",
    "Send",
    "check",
]
