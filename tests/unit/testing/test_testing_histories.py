"""The checker finds each anomaly of the catalogue in histories that contain it, and in no others."""

from __future__ import annotations

import pytest

from barnabas.testing.histories import (
    Anomaly,
    ClientHistory,
    HistoryRules,
    OperationKind,
    PollAction,
    Recorder,
    SendAction,
    check,
)
from tests.unit.testing.handmade import anomalies, handmade

UNHEALED = HistoryRules(healed=False)

CLEAN = """
    p1 send ok >a=1@0 >a=2@1 >b=3@0
    t1 txn  ok <a=1@0 >b=4@1
    t1 txn  fail <a=2@1 >b=5@3
    c1 assign ok a b
    c1 poll ok <a=1@0 <b=3@0
    c1 poll ok <a=2@1 <b=4@1
    c1 poll ok
"""

FOUND = {
    # polls disagree; a poll and an acknowledgement disagree
    "two polls, two values": (
        "p send ok >a=1@0\np send ok >a=2@1\nc poll ok <a=1@0\nd poll ok <a=2@0 <a=2@1",
        {Anomaly.INCONSISTENT_OFFSETS, Anomaly.DUPLICATE},
    ),
    "the broker said another offset": (
        "p send ok >a=1@0\nq send ok >a=2@0\nc poll ok <a=1@0\nd poll ok <a=2@1",
        {Anomaly.INCONSISTENT_OFFSETS, Anomaly.DUPLICATE},
    ),
    "one value, two offsets": (
        "p send info >a=1\nc poll ok <a=1@0 <a=1@1",
        {Anomaly.DUPLICATE},
    ),
    "one value, two partitions": (
        "p send ok >a=1@0\nc poll ok <a=1@0 <b=1@0",
        {Anomaly.DUPLICATE},
    ),
    "nobody wrote it": ("c poll ok <a=1@0", {Anomaly.PHANTOM}),
    "G1a": ("t txn fail >a=1@0\nc poll ok <a=1@0", {Anomaly.ABORTED_READ}),
    "lost": (
        "p send ok >a=1@0\np send ok >a=2@1\nc poll ok <a=2@1",
        {Anomaly.LOST_WRITE},
    ),
    "a transaction torn: one record is seen, which proves the other": (
        "t txn info >a=1@0 >b=2@0\nu txn ok >b=3@2\nc poll ok <a=1@0 <b=3@2",
        {Anomaly.LOST_WRITE},
    ),
    "a transaction torn, at an offset that nobody knows": (
        "t txn info >a=1 >b=2\nc poll ok <a=1@0",
        {Anomaly.UNSEEN},
    ),
    "unseen at the end": ("p send ok >a=1@0 >a=2@1\nc poll ok <a=1@0", {Anomaly.UNSEEN}),
    "its own write": ("t txn ok >a=1@0 <a=1@0", {Anomaly.PRECOMMITTED_READ}),
    "skipped within": (
        "p send ok >a=1@0 >a=2@1 >a=3@2\nc poll ok <a=1@0 <a=3@2\nd poll ok <a=1@0 <a=2@1 <a=3@2",
        {Anomaly.INT_POLL_SKIP},
    ),
    "went back within": (
        "p send ok >a=1@0 >a=2@1\nc poll ok <a=1@0 <a=2@1 <a=1@0",
        {Anomaly.INT_NONMONOTONIC_POLL},
    ),
    "again within": ("p send ok >a=1@0\nc poll ok <a=1@0 <a=1@0", {Anomaly.INT_NONMONOTONIC_POLL}),
    "skipped between": (
        "p send ok >a=1@0 >a=2@1 >a=3@2\nd poll ok <a=1@0 <a=2@1 <a=3@2\n"
        "c assign ok a\nc poll ok <a=1@0\nc poll ok <a=3@2",
        {Anomaly.POLL_SKIP},
    ),
    "went back between": (
        "p send ok >a=1@0 >a=2@1\nc assign ok a\nc poll ok <a=1@0 <a=2@1\nc poll ok <a=1@0",
        {Anomaly.NONMONOTONIC_POLL},
    ),
    "skipped between, subscribed": (
        "p send ok >a=1@0 >a=2@1 >a=3@2\nd poll ok <a=1@0 <a=2@1 <a=3@2\n"
        "c subscribe ok\nc poll ok <a=1@0\nc poll ok <a=3@2",
        {Anomaly.SUBSCRIBED_POLL_SKIP},
    ),
    "went back between, subscribed": (
        "p send ok >a=1@0\nc subscribe ok\nc poll ok <a=1@0\nc poll ok <a=1@0",
        {Anomaly.SUBSCRIBED_NONMONOTONIC_POLL},
    ),
    "a later send, a lower offset": (
        "p send ok >a=1@1\np send ok >a=2@0\nc poll ok <a=2@0 <a=1@1",
        {Anomaly.NONMONOTONIC_SEND},
    ),
    "a later send, a lower offset, within": (
        "p send ok >a=1@1 >a=2@0\nc poll ok <a=2@0 <a=1@1",
        {Anomaly.INT_NONMONOTONIC_SEND},
    ),
    "others wrote between": (
        "p send ok >a=1@0 >a=3@2\nq send ok >a=2@1\nc poll ok <a=1@0 <a=2@1 <a=3@2",
        {Anomaly.INT_SEND_SKIP, Anomaly.WRITE_CYCLE},
    ),
    "plain sends of which one is not known": (
        "p send info >a=1@0 >a=2\nc poll ok",
        {Anomaly.UNSEEN},
    ),
    "processed twice": (
        "p send ok >a=1@0\nt txn ok g/ <a=1@0 >b=2@0\nu txn info g/ <a=1@0 >b=3@1\nc poll ok <b=2@0 <b=3@1",
        {Anomaly.PROCESSED_TWICE},
    ),
    "not processed": (
        "p send ok >a=1@0 >a=2@1 >a=3@2\nt txn ok g/ <a=1@0\nt txn fail g/ <a=2@1\nt txn ok g/ <a=3@2",
        {Anomaly.NOT_PROCESSED},
    ),
    "a circle of two": (
        "s txn ok >a=1@0 <b=2@0\nt txn ok >b=2@0 <a=1@0",
        {Anomaly.INFORMATION_CYCLE},
    ),
    "a circle of three": (
        "s txn ok <c=3@0 >a=1@0\nt txn ok <a=1@0 >b=2@0\nu txn info <b=2@0 >c=3@0",
        {Anomaly.INFORMATION_CYCLE},
    ),
    "a circle by the order of writes": (
        "s txn ok >a=1@0 >b=2@1\nt txn ok <a=1@0 >b=3@0\nc poll ok <b=3@0 <b=2@1",
        {Anomaly.WRITE_CYCLE},
    ),
}

