"""Parses histories that are written as text, one operation on each line, in the order of the operations.

    process kind outcome  actions
    p1   send  ok    >a=x@0 >a=y@1        sends x to a, acknowledged at offset 0; then y
    c1   poll  ok    <a=x@0               polls x from a at offset 0
    t1   txn   info  <a=x@0 >b=z          it is unknown whether the transaction committed
    c1   assign ok   a b                  the keys of assign and seek
    t1   txn   ok    g/ <a=x@0            the transaction commits the offsets of group g

An operation takes one millisecond, and the next one begins a millisecond later. `~` after the outcome means that the
group rebalanced during the operation.
"""

from __future__ import annotations

import re

from barnabas.testing.histories import (
    Action,
    Anomaly,
    ClientHistory,
    HistoryRules,
    OperationKind,
    PollAction,
    Recorder,
    SendAction,
    check,
)

_ACTION = re.compile(r"(?P<way>[<>])(?P<key>\w+)=(?P<value>\w+)(@(?P<offset>\d+))?$")


def handmade(text: str) -> ClientHistory:
    recorder = Recorder()
    now_ms = 0
    for line in filter(None, map(str.strip, text.splitlines())):
        process, what, how, *rest = line.split()
        actions = [action for word in rest if (action := _action(word))]
        group = next((word.rstrip("/") for word in rest if word.endswith("/")), "")
        keys = [word for word in rest if not _ACTION.match(word) and not word.endswith("/")]
        invoked = recorder.invoke(process, OperationKind(what), actions, now_ms, keys=keys, group=group)
        end = {"ok": recorder.ok, "fail": recorder.fail, "info": recorder.info}[how.rstrip("~")]
        end(invoked, actions, now_ms + 1, rebalanced=how.endswith("~"))
        now_ms += 2
    return recorder.history()


def _action(word: str) -> Action | None:
    match = _ACTION.match(word)
    if match is None:
        return None
    offset = None if match["offset"] is None else int(match["offset"])
    if match["way"] == ">":
        return SendAction(match["key"], match["value"], offset)
    assert offset is not None, f"a poll needs an offset: {word}"
    return PollAction(match["key"], match["value"], offset)


def anomalies(text: str, rules: HistoryRules | None = None) -> set[Anomaly]:
    return set(check(handmade(text), rules).anomalies)
