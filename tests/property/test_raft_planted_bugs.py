"""Each planted bug is found within the number of seeds that `raft_bugs.BUGS` states."""

from __future__ import annotations

import pytest

from tests.property.raft_bugs import BUGS, Bug
from tests.property.raft_chaos import Plan, run_chaos
from tests.property.raft_world import InvariantViolation


@pytest.mark.parametrize(("bug", "plan", "seeds"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_planted_bug_is_caught(bug: Bug, plan: Plan, seeds: int) -> None:
    for seed in range(seeds):
        with bug():
            try:
                run_chaos(seed, plan)
            except InvariantViolation:
                return
    pytest.fail(f"{bug.__name__} went unseen for {seeds} seeds")
