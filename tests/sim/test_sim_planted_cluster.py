"""Simulated clusters see: every planted bug is found within its number of seeds, by the right kind of failure."""

from __future__ import annotations

import pytest

from barnabas.testing.sim import SimulationError
from barnabas.testing.sim.cluster.storm import storm
from tests.sim.planted_cluster import PLANTED, Planted


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name.replace(" ", "-"))
def test_it_is_found(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    for seed in range(bug.first, bug.first + bug.seeds):
        try:
            storm(seed, menu=bug.menu)
        except SimulationError as failure:
            assert isinstance(failure, bug.caught_by), failure
            return
    pytest.fail(f"{bug.seeds} seeds did not find: {bug.name}")
