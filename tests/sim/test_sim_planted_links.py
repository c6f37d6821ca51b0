"""The simulation of two clusters with links finds every planted bug within its number of seeds."""

from __future__ import annotations

import pytest

from barnabas.testing.sim import SimulationError
from barnabas.testing.sim.mirroring.scenario import mirroring
from tests.sim.planted_links import PLANTED, Planted

QUICK = ("fresh producer ids equal mirrored ones", "mirrors take writes", "groups with members are moved")
"""The bugs that `make test` plants; `make system` plants the others."""


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=bug.name.replace(" ", "-"), marks=[] if bug.name in QUICK else pytest.mark.system)
        for bug in PLANTED
    ],
)
def test_planted_bug_is_found(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    for seed in range(bug.first, bug.first + bug.seeds):
        try:
            mirroring(seed, menu=bug.menu, shares=bug.shares)
        except SimulationError as failure:
            assert isinstance(failure, bug.caught_by), failure
            return
    pytest.fail(f"{bug.seeds} seeds did not find: {bug.name}")
