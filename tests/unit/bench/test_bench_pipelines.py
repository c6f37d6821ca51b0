"""The arithmetic of `bench.pipelines`: rates, ratios, and what the warm-up leaves out."""

from __future__ import annotations

import itertools

from bench.pipelines.batch import Row
from bench.pipelines.notes import Note
from bench.pipelines.parts import micro_batch, parts_of
from bench.pipelines.streaming import BATCHES, WARM_UP, counted_seconds


def test_ratios_are_those_of_rounds_and_the_first_round_is_not_counted() -> None:
    ours, peer = itertools.cycle([9.0, 1.0, 2.0, 4.0]), itertools.cycle([9.0, 2.0, 8.0, 8.0])
    row = Row("read", 1_000_000, 100, {"ours": lambda: next(ours), "peer": lambda: next(peer)}, "peer")
    row.run(3, None)
    assert row.seconds == {"ours": [1.0, 2.0, 4.0], "peer": [2.0, 8.0, 8.0]}
    assert row.cells() == [
        ("read: ours", "500,000", "50", "", "2.00x"),
        ("read: peer", "125,000", "12", "", "1.00x"),
    ]


def test_the_first_micro_batches_are_not_counted() -> None:
    durations = [9_000] * WARM_UP + [500] * (BATCHES - WARM_UP)
    assert counted_seconds(durations) == 0.5 * BATCHES


def test_a_noted_call_belongs_to_the_micro_batch_in_which_it_began() -> None:
    reports = [
        {"timestamp": "1970-01-01T00:00:01.000Z", "durationMs": {"addBatch": 200, "triggerExecution": 300}},
        {"timestamp": "1970-01-01T00:00:02.000Z", "durationMs": {"addBatch": 400, "triggerExecution": 500}},
    ]

    def note(part: str, began_ms: int, took_ms: int) -> Note:
        return Note(part, began_ms * 1_000_000, (began_ms + took_ms) * 1_000_000)

    notes = [
        note("task", 900, 50),  # before the first
        note("task", 1_000, 10),
        note("task", 1_100, 20),
        note("task", 1_299, 30),
        note("task", 1_300, 70),  # between the two
        note("task", 2_100, 100),
        note("commit", 2_400, 5),
    ]
    assert parts_of([micro_batch(report) for report in reports], notes) == {
        "Spark: addBatch": 300.0,
        "Spark: triggerExecution": 400.0,
        "task": 80.0,
        "commit": 5.0,
    }
