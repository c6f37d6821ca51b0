"""Whole quorums under a seeded storm: lost and repeated messages, cut links, pauses, power cuts, changes of voters.

A failure prints its seed and the last steps; `run_chaos(seed, plan)` replays it exactly. `RAFT_SEEDS=10000` runs more.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.property.raft_bugs import CHANGING, CROWDED, SNAPPY, STORMY
from tests.property.raft_chaos import Plan, run_chaos

PLANS: dict[str, tuple[Plan, int]] = {
    "three": (STORMY, 100),
    "five": (replace(STORMY, voters=5, observers=1), 60),
    "static": (replace(STORMY, kraft_version=0, observers=1), 60),
    "changing": (CHANGING, 80),
    "crowded": (CROWDED, 20),
    "snapshots": (SNAPPY, 20),
    "upgrading": (replace(STORMY, kraft_version=0, observers=1, fault_rate=0.06, membership=6, upgrade=12), 20),
    "calm": (Plan(fault_rate=0.0, crash_in_step=0.0, loss=0.0, duration_ms=5_000), 5),
}
_CHUNK = 20
_MORE = int(os.environ.get("RAFT_SEEDS", "0"))


def _chunks() -> list[tuple[str, int, int]]:
    chunks = []
    for name, (_, seeds) in PLANS.items():
        count = max(seeds, _MORE // len(PLANS))
        chunks += [(name, start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
    return chunks


@pytest.mark.parametrize(("name", "first", "end"), _chunks())
def test_invariants_hold_and_progress_resumes(name: str, first: int, end: int) -> None:
    plan, _ = PLANS[name]
    for seed in range(first, end):
        world = run_chaos(seed, plan)
        assert world.acked, f"seed {seed}: the storm let nothing through, so it shows nothing"


def test_a_seed_replays_exactly() -> None:
    first, second = run_chaos(7, CHANGING), run_chaos(7, CHANGING)
    assert first.history == second.history
    assert (first.steps, first.now, first.acked) == (second.steps, second.now, second.acked)


def test_the_default_run_has_at_least_three_hundred_seeds() -> None:
    assert sum(seeds for _, seeds in PLANS.values()) >= 300
