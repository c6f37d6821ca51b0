"""The cluster simulation finds every planted bug within its number of seeds, with an expected kind of failure."""

from __future__ import annotations

import pytest

from barnabas.testing.sim import SimulationError
from barnabas.testing.sim.cluster.fault_context import ClusterFaultMenu
from barnabas.testing.sim.cluster.storm import COMPACTING, storm
from tests.sim.planted_cluster import PLANTED, Planted

QUICK = (
    "a former coordinator answers",
    "vote not synced",
    "a lost connection fences a broker",
    "requests before the login served",
    "each connection is a client",
)
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
            storm(seed, menu=bug.menu, settings=bug.settings, sasl=bug.sasl, quotas=bug.quotas, hostile=bug.hostile)
        except SimulationError as failure:
            assert isinstance(failure, bug.caught_by), failure
            return
    pytest.fail(f"{bug.seeds} seeds did not find: {bug.name}")


@pytest.mark.system
@pytest.mark.parametrize("seed", [1, 4])
def test_cluster_that_compacts_all_the_time_keeps_every_rule(seed: int) -> None:
    storm(seed, menu=ClusterFaultMenu.KILL, settings=COMPACTING)
