"""Replication under faults: every seed keeps the invariants, and every planted bug is noticed."""

from __future__ import annotations

import pytest

from tests.property.replication_bugs import BUGS, Bug, planted
from tests.property.replication_invariants import Violation
from tests.property.replication_world import World

RARE = 20
"""Bugs that take more seeds than this to show are looked for in the long run."""


@pytest.mark.parametrize("seed", [*range(40), 1184])  # 1184: the empty log of an eligible leader replica began again
def test_the_invariants_hold(seed: int) -> None:
    world = World(seed)
    world.run()
    assert world.oracle.acked, "nothing was acknowledged: this seed shows nothing"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_the_invariants_hold_for_long(first: int) -> None:
    for seed in range(first, first + 100):
        World(seed).run()


def test_a_seed_replays_exactly() -> None:
    one, other = World(7), World(7)
    one.run()
    other.run()
    assert one.history == other.history


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, id=bug.name, marks=[pytest.mark.slow] if bug.seeds > RARE else []) for bug in BUGS],
)
def test_a_planted_bug_is_noticed(bug: Bug) -> None:
    for seed in range(bug.seeds):
        with planted(bug):
            try:
                World(seed).run()
            except Violation:
                return
    pytest.fail(f"{bug.name}: not noticed within {bug.seeds} seeds")
