"""Nodes whose metadata log is in ZooKeeper, under a seeded storm.

A failure names its seed; `run_world(seed, plan)` replays it.
`ZOOKEEPER_SEEDS=1000` runs more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from barnabas.server.metadata.errors import MetadataError
from barnabas.server.quorum.zookeeper.machine.effects import ProposalOutcome
from tests.property.zookeeper_bugs import BUGS
from tests.property.zookeeper_plans import CUT, OVERTAKEN, RESIGNING, SNAPPY, STORMY, ZOMBIES, Plan
from tests.property.zookeeper_world import InvariantError, run_world

PLANS = {
    "stormy": (STORMY, 10),
    "five": (replace(STORMY, nodes=5, storm_ms=15_000), 5),
    "zombies": (ZOMBIES, 12),
    "resigning": (RESIGNING, 6),
    "snappy": (SNAPPY, 4),
    "cut": (CUT, 6),
    "overtaken": (OVERTAKEN, 6),
}
_MORE = int(os.environ.get("ZOOKEEPER_SEEDS", "0")) // len(PLANS)
_BUG_SEEDS = 60


@pytest.mark.parametrize("name", PLANS)
def test_nothing_is_lost_or_doubled_and_progress_resumes(name: str) -> None:
    offices = 0
    plan, seeds = PLANS[name]
    seeds = max(seeds, _MORE)
    for seed in range(seeds):
        world = run_world(seed, plan)
        assert ProposalOutcome.COMMITTED in world.outcomes.values(), (
            f"seed {seed}: nothing came through, so it shows nothing"
        )
        offices += len(world.leaders)
    assert offices > 2 * seeds, "the storm hardly ever changed the controller"


def test_a_seed_replays_exactly() -> None:
    first, second = run_world(3, STORMY), run_world(3, STORMY)
    assert (first.steps, first.truth, first.outcomes) == (second.steps, second.truth, second.outcomes)


_SLOW_TO_SHOW = ("election_after_resigning", "a_snapshot_settles_as_refused", "its_own_leftover_stays")
"""The bugs that only `make system` plants, because they need many seeds."""


@pytest.mark.parametrize(
    ("bug", "plan"),
    [
        pytest.param(bug, plan, id=bug.__name__, marks=pytest.mark.system if bug.__name__ in _SLOW_TO_SHOW else [])
        for bug, plan in BUGS
    ],
)
def test_a_planted_bug_is_seen(bug: Callable[[], AbstractContextManager[Any]], plan: Plan) -> None:
    for seed in range(_BUG_SEEDS):
        try:
            with bug():
                run_world(seed, plan)
        except (InvariantError, MetadataError, AssertionError):
            return
    raise AssertionError(f"{bug.__name__} goes unseen in {_BUG_SEEDS} seeds")
