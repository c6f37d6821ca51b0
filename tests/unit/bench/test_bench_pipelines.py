"""The arithmetic of `bench.pipelines`: rates, ratios, and what the warm-up leaves out."""

from __future__ import annotations

import itertools

from bench.pipelines.batch import Row
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