NOT_FOUND = {
    "a clean one": CLEAN,
    "markers leave holes": "t txn ok >a=1@0\nt txn ok >a=2@2\nc assign ok a\nc poll ok <a=1@0 <a=2@2",
    "what failed is passed over": "p send ok >a=1@0\nt txn fail >a=2@1\np send ok >a=3@3\nc poll ok <a=1@0 <a=3@3",
    "who knows, and it did not happen": "p send info >a=1\nq send ok >a=2@0\nc poll ok <a=2@0",
    "who knows, and it happened": "t txn info >a=1 >b=2\nc poll ok <a=1@0 <b=2@0",
    "who knows, of single sends: each for itself": "p send info >a=1 >a=2\nc poll ok <a=1@0",
    "never ended": "p send info >a=1",
    "read, then aborted: the read was real": "p send ok >a=1@0\nt txn fail <a=1@0 >b=2",
    "a rebalance within": "p send ok >a=1@0 >a=2@1\nc subscribe ok\nc poll ok~ <a=1@0 <a=2@1 <a=1@0",
    "moved back": "p send ok >a=1@0\nc assign ok a\nc poll ok <a=1@0\nc seek ok a\nc poll ok <a=1@0",
    "assigned anew": "p send ok >a=1@0\nc assign ok a\nc poll ok <a=1@0\nc assign ok a\nc poll ok <a=1@0",
    "a chain is no circle": "s txn ok >a=1@0\nt txn ok <a=1@0 >b=2@0\nu txn ok <b=2@0 >c=3@0\nd poll ok <c=3@0",
    "processed after an abort": (
        "p send ok >a=1@0\nt txn fail g/ <a=1@0 >b=2\nt seek ok a\nt txn ok g/ <a=1@0 >b=3@2\nc poll ok <b=3@2"
    ),
    "processed by two groups": "p send ok >a=1@0\nt txn ok g/ <a=1@0\nu txn ok h/ <a=1@0",
    "perhaps processed": (
        "p send ok >a=1@0 >a=2@1 >a=3@2\nt txn ok g/ <a=1@0\nt txn info g/ <a=2@1\nt txn ok g/ <a=3@2"
    ),
    "a send whose offset is not known": "p send ok >a=1@0\np send info >a=2\np send ok >a=3@1\nc poll ok <a=1@0 <a=3@1",
    "two producers have no order": "p send ok >a=1@1\nq send ok >a=2@0\nc poll ok <a=2@0 <a=1@1",
}


@pytest.mark.parametrize("name", FOUND)
def test_checker_finds_the_expected_anomalies(name: str) -> None:
    text, expected = FOUND[name]
    assert anomalies(text) == expected


@pytest.mark.parametrize("name", NOT_FOUND)
def test_checker_finds_no_anomaly_in_a_legal_history(name: str) -> None:
    assert anomalies(NOT_FOUND[name]) == set()


def test_every_anomaly_of_the_catalogue_has_an_example() -> None:
    assert set().union(*(expected for _, expected in FOUND.values())) == set(Anomaly)


