"""The one-node simulation finds every planted bug of our clients within its number of seeds."""

from __future__ import annotations

import pytest

from barnabas.testing.sim import SimulationError
from barnabas.testing.sim.torture import torture
from tests.sim.planted_clients import PLANTED, Planted


@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.name.replace(" ", "-")) for bug in PLANTED])
def test_planted_bug_is_found(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    for seed in range(bug.first, bug.first + bug.seeds):
        try:
            torture(seed, menu=bug.menu)
        except SimulationError as failure:
            assert isinstance(failure, bug.caught_by), failure
            return
    pytest.fail(f"{bug.seeds} seeds did not find: {bug.name}")