def test_violations_of_guarantees_not_given_are_ignored() -> None:
    at_least_once = HistoryRules(idempotent=False)
    assert anomalies("p send info >a=1\nc poll ok <a=1@0 <a=1@1", at_least_once) == set()
    assert anomalies("p send ok >a=1@1 >a=2@0\nc poll ok <a=2@0 <a=1@1", at_least_once) == set()
    uncommitted = HistoryRules(read_committed=False)
    assert anomalies("t txn fail >a=1@0\nc poll ok <a=1@0", uncommitted) == set()
    assert anomalies("t txn ok >a=1@0 <a=1@0", uncommitted) == set()
    assert anomalies("p send ok >a=1@0", UNHEALED) == set()


def test_two_cycles_are_two_findings() -> None:
    report = check(
        handmade(
            """
            s txn ok >a=1@0 <b=2@0
            t txn ok >b=2@0 <a=1@0
            u txn ok >c=3@0 <d=4@0
            v txn ok >d=4@0 <c=3@0
            """
        )
    )
    assert [finding.anomaly for finding in report.forbidden] == [Anomaly.INFORMATION_CYCLE] * 2


def test_report_text_names_anomalies_with_examples() -> None:
    report = check(handmade("p send ok >a=1@0\np send ok >a=2@1\nt txn fail >a=3@2\nc poll ok <a=2@1 <a=3@2"))
    assert str(report) == (
        "FORBIDDEN ANOMALIES in 3 ok, 1 fail, 0 info operations\n"
        "3 values sent, 2 acknowledged, 2 seen\n"
        "worst realtime lag: 0 ms\n"
        "G1a x 1: a write that definitely failed was polled\n"
        "    '3' of t txn #4..5 (fail) was polled by c poll #6..7 (ok) from a at 2\n"
        "lost-write x 1: an acknowledged write was never polled, although a later offset was\n"
        "    '1' of p send #0..1 (ok) in a at 0; 2 was polled"
    )
    assert str(check(handmade(CLEAN))).startswith("no forbidden anomaly in 6 ok, 1 fail, 0 info operations\n")


def test_report_text_shows_few_of_many_findings() -> None:
    report = check(handmade("\n".join(f"p send ok >a={n}@{n}" for n in range(10))))
    assert len(report.forbidden) == 10
    assert str(report).count("whose") == 0
    assert str(report).endswith("... and 7 more")


LAGGING = """
    p send ok >a=1@0
    c assign ok a b
    c poll ok <a=1@0
    p send ok >a=2@1
    c poll ok
    c poll ok
    c poll ok <a=2@1
    c poll ok
    t txn ok
"""


def test_worst_lag_is_the_age_of_the_oldest_record_not_polled() -> None:
    report = check(handmade(LAGGING))
    assert report.worst_realtime_lag_ms == 3  # acknowledged at 7, not returned by the poll at 10
    assert report.worst_realtime_lag == " (a at 1, c poll #10..11 (ok))"


def test_lag_of_catching_up_processes_is_ignored() -> None:
    assert check(handmade(LAGGING), HistoryRules(catching_up=frozenset({"c"}))).worst_realtime_lag_ms == 0


def test_value_sent_twice_raises_value_error() -> None:
    with pytest.raises(ValueError, match="'1' was sent twice"):
        check(handmade("p send ok >a=1@0\np send ok >a=1@1"))


def test_history_round_trips_through_json() -> None:
    history = handmade(CLEAN)
    assert ClientHistory.from_json_lines(history.to_json_lines()) == history


def test_operation_of_a_killed_process_ends_as_info() -> None:
    recorder = Recorder()
    recorder.invoke("p", OperationKind.SEND, [SendAction("a", 1)], 0.0)
    reader = recorder.invoke("c", OperationKind.POLL, [], 0.0)
    recorder.ok(reader, [PollAction("a", 1, 0)], 1.0)
    report = check(recorder.history())
    assert report.findings == ()
    assert report.operations == {"ok": 1, "fail": 0, "info": 1}


def test_actions_recorded_before_a_kill_count_as_written() -> None:
    recorder = Recorder()
    copier = recorder.invoke("p", OperationKind.TRANSACTION, [], 0.0)
    recorder.goes_on(copier, [SendAction("a", 1)])  # the process is killed without an outcome
    reader = recorder.invoke("c", OperationKind.POLL, [], 1.0)
    recorder.ok(reader, [PollAction("a", 1, 0)], 2.0)
    assert check(recorder.history()).findings == ()


def test_process_with_an_open_operation_cannot_begin_another() -> None:
    recorder = Recorder()
    first = recorder.invoke("p", OperationKind.SEND, [], 0.0)
    with pytest.raises(ValueError, match="record that outcome first"):
        recorder.invoke("p", OperationKind.SEND, [], 0.0)
    recorder.info(first, [], 1.0)
    with pytest.raises(ValueError, match="already has an outcome"):
        recorder.ok(first, [], 1.0)
